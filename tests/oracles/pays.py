"""The utilisation lemma of theorem cc_qdel, written a second time from docs/theorems.md, The laws, as SMT-LIB text of its own.

Other variables than the prover's and the checker's: not cumulative curves but the state of the path and what each step does to
it. q is the queue (E - G), u what has tokens and is not delivered (G - S), w the tokens wasted in a step, e the bytes that enter
and l those that are lost. Then the jitter bound is ``u <= tokens of the last D``, in flight is q + u, and a byte is late if what
is in flight is at least what came since. C_U is read at the end alone, as cc_qdel never reads it. Units: C = Rm = 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

PAST_RTTS = 3
LARGEST_RATE = 2
CLOSE, MOVED = Fraction(2), Fraction(11, 10)
"""Of the time-out called ``artefact`` in docs/engine.md."""


@dataclass(frozen=True)
class Question:
    """Whether cc_qdel on CCAC with any buffer can break ``served + 4 C_L' - 4 C_L >= share * rtts`` from C_L >= goal.

    Attributes:
        share: of the link.
        goal: where C_L starts, at least.
        rtts: length of the trace in Rm.
        K: steps per Rm; the sender decides once per Rm.
        D: jitter in Rm.
        times_out: whether beliefs time out at the end.
        violated: without, the question is whether there are such traces at all.
    """

    share: Fraction = Fraction(3, 4)
    goal: Fraction = Fraction(3, 8)
    rtts: int = 10
    K: int = 1
    D: Fraction = Fraction(1)
    times_out: bool = True
    violated: bool = True

    def text(self) -> str:
        """Return the question as an SMT-LIB benchmark in QF_LRA."""
        return _Writer(self).text()


class _Writer:
    def __init__(self, question: Question) -> None:
        self.question, self.h = question, Fraction(1, question.K)
        self.d = int(question.D * question.K)
        self.first, self.last = -max(PAST_RTTS * question.K, self.d), question.rtts * question.K
        self.reals: list[str] = []
        self.flags: list[str] = []
        self.facts: list[str] = []

    def real(self, name: str, t: int) -> str:
        self.reals.append(_name(name, t))
        return self.reals[-1]

    def text(self) -> str:
        self.network()
        self.sender_and_beliefs()
        self.ends()
        lines = [f"(declare-const {name} Real)" for name in self.reals] + [f"(declare-const {name} Bool)" for name in self.flags]
        return "\n".join(["(set-logic QF_LRA)", *lines, *(f"(assert {fact})" for fact in self.facts), "(check-sat)"]) + "\n"

    def tokens(self, after: int, until: int) -> str:
        """Tokens of (after, until]."""
        return _sum([_number((until - after) * self.h), *(f"(- {_name('w', t)})" for t in range(after + 1, until + 1))])

    def entered(self, after: int, until: int) -> str:
        return _sum(_name("e", t) for t in range(after + 1, until + 1))

    def served(self, after: int, until: int) -> str:
        """S over (after, until]: tokens, and what had tokens before, less what has them still."""
        return _sum([_name("u", after), self.tokens(after, until), f"(- {_name('u', until)})"])

    def network(self) -> None:
        add, first, h = self.facts.append, self.first, _number(self.h)
        self.reals += ["alpha", "beta"]
        self.facts += ["(> alpha 0)", "(< (* 5 alpha) 1)", "(> beta 0)"]
        look = self.d + 1
        for t in range(first - look + 1, first + 1):
            add(f"(>= {self.real('e', t)} 0)")
        for t in range(first, self.last + 1):
            q, u = self.real("q", t), self.real("u", t)
            self.facts += [f"(<= {q} beta)", f"(>= {u} 0)", f"(>= (+ {q} {u}) 0)"]
            if t > first:
                w, e = self.real("w", t), self.real("e", t)
                self.facts += [f"(>= {w} 0)", f"(<= {w} {h})", f"(=> (> {w} 0) (<= {q} 0))"]
                add(f"(= (+ {_name('q', t - 1)} {e}) (+ {q} {self.tokens(t - 1, t)}))")
                add(f"(>= {self.served(t - 1, t)} 0)")
                add(f"(>= {e} 0)")
            if first < t <= 0:
                add(f"(<= {e} {_number(LARGEST_RATE * self.h)})")
            before = [] if t - self.d >= first else [_number(self.question.D)]  # no token was wasted before the known past
            add(f"(<= {u} {_sum([self.tokens(max(first, t - self.d), t), *before])})")
            late = _name("late", t)
            self.flags.append(late)
            waited = f"(>= (+ {q} {u}) {self.entered(t - look, t)})"
            if t == first:
                add(f"(=> {late} {waited})")
            else:
                add(f"(ite (> {self.served(t - 1, t)} 0) (= {late} {waited}) (= {late} {_name('late', t - 1)}))")

    def sender_and_beliefs(self) -> None:
        add, K = self.facts.append, self.question.K
        L = [self.real("L", t) for t in range(self.last + 1)]
        for t in range(1, self.last + 1):
            lost, rate = self.real("l", t), self.real("r", t)
            if (t - 1) % K:
                add(f"(= {rate} {_name('r', t - 1)})")
            else:
                known = L[t - 1]
                chosen = f"(ite {_name('late', t - 1)} (* (/ 1 2) {known}) (* 2 {known}))"
                add(f"(= {rate} (ite (>= {chosen} alpha) {chosen} alpha))")
            add(f"(>= {lost} 0)")
            add(f"(= (+ {_name('e', t)} {lost}) (* {_number(self.h)} {rate}))")
            add(f"(=> (> {lost} 0) (= {_name('q', t)} beta))")
            self.is_largest(L[t], [L[t - 1], *(self.window(x, t, self.d) for x in range(t))])

    def window(self, after: int, until: int, more: int) -> str:
        """What was served over its time and ``more`` steps."""
        return f"(* {_number(Fraction(self.question.K, until - after + more))} {self.served(after, until)})"

    def is_largest(self, name: str, parts: list[str], sign: str = ">=") -> None:
        self.facts += [f"({sign} {name} {part})" for part in parts]
        self.facts.append(_any(f"(= {name} {part})" for part in parts))

    def ends(self) -> None:
        question, add = self.question, self.facts.append
        goal = _number(question.goal)
        self.reals.append("U_0")
        self.facts += ["(>= U_0 1)", f"(>= L_0 {goal})", "(>= L_0 alpha)", "(<= L_0 1)"]
        last = _name("L", self.last)
        if question.times_out:
            self.reals += ["U", "again", "told"]
            self.upper_bound()
            self.is_largest("again", [self.window(x, t, self.d) for t in range(1, self.last + 1) for x in range(t)])
            moved, far = f"(> {last} L_0)", f"(< (* {_number(MOVED)} U) U_0)"
            stale = f"(and (<= U (* {_number(CLOSE)} {last})) (not {moved}) (or (and (< U U_0) (< U {last})) (not {far})))"
            add(f"(= told (ite {stale} again {last}))")
            last = "told"
        if question.violated:
            paid = _sum([self.tokens(0, self.last), f"(* 4 {last})", "(* (- 4) L_0)"])
            add(f"(< {paid} {_number(question.share * question.rtts)})")

    def upper_bound(self) -> None:
        """C_U at the end: the least of C_U(0) and what every utilised window of the trace served, over its time less D."""
        d = self.d
        for y in range(1, self.last - d + 1):
            flag = _name("used", y)
            self.flags.append(flag)
            waits = f"(> (+ {_name('q', y)} {_name('u', y)}) {self.served(y, y + d)})"
            self.facts.append(f"(= {flag} (or {waits} (> {_name('l', y)} 0)))")
        attained = ["(= U U_0)"]
        self.facts.append("(<= U U_0)")
        for t in range(1, self.last + 1):
            for x in range(t - d):
                used = " ".join(_name("used", y) for y in range(x + 1, t - d + 1))
                rate = self.window(x, t, -d)
                self.facts.append(f"(=> (and true {used}) (<= U {rate}))")
                attained.append(f"(and (= U {rate}) {used})")
        self.facts.append(_any(attained))


def _name(series: str, t: int) -> str:
    return f"{series}_{t}" if t >= 0 else f"{series}_before_{-t}"


def _number(value: Fraction | int) -> str:
    value = Fraction(value)
    size = str(abs(value.numerator)) if value.denominator == 1 else f"(/ {abs(value.numerator)} {value.denominator})"
    return size if value >= 0 else f"(- {size})"


def _sum(parts: Iterable[str]) -> str:
    terms = list(parts)
    return terms[0] if len(terms) == 1 else f"(+ {' '.join(terms)})" if terms else "0"


def _any(parts: Iterable[str]) -> str:
    return f"(or false {' '.join(parts)})"
