"""What a belief program was asked in a counterexample, and what it, or the chooser inside its intervals, answered."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ccenv.base.errors import CcenvError
from ccenv.agents.programs import Program
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.encode import BOUNDS
from ccenv.proofs.replay.exact import replay
from ccenv.proofs.replay.run import Decision, Run, number
from ccenv.proofs.senders.program import program_decider, program_inputs


def choices(query: Query, program: Program, values: Mapping[str, Any]) -> list[tuple[dict[str, Any], Fraction]]:
    """Replay a counterexample exactly; return inputs and rate of every decision in it.

    Raises:
        ReplayError: for values that are no trace of the query's network and sender.
        CcenvError: if the trace does not violate the query's property.
    """
    found: list[tuple[dict[str, Any], Fraction]] = []
    decide = program_decider(program)

    def step(run: Run, t: int, state: dict[str, Any]) -> Decision:
        decision = decide(run, t, state)
        if state.get("held", int(number(run.values, "held_0"))) == 0:
            found.append((program_inputs(run, t - 1), decision.rate))
        return decision

    encoded = query.encoding().view
    bounds = frozenset(name for name in BOUNDS if getattr(encoded, name) is not None)
    needs = query.sender.needs(query.setting) | query.claim.needs
    view = replay(query.setting, values, bounds, needs.probe_window, step)
    if query.claim.violation(view) is not True:
        raise CcenvError(f"{query.name}: a stored trace does not violate the property")
    return found
