"""A counterexample's sender at work in the curve engine: it decides each step on what the engine delivered, not from a list.

The engine's own program sender cannot be used: at sample 0 the beliefs and the delay seen last are the solver's choice, of which
the engine can be given C_L alone, and it computes C_U by the exact rule and beliefs over its own past, the two prefix steps
included. So the exact interpreter decides, on beliefs that it computes from the engine's curves. Floating-point curves are read
to REPLAY_TOLERANCE: a value that close to the solver's counts as that one, because "served up to exactly here" decides delays.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ccenv.base.errors import CcenvError
from ccenv.network.trace import Trace
from ccenv.proofs.formulas.encode import BOUNDS, SmtSender
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import Run, advance, observe, update_beliefs

if TYPE_CHECKING:
    from ccenv.engine.curve.engine import CurveEngine


class EngineSender:
    """Decides the steps of a replay in the engine."""

    def __init__(self, view: View, values: dict[str, Any], sender: SmtSender, probe_window: int, bdp_bytes: float) -> None:
        """Start at sample 0 of a replayed counterexample."""
        bounds = frozenset(name for name in BOUNDS if getattr(view, name) is not None)
        self.run = Run(view.setting, values, bounds)
        self.view, self.probe_window, self.bdp_bytes = view, probe_window, bdp_bytes
        self.decide_step = sender.decider()
        self.state: dict[str, Any] = {}
        self.lost_before = 0.0

    def __call__(self, engine: CurveEngine, t: int, origin_bytes: float) -> float:
        """Read the engine at sample t - 1, and return the bytes of step t."""
        if t == 1:
            self.lost_before = float(engine.flow("L")[0, 0])
        else:
            self._read(engine, t - 1, origin_bytes)
        self.state = advance(self.run, t, self.decide_step, self.state)
        return float(self.run.sent[t]) * self.bdp_bytes

    def _read(self, engine: CurveEngine, t: int, origin_bytes: float) -> None:
        lost_bytes = float(engine.flow("L")[0, 0])
        readings = {name: float(engine.flow(name)[0, 0]) - origin_bytes for name in ("E", "S")}
        self.run.E.append(self._rounded(readings["E"], self.view.E, t))
        self.run.S[t] = self._rounded(readings["S"], self.view.S, t)
        self.run.lost.append(self._rounded(lost_bytes - self.lost_before, self.view.lost, t))
        self.lost_before = lost_bytes
        observe(self.run, t)
        update_beliefs(self.run, t, self.probe_window)

    def _rounded(self, value_bytes: float, exact: Sequence[Any], t: int) -> Fraction:
        scale = max(1.0, float(self.view.E[-1] + self.view.lost_until(self.view.last)), float(self.view.G[-1]))
        near = abs(value_bytes / self.bdp_bytes - float(exact[t])) <= REPLAY_TOLERANCE * scale
        return Fraction(exact[t]) if near else Fraction(value_bytes / self.bdp_bytes)


def run_in_engine(trace: Trace, view: View, values: dict[str, Any], sender: SmtSender, probe_window: int) -> dict[str, Any]:
    """Replay a counterexample in the engine with its sender deciding.

    Returns:
        dict: ``engine``, "reproduced" or "differs"; ``engine_relative_difference``; ``engine_sender``: who decided.
    """
    decide = EngineSender(view, values, sender, probe_window, trace.header.path.bdp_bytes)
    who = f"{sender.name} decided each step on what the engine delivered"
    try:
        _, difference = engine_replay(trace, decide)
    except CcenvError as error:
        # The engine parted from the trace, and the sender's rule then refuses a choice that the solver had made for it.
        _, difference = engine_replay(trace)
        who = f"the bytes of the trace were offered again, because the sender could not follow the engine: {error}"
    replay: dict[str, Any] = {"engine": "reproduced" if difference <= REPLAY_TOLERANCE else "differs"}
    return replay | {"engine_relative_difference": difference, "engine_sender": who}
