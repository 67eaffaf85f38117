"""The checker's own derivation: from a certificate's numbers to every query, and its own decision of each in Fractions.

Written from docs/fairness.md; no code is shared with the prover. A query is the negation of a lemma. Beside its text stands
whether the lemma holds, decided without a solver: signs of numbers, and polynomials in w that are positive on a cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from ccenv.proofs.certificates.fairness.exact import Polynomial, is_positive, line, log_low_high, plus, scaled, times
from ccenv.proofs.certificates.fairness.reading import FairCertificate, exact

Term: TypeAlias = Any
"""A name, a number, a line (a polynomial of degree 1 in w), or an operator with its terms."""
ONE = Fraction(1)
SQUARE: Polynomial = (Fraction(0), Fraction(0), ONE)
NANO = 10**9
PICO = 10**12


class Lemma(NamedTuple):
    """One lemma with the certificate's numbers: its name, the query that denies it, and whether it is shown here."""

    name: str
    text: str
    holds: Callable[[], bool]


def write(term: Term) -> str:
    """Return a term as SMT-LIB."""
    if isinstance(term, str):
        return term
    if isinstance(term, (int, Fraction)):
        whole = Fraction(term)
        size = abs(whole)
        text = f"{size.numerator}" if size.denominator == 1 else f"(/ {size.numerator} {size.denominator})"
        return text if whole >= 0 else f"(- {text})"
    if isinstance(term, Line):
        return write(["+", term.polynomial[0], ["*", term.polynomial[1], "w"]])
    return f"({' '.join([term[0], *map(write, term[1:])])})"


def denial(names: Sequence[str], facts: Sequence[Term]) -> str:
    """Return the query that all facts hold at once."""
    head = "(set-logic QF_NRA)\n" + "".join(f"(declare-fun {name} () Real)\n" for name in names)
    return head + "".join(f"(assert {write(fact)})\n" for fact in facts) + "(check-sat)\n"


@dataclass(frozen=True)
class Line:
    """A table in one cell."""

    polynomial: Polynomial


