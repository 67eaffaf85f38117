"""Closed-loop replay of a counterexample in the curve engine: the sender decides each step on the engine's deliveries.

The engine's program sender cannot be used: the solver chooses the beliefs and the last delay at sample 0, of which the engine
accepts C_L alone, and it computes C_U by the exact rule and beliefs over its own past, the two prefix steps included. So the
exact interpreter decides, on beliefs computed from the engine's curves. A floating-point value within REPLAY_TOLERANCE of the
solver's counts as equal to it, because delays depend on "served up to exactly this byte".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ccenv.base.errors import CcenvError
from ccenv.network.trace import Trace
from ccenv.proofs.formulas.encode import BOUNDS, SmtSender
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import Run, advance, mark, observe, update_beliefs

if TYPE_CHECKING:
    from ccenv.engine.curve.engine import CurveEngine


class EngineSender:
    """Decides the steps of a replay in the engine."""

    def __init__(self, view: View, values: dict[str, Any], sender: SmtSender, probe_window: int, bdp_bytes: float) -> None:
        bounds = frozenset(name for name in BOUNDS if getattr(view, name) is not None)
        self.run = Run(view.setting, values, bounds)
        self.view, self.probe_window, self.bdp_bytes = view, probe_window, bdp_bytes
        self.decide_step = sender.decider()
        self.state: dict[str, Any] = {}
        self.lost_before = 0.0
        mark(self.run, 0)

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
        self.run.E.append(self._snap(readings["E"], self.view.E, t))
        self.run.S[t] = self._snap(readings["S"], self.view.S, t)
        self.run.lost.append(self._snap(lost_bytes - self.lost_before, self.view.lost, t))
        self.lost_before = lost_bytes
        mark(self.run, t)
        observe(self.run, t)
        update_beliefs(self.run, t, self.probe_window)

    def _snap(self, value_bytes: float, exact: Sequence[Any], t: int) -> Fraction:
        scale = max(1.0, float(self.view.E[-1] + self.view.lost_until(self.view.last)), float(self.view.G[-1]))
        near = abs(value_bytes / self.bdp_bytes - float(exact[t])) <= REPLAY_TOLERANCE * scale
        return Fraction(exact[t]) if near else Fraction(value_bytes / self.bdp_bytes)


def find_objection(replay: Mapping[str, Any]) -> str | None:
    """Return why the trace of a replay record refutes no claim: no legal past leads to it, or the trace checker rejects it."""
    if replay["reachable"] is False:
        return str(replay["past"])
    return None if replay["legal"] else str(replay["illegal"])


def run_in_engine(trace: Trace, view: View, values: dict[str, Any], sender: SmtSender, probe_window: int) -> dict[str, Any]:
    """Replay a counterexample in the engine with its sender deciding.

    Returns ``engine`` ("reproduced" or "differs"), ``engine_relative_difference`` and ``engine_sender``, who decided.
    """
    decide = EngineSender(view, values, sender, probe_window, trace.header.path.bdp_bytes)
    who = f"{sender.name} decided each step on what the engine delivered"
    try:
        _, difference = engine_replay(trace, decide)
    except CcenvError as error:
        # The engine left the trace, and the sender's rule then refused a choice that the solver had made for it.
        _, difference = engine_replay(trace)
        who = f"the bytes of the trace were offered again, because the sender could not follow the engine: {error}"
    replay: dict[str, Any] = {"engine": "reproduced" if difference <= REPLAY_TOLERANCE else "differs"}
    return replay | {"engine_relative_difference": difference, "engine_sender": who}
