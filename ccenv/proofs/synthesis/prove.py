"""Decide one candidate with the solver: proved, refuted by a trace that the exact replayer confirms, or unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from ccenv.agents.programs import Program
from ccenv.base.errors import CcenvError
from ccenv.proofs.claims import properties
from ccenv.proofs.claims.claims import soundness_query, starts_consistent
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.verifier import Query, confirm, replay_exactly
from ccenv.proofs.formulas.encode import BOUNDS as BOUND_NAMES
from ccenv.proofs.formulas.encode import Encoding, Needs
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View, flow_prefix, require_variables
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.solver.solvers import Answer, query_hash, solve
from ccenv.proofs.solver.terms import Formula, all_of, any_of, implies, negate
from ccenv.proofs.synthesis.query.flows import NEVER_REPEATS, flow_queries
from ccenv.proofs.synthesis.query.objectives import Objectives
from ccenv.proofs.synthesis.query.query import Query as SynthesisQuery

BOUNDS = frozenset({"C_L", "C_U"})
Status = Literal["proved", "refuted", "unknown"]


@dataclass(frozen=True)
class Task:
    """The question about one candidate, for ``flows`` flows of it on a link."""

    setting: Setting
    objectives: Objectives
    program: Program
    seconds: float  # limit per solver call
    seed: int = 0
    full: bool = False  # use moving beliefs throughout instead of the static-belief reduction
    any_start: bool = False  # beliefs may be wrong at the start, which adds the other half of (5.3)
    flows: int = 1


@dataclass
class Decision:
    """The answer."""

    status: Status
    calls: int = 0
    seconds: float = 0.0  # wall time in the solver
    claim: str = ""  # the query that refuted it or stayed open
    reason: str = ""  # why it is unknown
    queries: list[dict[str, Any]] = field(default_factory=list)  # per proof: name and SHA-256 of the SMT-LIB text
    view: View | None = None  # the replayed counterexample in exact numbers

    def add_cost(self, answer: Answer | Decision) -> None:
        """Count the solver time of an answer, or of another decision."""
        self.calls += answer.calls if isinstance(answer, Decision) else 1
        self.seconds += answer.seconds

    def to_dict(self, number: int) -> dict[str, Any]:
        """Return the decision on a class for the journal, without seconds and counterexample."""
        data = {"class": number, "status": self.status, "calls": self.calls, "claim": self.claim}
        return data | {"reason": self.reason, "queries": self.queries}


def claims(task: Task) -> list[Query]:
    """Return the queries of a candidate, all of which a solution passes; cheap ones first."""
    if task.flows > 1:
        return flow_queries(task.program, task.setting, task.objectives, task.flows)
    sender = ProgramSmtSender(task.program)
    needs = Needs(BOUNDS) | sender.needs(task.setting)
    window = needs.probe_window
    objectives = task.objectives

    def starts_right(v: View) -> Formula:
        # A buffer of the solver's choice holds at least a segment.
        room = v.beta > v.alpha if v.beta is not None and v.setting.buffer == "arbitrary" else True
        return all_of([starts_consistent(v, window), room])

    def query(
        name: str, text: str, holds: Any, bounds: Literal["full", "constant"], reads: Needs = needs, start: Any = starts_right
    ) -> Query:
        claim = Property(name, text, holds, reads, start)
        setting = task.setting.without_timeout() if bounds == "constant" else task.setting
        return Query(name, setting, sender, claim, bounds)

    def still(name: str, holds: Any) -> Query:
        return query(name, f"where no bound moves, {name} is met or progress is made", holds, "constant")

    def starts_wrong(v: View) -> Formula:
        return negate(properties.consistent(v, 0))

    if task.full:
        # (5.3) conjunct by conjunct, and with time-outs case by case, which is faster.
        steady = dict(objectives.parts())
        out = []
        for name, holds in _parts_from_right(objectives):
            if task.setting.beliefs.timeout is None or name not in steady:
                out.append(query(name, f"right beliefs: {name}", holds, "full"))
                continue
            out.append(still(name, steady[name]))
            for case, premise in TIMEOUT_CASES.items():
                start = _join_premises(starts_right, premise)
                out.append(query(f"{name} where {case}", f"right beliefs, {case}: {name}", holds, "full", start=start))
        if task.any_start:
            repaired = _parts_from_wrong(objectives)
            out += [query(f"repair or {name}", "wrong beliefs", holds, "full", start=starts_wrong) for name, holds in repaired]
        return out
    if task.any_start or task.setting.beliefs.timeout is not None:
        raise CcenvError("beliefs that time out or start wrong do not stay constant: the query needs moving beliefs")
    out = [still(name, holds) for name, holds in objectives.parts()]
    if needs.bounds - BOUNDS:
        text = "consistent C_L_lambda and q_U stay consistent"
        out.append(query("consistent", text, ends_right, "full", sender.needs(task.setting)))
    if objectives.transient != "none" and task.setting.has_loss:
        # Bounds that the program does not read change nothing here, whether or not they move.
        text = "no large loss while probing"
        out.append(query("probing", text, objectives.probing, "full", sender.needs(task.setting)))
    return out


def ends_right(v: View) -> Formula:
    """Return that all bounds of a trace, the buffer line (6.3) included, are true at its end."""
    return all_of([properties.consistent(v, v.last), properties.buffer_line(v, v.last, 1)])


def _join_premises(first: Callable[[View], Formula], second: Callable[[View], Formula]) -> Callable[[View], Formula]:
    return lambda v: all_of([first(v), second(v)])


def _only_lower_moves(v: View) -> Formula:
    """Return that C_L rose, C_U did not move, and C_U may time out: C_L rose little, and the bounds are tight."""
    rule, lower, upper = v.setting.beliefs.timeout, require_variables(v.C_L, "C_L"), require_variables(v.C_U, "C_U")
    kept_lower, kept_upper = v.extra["C_L_kept"][0], v.extra["C_U_kept"][0]
    moved, tight = kept_lower > lower[0], kept_upper <= rule.close_factor * kept_lower  # type: ignore[union-attr]
    little = kept_lower <= rule.moved_factor * lower[0]  # type: ignore[union-attr]
    return all_of([moved, little, tight, *(x == upper[0] for x in [*upper[1:-1], kept_upper])])


def _only_upper_moves(v: View) -> Formula:
    """Return that C_U fell, C_L did not move, and C_L may time out: C_U fell little, and the bounds are tight."""
    rule, lower, upper = v.setting.beliefs.timeout, require_variables(v.C_L, "C_L"), require_variables(v.C_U, "C_U")
    kept_lower, kept_upper = v.extra["C_L_kept"][0], v.extra["C_U_kept"][0]
    moved, tight = kept_upper < upper[0], kept_upper <= rule.close_factor * kept_lower  # type: ignore[union-attr]
    little = kept_upper * rule.moved_factor >= upper[0]  # type: ignore[union-attr]
    return all_of([moved, little, tight, *(x == lower[0] for x in [*lower[1:-1], kept_lower])])


TIMEOUT_CASES: dict[str, Callable[[View], Formula]] = {"only C_L moves": _only_lower_moves, "only C_U moves": _only_upper_moves}
"""Traces with right beliefs that do not shrink although a bound moved. Where both move, neither times out, and they shrink; where
one moves, they shrink unless the other one times out. Where none moves, time-outs make no difference."""

Part = tuple[str, Callable[[View], Formula]]


def _parts_from_right(objectives: Objectives) -> list[Part]:
    """Return the obligations for beliefs that start right: they end right, and they shrink or objectives are met."""

    def unless_shrinking(holds: Callable[[View], Formula]) -> Callable[[View], Formula]:
        return lambda v: any_of([properties.beliefs_shrink(v), holds(v)])

    parts: list[Part] = [("right beliefs at the end", ends_right)]
    parts += [(name, unless_shrinking(holds)) for name, holds in objectives.parts()]
    if objectives.transient != "none":
        parts.append(("no large loss while probing", objectives.probing))
    return parts


def _parts_from_wrong(objectives: Objectives) -> list[Part]:
    """Return the obligations for beliefs that start wrong: they become right, or move towards it, or objectives are met."""

    def unless_repaired(holds: Callable[[View], Formula]) -> Callable[[View], Formula]:
        return lambda v: any_of([properties.consistent(v, v.last), _towards_truth(v), holds(v)])

    return [(name, unless_repaired(holds)) for name, holds in objectives.parts()]


def broken_parts(objectives: Objectives, view: View) -> list[str]:
    """Return the parts of invariant (5.3) that an exact trace violates, for its right or wrong initial beliefs."""
    started = properties.consistent(view, 0)
    parts = _parts_from_right(objectives) if started else _parts_from_wrong(objectives)
    return [name if started else f"repair or {name}" for name, holds in parts if not holds(view)]


def _towards_truth(v: View) -> Formula:
    """Return that beliefs move towards the truth (F.2): bounds fall where C_L is above C, and rise where C_U is below."""
    lower, upper = require_variables(v.C_L, "C_L"), require_variables(v.C_U, "C_U")
    last = v.last
    falls = all_of([any_of([lower[last] < lower[0], upper[last] < upper[0]]), lower[last] <= lower[0], upper[last] <= upper[0]])
    rises = all_of([any_of([lower[last] > lower[0], upper[last] > upper[0]]), lower[last] >= lower[0], upper[last] >= upper[0]])
    return all_of([implies(lower[0] > 1, falls), implies(upper[0] < 1, rises)])


def decide(task: Task) -> Decision:
    """Decide a candidate. Raises ReplayError if the exact replayer does not reproduce a counterexample (a bug, no verdict)."""
    out = Decision("proved")
    for query in claims(task):
        encoding = query.encoding()
        text = encoding.smtlib(query.claim.violation(encoding.view))
        answer = solve(text, "z3", task.seconds, task.seed)
        out.add_cost(answer)
        if answer.status == "unsat":
            out.queries.append({"name": query.name, "sha256": query_hash(text), "seconds": round(answer.seconds, 3)})
            if task.flows > 1 and len(out.queries) == 1 and not _check_repeats(query, encoding, task, out):
                return out
            continue
        out.claim = query.name
        if answer.status == "unknown":
            out.status, out.reason = "unknown", answer.reason
            return out
        out.status, out.view = "refuted", confirm(query, encoding, answer)
        return out
    return out


def _check_repeats(query: Query, encoding: Encoding, task: Task, out: Decision) -> bool:
    """Check that some trace repeats; without one a program would pass vacuously."""
    twin = solve(encoding.smtlib(query.claim.premise(encoding.view)), "z3", task.seconds, task.seed)
    out.add_cost(twin)
    if twin.status == "sat":
        replay_exactly(query, encoding, twin)
        return True
    out.claim, out.reason = NEVER_REPEATS, twin.reason
    out.status = "refuted" if twin.status == "unsat" else "unknown"
    return False


def recheck(task: Task, solver: str) -> dict[str, Any]:
    """Decide all queries of a proved candidate with a second solver: ``confirmed`` only if all are unsatisfiable there, too."""
    seconds, statuses = 0.0, []
    for query in claims(task):
        encoding = query.encoding()
        answer = solve(encoding.smtlib(query.claim.violation(encoding.view)), solver, task.seconds, task.seed)
        seconds += answer.seconds
        statuses.append(answer.status)
    return {"solver": solver, "confirmed": all(status == "unsat" for status in statuses), "seconds": round(seconds, 3)}


def beliefs_stay_consistent(setting: Setting, seconds: float, seed: int) -> Decision:
    """Prove for any sender that every window bounds C correctly (C_L and C_U), and that such traces exist.

    The static-belief reduction rests on it: consistent bounds stay consistent, so a violation of (5.3) has constant beliefs.
    """
    query = soundness_query(setting)
    encoding = query.encoding()
    answer = solve(encoding.smtlib(query.claim.violation(encoding.view)), "z3", seconds, seed)
    twin = solve(encoding.smtlib(), "z3", seconds, seed)
    out = Decision("proved", 2, answer.seconds + twin.seconds, query.name)
    if answer.status == "sat":
        out.status, out.view = "refuted", confirm(query, encoding, answer)
    elif answer.status == "unknown" or twin.status != "sat":
        out.status = "unknown"
        out.reason = answer.reason or twin.reason or "the network without the property has no trace"
    return out


def require_consistent_beliefs(query: SynthesisQuery) -> Decision:
    """Return the proof of :func:`beliefs_stay_consistent` on a query's network. Raises CcenvError if there is none."""
    base = beliefs_stay_consistent(query.setting(), query.limits.call_s, query.seed)
    if base.status != "proved":
        raise CcenvError(f"query {query.name!r}: beliefs may become wrong on this network ({base.status}) {base.reason}")
    return base