class Derivation:
    """All that follows from a certificate's numbers."""

    def __init__(self, certificate: FairCertificate) -> None:
        """Read the numbers. Raises ZeroDivisionError or ValueError where they cannot be those of any proof."""
        design, rule, constants = (exact(part) for part in (certificate.design, certificate.rule, certificate.constants))
        bounds = exact(certificate.bounds)
        self.s, self.D, self.range, self.kappa = (design[name] for name in ("fairness", "jitter_rtts", "shares", "utilisation"))
        self.rule, self.bounds = rule, bounds
        self.early, self.unlike = design["early"], design["unlike"]
        self.views = self.D + self.early + self.unlike  # departures of the bytes that two flows see are so far apart
        self.free = design["freedom"] ** 2  # a rate squared is within this factor of the rule's squared
        self.B, self.g, self.theta = rule["slope"], rule["gain"], rule["offset"]
        self.h, self.K, self.zeta = constants["spread"], constants["entropy"], constants["curvature"]
        lists = {name: [Fraction(text) for text in texts] for name, texts in certificate.tables.model_dump().items()}
        self.w, self.L, self.H = lists["w"], lists["low"], lists["high"]
        self.rise, self.fall = lists["rise"], lists["fall"]
        self.n = len(self.w) - 1
        if {len(self.L), len(self.H)} != {self.n + 1} or {len(self.rise), len(self.fall)} != {self.n}:
            raise ValueError("low and high need a number for each node of w, rise and fall one for each cell")
        if any(right <= left for left, right in zip(self.w, self.w[1:], strict=False)) or self.w[0] <= 0:
            raise ValueError("the nodes of w do not increase from above 0")
        if self.free < 1:
            raise ValueError("the freedom is below 1")
        if min(self.s, self.D, self.range, self.kappa, self.B, self.g) <= 0 or self.h <= 1:
            raise ValueError("s, D, the range, kappa, B and g must be above 0, the spread above 1")
        self.rises = self._shifts(self.rise)
        self.falls = self._shifts(self.fall)
        double = [2 * shift for shift in self.rises]
        self.before = self._lowered(self.rises)
        self.before_twice = self._lowered(double)
        self.after = self._raised([shift * (1 + shift) for shift in self.falls])
        self.after_twice = self._raised([2 * shift * (1 + 2 * shift) for shift in self.falls])
        self.apart = self.B * (self.D + self.early) + self.B * self.g * (self.H[-1] - 1) * self.views
        if min(self.early, self.unlike) < 0 or self.early + self.unlike > 1:
            raise ValueError("early and unlike must be at least 0, and at most 1 together")

    def _neighbours(self, cell: int) -> range:
        return range(max(0, cell - 1), min(self.n, cell + 2))

    def _shifts(self, drift: Sequence[Fraction]) -> list[Fraction]:
        """By how much V may move within one RTT of a byte that was sent in a cell or beside it."""
        drifts = []
        for cell in range(self.n):
            longest = self.H[min(self.n, cell + 2)] + self.D
            fastest = max(drift[other] for other in self._neighbours(cell))
            drifts.append(Fraction(math.ceil(self.g * fastest * longest * PICO), PICO))
        return drifts

    def _least_seen(self, table: Sequence[Fraction], cell: int) -> Sequence[Fraction]:
        """The least X that a flow sees at both ends of a cell: the table's less e where that is 1 at least, else 1."""
        ends = [value - self.early for value in table[cell : cell + 2]]
        return ends if self.early == 0 or min(ends) >= 1 else [ONE, ONE]

    def _steepness(self, table: Sequence[Fraction], cell: int) -> Fraction:
        return line(self.w[cell], self.w[cell + 1], table[cell], table[cell + 1])[1]

    def _by_node(self, table: Sequence[Fraction], shifts: Sequence[Fraction]) -> list[Fraction]:
        """Return by how much a table may change at each node, over its w."""
        cells = [max(self._steepness(table, other) for other in self._neighbours(cell)) * shifts[cell] for cell in range(self.n)]
        return [max(cells[cell] for cell in (node - 1, node) if 0 <= cell < self.n) for node in range(self.n + 1)]

    def _raised(self, shifts: Sequence[Fraction]) -> list[Fraction]:
        envelope: list[Fraction] = []
        for node, share in enumerate(self._by_node(self.H, shifts)):
            value = Fraction(math.ceil((self.H[node] + share * self.w[node]) * NANO), NANO)
            envelope.append(max([value, *envelope[-1:]]))
        return envelope

    def _lowered(self, shifts: Sequence[Fraction]) -> list[Fraction]:
        shares = self._by_node(self.L, shifts)
        return [
            Fraction(math.floor((value - share * w) * NANO), NANO) for value, share, w in zip(self.L, shares, self.w, strict=True)
        ]

    def lemmas(self) -> Iterator[Lemma]:
        """Yield every lemma, in the order of a certificate."""
        yield from self._of_ratio()
        yield from self._of_ends()
        for cell in range(self.n):
            yield from self._of_cell(cell)

    def _of_ratio(self) -> Iterator[Lemma]:
        views, kappa, B, g, apart, h = self.views, self.kappa, self.B, self.g, self.apart, self.h
        view, newest = views / kappa, max(ONE, self.L[0] - self.early)
        yield Lemma(
            "L1 view",
            denial(
                ["between", "served"],
                [["<=", ["*", kappa, "between"], "served"], ["<=", "served", views], [">", "between", view]],
            ),
            lambda: True,  # kappa between <= views
        )
        stored: Term = ["+", "apart", ["*", g * B, "stored"]]
        derivative: Term = ["+", ["*", g, ["-", ["*", B, "ages"], "apart"]], ["*", g * B, "change"]]
        facts: list[Term] = [
            ["<=", "ages", ["-", self.D + self.early, "change"]],
            [">=", "stored", 0],
            ["<=", "stored", ["*", views, self.H[-1] - 1]],
            [">=", stored, apart],
            [">", derivative, 0],
        ]
        # derivative <= g (B (D + e) - apart) <= g (B (D + e) + g B stored - bound) <= g (B (D + e) + g B views Q - bound) = 0
        yield Lemma("L2 spread", denial(["apart", "ages", "stored", "change"], facts), lambda: g > 0 and B > 0)
        facts = [[">=", "stored", 0], ["<=", stored, apart], [">", "apart", apart]]
        yield Lemma("L2 potential", denial(["apart", "stored"], facts), lambda: g * B > 0)
        low = log_low_high(h)[0]
        yield Lemma("L2 exponential", denial([], [[">", apart, low]]), lambda: apart <= low)
        ratio, widest = self.bounds["ratio"], (h * self.free) ** 2
        facts = [
            [">=", "newer", newest],
            [">=", "older", "newer"],
            ["<=", "older", ["+", "newer", view]],
            ["<=", ["*", "square", "newer"], ["*", widest, "older"]],
            [">", "square", ratio * ratio],
        ]
        holds = widest * (newest + view) <= ratio * ratio * newest
        yield Lemma("L2 ratio", denial(["older", "newer", "square"], facts), lambda: holds)
        yield Lemma("L2 bound", denial([], [[">", ratio, self.s]]), lambda: ratio <= self.s)
        chord = Fraction(math.floor(low / (h - 1) * PICO), PICO)
        least = log_low_high(chord)[0] if chord > 0 else -ONE
        # ln Specht(h) = l - 1 - ln l with l = ln h/(h - 1) < 1, where it decreases in l; chord <= l
        yield Lemma(
            "L5 entropy",
            denial([], [["<", self.K, ["-", chord, 1, least]]]),
            lambda: 0 < chord < 1 and chord - 1 - least <= self.K,
        )

    def _of_ends(self) -> Iterator[Lemma]:
        B, D, first, last = self.B, self.D, self.w[0], self.w[-1]
        top = log_low_high(first)[1]
        need: Term = ["+", top, ["*", B, ["-", ["+", self.after[0], D], 1]], self.K]
        yield Lemma(
            "L4 bottom",
            denial([], [["<", self.theta, need]]),
            lambda: self.theta >= top + B * (self.after[0] + D - 1) + self.K,
        )
        lag = 2 * self.g * B * last * last * (self.H[-1] - 1) / self.free
        square = (1 - self.zeta) * last * last * (1 - 2 * lag) / self.free
        low, width = log_low_high(last)[0], log_low_high(self.range)[1]
        reach: Term = ["+", ["-", low, lag], ["*", B, ["-", square, 1]]]
        facts = [["or", ["<", reach, ["+", self.theta, width]], [">=", 2 * lag, 1], [">=", self.zeta, 1]]]
        shown = low - lag + B * (square - 1) >= self.theta + width and 2 * lag < 1 and self.zeta < 1
        yield Lemma("L4 range", denial([], facts), lambda: shown)

    def _of_cell(self, k: int) -> Iterator[Lemma]:
        left, right = self.w[k], self.w[k + 1]
        L, H, after, after_twice = (
            Line(line(left, right, table[k], table[k + 1])) for table in (self.L, self.H, self.after, self.after_twice)
        )
        before, before_twice = (
            Line(line(left, right, *self._least_seen(table, k))) for table in (self.before, self.before_twice)
        )
        inside: list[Term] = [[">=", "w", left], ["<=", "w", right]]
        up, down = self.rises[k], self.falls[k]
        ease = self._steepness(self.H, k) * right * self.g * self.fall[k]
        press = self._steepness(self.L, k) * right * self.g * self.rise[k]

        def positive(part: Polynomial, *, strict: bool = True) -> bool:
            return is_positive(part, left, right, strict=strict)

        yield self._of_tables(k, ease)
        fast = (1 + down + down * down) ** 2 * self.free
        facts: list[Term] = [
            *inside,
            [">=", "age", 1],
            ["<=", ["*", "age", (1 - ease) ** 2 / self.free], ["*", "w", "w"]],
            [
                "or",
                ["=", "load", 1],
                ["and", [">=", "load", 1], ["<=", ["*", "load", "load", before_twice], ["*", "w", "w", fast]]],
            ],
            [">=", ["*", ["+", "age", self.early] if self.early else "age", "load"], H],
        ]
        # (age + e) load < H: load is 1, or load^2 seen <= w^2 fast, where age is w^2/(1 - ease)^2 times f^2 at most
        share = (1 - ease) ** 2 / self.free
        eased, longest = scaled(share, H.polynomial), plus(SQUARE, (share * self.early,))
        yield Lemma(
            f"L3 peak {k}",
            denial(["w", "age", "load"], facts),
            lambda: (
                positive(plus(eased, scaled(-1, longest)))
                and positive(plus(times(eased, eased, before_twice.polynomial), scaled(-fast, times(longest, longest, SQUARE))))
                and positive(before_twice.polynomial)
            ),
        )
        slow = (1 + up + up * up) ** 2 * self.free
        if self.L[k + 1] > 1:
            facts = [
                *inside,
                [">", "load", 0],
                ["<=", "load", 1],
                [">=", ["*", "age", (1 + press) ** 2 * self.free], ["*", "w", "w"]],
                ["or", ["=", "load", 1], [">=", ["*", "load", "load", ["+", after_twice, self.D], slow], ["*", "w", "w"]]],
                ["<=", ["-", ["*", "age", "load"], self.D], L],
            ]
            pressed = scaled((1 + press) ** 2 * self.free, plus(L.polynomial, (self.D,)))
            latest = scaled(slow, plus(after_twice.polynomial, (self.D,)))
            yield Lemma(
                f"L3 trough {k}",
                denial(["w", "age", "load"], facts),
                lambda: (
                    positive(plus(SQUARE, scaled(-1, pressed)))
                    and positive(plus(times(SQUARE, SQUARE, SQUARE), scaled(-1, times(pressed, pressed, latest))))
                ),
            )
        late = plus(after.polynomial, (self.D,))
        facts = [
            *inside,
            [">", "load", 0],
            [">=", ["*", "load", "load", ["+", after, self.D]], ["*", "w", "w", *([1 / self.free] if self.free > 1 else [])]],
            ["<", "load", self.kappa],
        ]
        yield Lemma(
            f"L3 load {k}",
            denial(["w", "load"], facts),
            lambda: positive(plus(SQUARE, scaled(-self.kappa * self.kappa * self.free, late)), strict=False),
        )
        yield from self._of_drift(k, (H, before, after))

    def _of_tables(self, k: int, ease: Fraction) -> Lemma:
        left, right, L, H = self.w[k], self.w[k + 1], self.L[k : k + 2], self.H[k : k + 2]
        up, down, quarter = self.rises[k], self.falls[k], Fraction(1, 4)
        least = self.before_twice[k : k + 2]
        bad: list[tuple[Term, bool]] = [
            ([">=", left, right], left >= right),
            (["<", L[0], 1], L[0] < 1),
            (["<", L[1], L[0]], L[1] < L[0]),
            (["<", H[0], L[0]], H[0] < L[0]),
            (["<", H[1], H[0]], H[1] < H[0]),
            (["<", H[1], L[1]], H[1] < L[1]),
            (["<=", least[0], 0], least[0] <= 0),
            (["<=", least[1], 0], least[1] <= 0),
            (["<=", self.rise[k], 0], self.rise[k] <= 0),
            (["<=", self.fall[k], 0], self.fall[k] <= 0),
            ([">", up, quarter], up > quarter),
            ([">", down, quarter], down > quarter),
            ([">=", ease, 1], ease >= 1),
        ]
        if k >= 1:
            bad.append((["<", ["*", left, ["-", 1, 2 * up]], self.w[k - 1]], left * (1 - 2 * up) < self.w[k - 1]))
        if k + 2 <= self.n:
            reach = 1 + 2 * down + (2 * down) ** 2
            bad.append(([">", ["*", right, reach], self.w[k + 2]], right * reach > self.w[k + 2]))
        text = denial([], [["or", *(term for term, _ in bad)]])
        return Lemma(f"L3 tables {k}", text, lambda: not any(broken for _, broken in bad))

    def _of_drift(self, k: int, tables: tuple[Line, Line, Line]) -> Iterator[Lemma]:
        H, before, after = tables
        left, right = self.w[k], self.w[k + 1]
        B, D, g, K, zeta = self.B, self.D, self.g, self.K, self.zeta
        inside: list[Term] = [[">=", "w", left], ["<=", "w", right]]
        lag_term: Term = ["*", 2 * g * B / self.free, "w", "w", ["-", H, 1]]
        square_term: Term = ["*", (1 - zeta) / self.free, "w", "w", ["-", 1, ["*", 2, lag_term]]]
        queue = plus(H.polynomial, (-ONE,))
        lag = scaled(2 * g * B / self.free, times(SQUARE, queue))
        rest = plus((ONE,), scaled(-2, lag))
        square = scaled((1 - zeta) / self.free, times(SQUARE, rest))
        late = plus(after.polynomial, (D,))
        worst = 4 * g * self.fall[k]
        parts = [
            plus((self.rise[k] - K,), scaled(-B, plus(late, scaled(-1, before.polynomial)))),
            plus((self.fall[k] - K,), scaled(-B, plus(late, scaled(-1, square))), scaled(-1, lag)),
            plus(scaled(zeta, rest), scaled(-worst, queue)),
        ]
        fact: Term = [
            "or",
            [">", ["+", ["*", B, ["-", ["+", after, D], before]], K], self.rise[k]],
            [">", ["+", ["*", B, ["-", ["+", after, D], square_term]], K, lag_term], self.fall[k]],
            [">", ["*", worst, ["-", H, 1]], ["*", zeta, ["-", 1, ["*", 2, lag_term]]]],
        ]

        yield Lemma(
            f"L4 drift {k}",
            denial(["w"], [*inside, fact]),
            lambda: all(is_positive(part, left, right, strict=False) for part in parts),
        )
        # v_i is at most `apart` beside the mean of all v, and the mean is off the map by what V' is over g
        far = [(self.rise[k] + self.apart, self.rule["start"]), (self.fall[k] + self.apart, self.rule["relief"])]
        yield Lemma(
            f"L6 start {k}",
            denial([], [["or", *([">", most, bound] for most, bound in far)]]),
            lambda: all(most <= bound for most, bound in far),
        )
