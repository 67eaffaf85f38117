"""Prove many candidates with one query: by their hull, or by letting the solver choose among them.

*Hull*: programs with the same conditions whose rates lie between two of them. If a sender that may send any rate in between, anew
in each step, meets the query, all of them do. *Choice*: the encoding of all of them, one of which the solver picks; the answer is
a proof for all or a counterexample of one. The exact replayer confirms every counterexample for its program.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ccenv.agents.programs import Branch, Expression, Leaf, Program, Rule
from ccenv.proofs.claims.verifier import confirm
from ccenv.proofs.formulas.encode import Needs, Variables, encode
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.senders import program as formulas
from ccenv.proofs.senders.program import TIME_INPUTS, ProgramSmtSender
from ccenv.proofs.senders.window import RateSender
from ccenv.proofs.solver.solvers import Answer, query_hash, solve
from ccenv.proofs.solver.terms import Formula, Term, choose, larger
from ccenv.proofs.synthesis.prove import Decision, Task, claims, decide
from ccenv.proofs.synthesis.query.objectives import Objectives

LARGEST_CHOICE = 64
"""Programs that the solver chooses among at a time."""


@dataclass
class _Group(RateSender):
    """Several programs as one sender; subclasses define what it may send."""

    programs: tuple[Program, ...]
    name: str = "group"

    def needs(self, setting: Setting) -> Needs:
        out = Needs()
        for program in self.programs:
            out = out | ProgramSmtSender(program).needs(setting)
        return out

    def decider(self) -> Any:
        """Not used: counterexamples are confirmed for one program."""
        raise NotImplementedError


@dataclass
class Choice(_Group):
    """One program, picked by the solver once per trace by the bits of its number (one boolean per program is slower)."""

    bits: list[Any] = field(default_factory=list)

    def declare(self, view: View, make: Variables) -> None:
        """Declare the rate and the bits of the program's number."""
        super().declare(view, make)
        self.bits = [make.boolean(f"bit_{k}") for k in range((len(self.programs) - 1).bit_length())]

    def sends(self, view: View) -> Iterator[Formula]:
        yield view.rate[0] >= view.alpha
        for t in range(1, view.setting.samples):
            rates = [formulas.rule_rate(program.rule, view, t - 1) for program in self.programs]
            yield view.rate[t] == larger(self._pick_rate(rates, len(self.bits) - 1), view.alpha)

    def _pick_rate(self, rates: list[Term], bit: int) -> Term:
        half = 1 << bit if bit >= 0 else 1
        if len(rates) == 1:
            return rates[0]
        if len(rates) <= half:
            return self._pick_rate(rates, bit - 1)
        return choose(self.bits[bit], self._pick_rate(rates[half:], bit - 1), self._pick_rate(rates[:half], bit - 1))

    def find_picked(self, model: dict[str, Any]) -> int:
        rest, offset = len(self.programs), 0
        for bit in reversed(range(len(self.bits))):
            half = 1 << bit
            if rest > half:
                high = bool(model.get(f"bit_{bit}", False))
                offset, rest = (offset + half, rest - half) if high else (offset, half)
        return offset


@dataclass
class Hull(_Group):
    """Any rate between two programs with the same conditions, anew in each step."""

    def sends(self, view: View) -> Iterator[Formula]:
        """Yield lowest <= rate <= highest in each step."""
        low, high = self.programs
        yield view.rate[0] >= view.alpha
        for t in range(1, view.setting.samples):
            yield view.rate[t] >= larger(formulas.rule_rate(low.rule, view, t - 1), view.alpha)
            yield view.rate[t] <= larger(formulas.rule_rate(high.rule, view, t - 1), view.alpha)


def make_hull(programs: list[Program]) -> Hull | None:
    """Return the hull of programs with equal conditions, or None if rates cannot be ordered leaf by leaf."""
    low = _extreme([program.rule for program in programs], lowest=True)
    high = _extreme([program.rule for program in programs], lowest=False)
    if low is None or high is None:
        return None
    return Hull((Program("lowest", low), Program("highest", high)))


def _extreme(rules: list[Rule], *, lowest: bool) -> Rule | None:
    first = rules[0]
    if isinstance(first, Leaf):
        leaves = [rule for rule in rules if isinstance(rule, Leaf) and rule.hold_rtts == 1]
        if len(leaves) < len(rules):
            return None
        for leaf in leaves:
            if all(_is_below(leaf.rate, other.rate) if lowest else _is_below(other.rate, leaf.rate) for other in leaves):
                return leaf
        return None
    branches = [rule for rule in rules if isinstance(rule, Branch) and rule.condition == first.condition]
    if len(branches) < len(rules):
        return None
    then = _extreme([branch.then for branch in branches], lowest=lowest)
    otherwise = _extreme([branch.otherwise for branch in branches], lowest=lowest)
    return None if then is None or otherwise is None else Branch(first.condition, then, otherwise)


def _is_below(left: Expression, right: Expression) -> bool:
    """Return whether max(left, MSS/Rm) <= max(right, MSS/Rm) for all C_L >= MSS/Rm, for rates over these two."""
    if {name for e in (left, right) for name, _ in e.terms} - {"C_L", "MSS/Rm"}:
        return left == right
    slope = right.coefficient("C_L") - left.coefficient("C_L")
    constant = right.coefficient("MSS/Rm") - left.coefficient("MSS/Rm")
    if slope >= 0 and slope + constant >= 0:
        return True
    # Also below if left never exceeds MSS/Rm.
    return left.coefficient("C_L") <= 0 and left.coefficient("C_L") + left.coefficient("MSS/Rm") <= 1