def collect_values(view: View) -> dict[str, Fraction | bool]:
    """Return a view as named values for ``ccenv.proofs.replay.exact.replay``. Raises CcenvError for a view in terms."""
    out: dict[str, Fraction | bool] = {"alpha": Fraction(view.alpha)}
    if view.beta is not None:
        out["beta"] = Fraction(view.beta)
    out |= {f"G_{t}": Fraction(x) for t, x in enumerate(view.G)}
    out |= {f"E_before_{k}": Fraction(x) for k, x in enumerate(view.E_before)}
    out |= {f"late_{t}_{m}": flag for t, flags in enumerate(view.late) for m, flag in flags.items()}
    out |= {f"first_late_{t}_{m}": flag for t, flags in enumerate(view.first_late) for m, flag in flags.items()}
    out |= {"lost_at_0": view.lost_at_0, "loss_seen_at_0": view.loss_seen[0]}
    for index, flow in enumerate(view.each):
        prefix = flow_prefix(index) if view.flows else ""
        # The network chooses which flow a full buffer hits: several flows need all of E.
        out |= {f"{prefix}E_{t}": Fraction(x) for t, x in enumerate(flow.E) if view.flows or t == 0}
        out |= {f"{prefix}S_{t}": Fraction(x) for t, x in enumerate(flow.S)}
        out[f"{prefix}rate_0"] = Fraction(flow.rate[0])
        for name in BOUND_NAMES:
            series = getattr(flow, name) or []
            out |= {f"{prefix}{name}_{t}": Fraction(x) for t, x in enumerate(series) if view.flows or t == 0}
    for name, value in out.items():
        if not isinstance(value, (bool, Fraction)):
            raise CcenvError(f"{name} is {value!r}; a trace in exact numbers is needed")
    return out
