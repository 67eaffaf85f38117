"""Does a legal past lead to a counterexample? A longer past is asked for, from a path on which nothing was sent before.

A query knows a few steps before its trace, and that past begins anywhere. Here the network obeys its laws, and the sender the
query's largest rate, from the first byte on. What is looked for is such a past of the counterexample at hand, and then any
counterexample with one. Beliefs at sample 0 stay the solver's choice: the past is the network's, not a run of the sender's rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ccenv.base.errors import CcenvError
from ccenv.proofs.claims.verifier import Query, Result, complete_values, confirm
from ccenv.proofs.formulas.encode import Encoding
from ccenv.proofs.formulas.setting import LONGEST_PAST, LONGEST_TRACE, Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.solver.terms import Formula, same_truth
from ccenv.proofs.solver.solvers import solve, to_smtlib

REACH_STEPS = 12
"""Steps of the past that is asked for first: it takes four steps at 2*C to fill the two C(Rm+D) that most lemmas start with."""

LIMIT_S = 20.0
"""Per solver call."""


@dataclass(frozen=True)
class Reach:
    """Whether a legal past leads to a counterexample.

    Attributes:
        reachable: ``true``: ``result`` has one; ``false``: proved that no counterexample of the query has one of ``steps`` steps
            or fewer; ``unknown``: neither.
        text: the same in words.
        steps: longest past that was asked for.
        query: the query with the longer past, where there is one.
        result: the counterexample with its past.
    """

    reachable: Literal[True, False, "unknown"]
    text: str
    steps: int
    query: Query
    result: Result = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of a report."""
        return {"reachable": self.reachable, "past": self.text, "past_steps": self.steps}


def find_past(query: Query, result: Result) -> Reach:
    """Look for a legal past of a refuted query's counterexample.

    Raises:
        ReplayError: if the exact replayer does not reproduce what the solver found (a bug, not an answer).
    """
    if result.view is None:
        raise CcenvError(f"{query.name}: no counterexample whose past could be looked for")
    steps = _steps_for(result.view)
    longer = replace(query, setting=with_past(query.setting, steps))
    encoding = longer.encoding()
    violation = longer.claim.violation(encoding.view)
    # The published delay rule allows traces that no past explains: only the one at hand can be asked about.
    asked = [[violation, *_same_trace(encoding, result.values)]] + [[violation]] * (query.setting.delay_rule == "sound")
    answer = None
    for extra in asked:
        answer = solve(to_smtlib(encoding.formulas() + [part for part in extra if part is not True]), "z3", LIMIT_S)
        if answer.status == "sat":
            found = replace(result, view=confirm(longer, encoding, answer), values=complete_values(encoding, answer))
            text = f"a legal past of {steps} Rm from an empty path is in the trace"
            return Reach(True, text, steps, longer, found)
    if answer is not None and answer.status == "unsat" and len(asked) == 2:
        text = f"no counterexample has a legal past of {steps} Rm or less from an empty path"
        return Reach(False, text, steps, query, result)
    reason = "the published delay rule has no past" if len(asked) == 1 else answer.reason if answer is not None else ""
    return Reach("unknown", f"no legal past of {steps} Rm was found: {reason}", steps, query, result)


def with_past(setting: Setting, steps: int) -> Setting:
    """Return a setting whose past begins so many steps before the trace, on an empty path."""
    return replace(setting, delay_rule="sound", past_steps=steps, past_start="empty")


def _steps_for(view: View) -> int:
    """Return a past long enough to send, at twice the link's rate, what waits at sample 0."""
    return min(LONGEST_PAST, LONGEST_TRACE, REACH_STEPS + int(view.inflight(0)))


def _same_trace(encoding: Encoding, values: dict[str, Any]) -> Iterator[Formula]:
    """Yield that all variables of the trace, those of the past aside, have given values."""
    import z3

    for name, term in encoding.variables.all.items():
        if "_before_" in name or name not in values:
            continue
        value = values[name]
        yield same_truth(term, bool(value)) if z3.is_bool(term) else term == z3.RealVal(str(value))