@dataclass(frozen=True)
class GroupTask:
    """Candidates for one worker: class numbers and their programs."""

    setting: Setting
    objectives: Objectives
    numbers: tuple[int, ...]
    programs: tuple[Program, ...]
    kind: Literal["choice", "hull"]
    seconds: float  # limit per solver call
    seed: int
    full: bool = False  # with moving beliefs
    any_start: bool = False  # beliefs may be wrong at the start

    def task(self, index: int) -> Task:
        return Task(self.setting, self.objectives, self.programs[index], self.seconds, self.seed, self.full, self.any_start)


def reads_time(program: Program) -> bool:
    return bool(program.inputs() & (TIME_INPUTS - {"Rm"}))


def decide_group(group: GroupTask) -> list[tuple[int, Decision]]:
    """Decide some of a group's candidates, at least one.

    Returns:
        list: (class number, decision). With ``hull`` the hull of all comes first; if it is not proved, one candidate is decided
        on its own. With ``choice`` the answer is a counterexample of one, or a proof of all.
    """
    if group.kind == "choice":
        return _decide_choice(group)
    hull = make_hull(list(group.programs)) if len(group.numbers) > 1 else None
    shared = _ask_group(group, hull) if hull is not None else None
    if shared is not None and shared.status == "proved":
        return _prove_all(group, shared)
    middle = len(group.numbers) // 2
    decision = decide(group.task(middle))
    if shared is not None:
        decision.add_cost(shared)
    out = [(group.numbers[middle], decision)]
    others = [i for i in range(len(group.numbers)) if i != middle]
    if decision.status == "proved":
        # The hull decided nothing: continue one by one, as long as they are proved.
        for i in others:
            out.append((group.numbers[i], decide(group.task(i))))
            if out[-1][1].status != "proved":
                break
    return out


def timed_decide(task: Task | GroupTask) -> tuple[list[tuple[int, Decision]], float]:
    """Decide one candidate (of number 0) or some of a group; returns also the CPU seconds."""
    begin = time.process_time()
    decisions = [(0, decide(task))] if isinstance(task, Task) else decide_group(task)
    return decisions, time.process_time() - begin


def _prove_all(group: GroupTask, shared: Decision) -> list[tuple[int, Decision]]:
    """Return one proof for every candidate; its cost counts once."""
    first = Decision("proved", shared.calls, shared.seconds, queries=shared.queries)
    return [(group.numbers[0], first), *((n, Decision("proved", queries=shared.queries)) for n in group.numbers[1:])]


def boxes(rates: dict[int, tuple[int, ...]]) -> list[list[int]]:
    """Split candidates with the same conditions so that the ends of each part's hull are candidates; returns class numbers.

    A hull with a refuted end cannot be proved. Candidates with two rates are split into full rectangles.
    """
    last: dict[tuple[int, ...], set[int]] = {}
    for numbers in rates.values():
        last.setdefault(numbers[:-1], set()).add(numbers[-1])
    parts: dict[frozenset[int], list[int]] = {}
    for number, numbers in rates.items():
        parts.setdefault(frozenset(last[numbers[:-1]]), []).append(number)
    return list(parts.values())


def _decide_choice(group: GroupTask) -> list[tuple[int, Decision]]:
    choice = Choice(group.programs)
    shared = _ask_group(group, choice)
    if shared.status == "proved":
        return _prove_all(group, shared)
    if shared.status == "refuted" and shared.answer is not None:
        index = choice.find_picked(shared.answer.model)
        query = next(query for query in claims(group.task(index)) if query.name == shared.claim)
        encoding = encode(query.setting, query.sender, query.claim.needs, bounds=query.bounds)
        view = confirm(query, encoding, shared.answer)
        refuted = Decision("refuted", shared.calls, shared.seconds, shared.claim, view=view)
        return [(group.numbers[index], refuted)]
    # Too hard together: decide one alone.
    decision = decide(group.task(0))
    decision.add_cost(shared)
    return [(group.numbers[0], decision)]


@dataclass
class _Shared(Decision):
    """A decision about a group, with the solver's answer if it is a counterexample."""

    answer: Answer | None = None


def _ask_group(group: GroupTask, sender: Any) -> _Shared:
    """Decide every claim for a group sender, up to the first that is not proved."""
    out = _Shared("proved")
    for query in claims(group.task(0)):
        needs = query.claim.needs | sender.needs(group.setting)
        encoding = encode(query.setting, sender, needs, bounds=query.bounds)
        text = encoding.smtlib(query.claim.violation(encoding.view))
        answer = solve(text, "z3", group.seconds, group.seed)
        out.add_cost(answer)
        if answer.status == "unsat":
            shared = {"name": query.name, "sha256": query_hash(text), "seconds": round(answer.seconds, 3)}
            out.queries.append(shared | {"shared_by": len(group.numbers)})
            continue
        out.claim, out.reason = query.name, answer.reason
        out.status = "refuted" if answer.status == "sat" else "unknown"
        out.answer = answer if answer.status == "sat" else None
        return out
    return out
