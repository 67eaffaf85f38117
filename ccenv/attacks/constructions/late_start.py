"""Starvation by a late start: one flow has the link to itself, then others come, and the network holds every byte for D.

For senders whose beliefs say nothing about a share of a link, so that several flows have no encoding. The run is played in the
curve engine and must end in a cycle: if all state of flows and network returns after P Rm, the run continues like that for ever,
belief time-outs included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.adversaries import make_adversary
from ccenv.agents.sender import Sender
from ccenv.base.errors import InputError
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.laws import check_trace
from ccenv.network.path import make_path
from ccenv.network.trace import Trace

if TYPE_CHECKING:
    from ccenv.proofs.claims.report import Outcome
    from ccenv.proofs.formulas.setting import Setting

STEPS_PER_RTT = 8
RTT_MS = 40.0
SEGMENTS_PER_RATIO = 8  # C Rm in MSS for each unit of the ratio: the first flow uses more than a quarter of the link
ALONE_RTTS_PER_SEGMENT = 16  # additive senders need a few Rm for each segment
AFTER_RTTS = 400
LONGEST_CYCLE_RTTS = 120
PERIOD_RTTS, REMEMBERED_RTTS = 10, 20  # of beliefs
MOST_RATIO = 1000.0
MOST_FLOWS = 16
SAME = 1e-9  # relative to C Rm and C
BELIEFS = ("C_L", "C_U", "C_L_lambda")


@dataclass(frozen=True)
class LateStart:
    """A run that ends in a cycle."""

    ratio: float  # largest over smallest bytes of a flow in a cycle
    cycle_rtts: int
    shares: tuple[float, ...]  # throughput of each flow over C
    alone_rtts: int  # Rm that the first flow had to itself
    trace: Trace
    legal: bool  # the independent checker accepts the trace of the run


def late_start(sender: Sender, ratio: float, flows: int = 2, model: str = "cbr_delay") -> LateStart | None:
    """Play a late start; return the cycle in which it ends, None if there is none.

    Raises InputError for another ratio or number of flows.

    Args:
        sender: of every flow; D = Rm, an infinite buffer.
        ratio: target, 1 to MOST_RATIO: the link carries SEGMENTS_PER_RATIO segments per Rm for each unit of it.
        flows: 2 to MOST_FLOWS.
        model: ``cbr_delay`` or ``ccac``.
    """
    if not 1 <= ratio <= MOST_RATIO:
        raise InputError(f"late start: the ratio is {ratio:g}; it must be 1 to {MOST_RATIO:g}")
    if not 2 <= flows <= MOST_FLOWS:
        raise InputError(f"late start: {flows} flows; it must be 2 to {MOST_FLOWS}")
    segments = SEGMENTS_PER_RATIO * math.ceil(ratio)
    alone_rtts = ALONE_RTTS_PER_SEGMENT * segments
    link_rate_mbps = segments * 1500 * 8e-3 / RTT_MS
    path = make_path(link_rate_mbps=link_rate_mbps, rtt_ms=RTT_MS, jitter_ms=RTT_MS, n_flows=flows)
    late_flows = [flow.model_copy(update={"start_s": alone_rtts * RTT_MS / 1e3}) for flow in path.flows[1:]]
    path = path.model_copy(update={"flows": (path.flows[0], *late_flows)})
    slowest = make_adversary("slowest")
    engine = CurveEngine(
        [path], model=model, senders=[sender] * flows, adversary=slowest, steps_per_rtt=STEPS_PER_RTT, record=True
    )
    engine.advance((alone_rtts + AFTER_RTTS) * STEPS_PER_RTT)
    trace = engine.trace(0)
    cycle = _find_cycle(trace)
    if cycle is None:
        return None
    received = trace.S[-1] - trace.S[-1 - cycle * STEPS_PER_RTT]
    shares = received / (cycle * trace.header.path.bdp_bytes)
    ratio_found = float(received.max() / max(received.min(), 1e-300))
    return LateStart(ratio_found, cycle, tuple(map(float, shares)), alone_rtts, trace, not check_trace(trace))


def late_start_outcome(name: str, ratio: Fraction, flows: int, folder: FilePath) -> tuple[Outcome, dict[str, Any], Setting]:
    """Return outcome, description and setting of a late start, for ``ccenv verify fairness``.

    The outcome is ``refuted`` with a trace, or ``unknown`` with a reason.
    """
    from ccenv.agents import make_sender
    from ccenv.proofs.claims.report import Outcome, save_counterexample
    from ccenv.proofs.formulas.setting import Setting

    sender = make_sender(name)
    run = late_start(sender, float(ratio), flows)
    setting = Setting("cbr_delay", samples=3 * STEPS_PER_RTT + 1, steps_per_rtt=STEPS_PER_RTT, past_steps=STEPS_PER_RTT)
    about: dict[str, Any] = {
        "ratio": float(ratio),
        "claim": f"in a cycle one flow gets at most {float(ratio):g} times another's bytes",
        "evidence": {"method": "late start, played in the engine"},
        "sender": name,
        "flows": flows,
        "model": setting.model,
        "property": "fairness",
        "setting_name": "sound",
        "buffer": str(setting.buffer),
    }
    if run is None or not run.legal or run.ratio <= ratio:
        reason = (
            "C_L_lambda and q_U mean nothing for a share of a link, so several flows have no encoding; and after a late start "
            "on the slowest network no cycle starves one"
        )
        return Outcome("fairness", "unknown", details={"reason": reason}), about, setting
    about["evidence"] |= {
        "found_ratio": run.ratio,
        "cycle_rtts": run.cycle_rtts,
        "shares": list(run.shares),
        "alone_rtts": run.alone_rtts,
        "legal": run.legal,
    }
    violation = f"one flow gets {run.ratio:.4g} times another's bytes, in a cycle of {run.cycle_rtts} Rm"
    file = save_counterexample(run.trace, folder, f"{sender.name}-{flows}-flows-late-start")
    return Outcome("fairness", "refuted", trace=file, details={"violates": violation}), about, setting


def _find_cycle(trace: Trace) -> int | None:
    """Return the shortest period P, in Rm, of a run's end, or None.

    P is a multiple of the beliefs' period. All values of a row must return after P Rm, for so long that the memory returned too:
    bytes held by the network (D), and belief windows.
    """
    bdp, rate = trace.header.path.bdp_bytes, trace.header.path.link_rate_Bps
    state = [trace.A - trace.L - trace.S, trace.E - trace.S, trace.queue_bytes[:, None]]
    state += [trace.beliefs["q_U"]] if "q_U" in trace.beliefs else []
    rates = [trace.rate_Bps, *(trace.beliefs[name] for name in BELIEFS if name in trace.beliefs)]
    curves = [part[1:] / bdp for part in state] + [np.diff(trace.S, axis=0) / bdp] + [part[1:] / rate for part in rates]
    rows = np.nan_to_num(np.hstack(curves), nan=-1.0, posinf=-2.0)
    for cycle in range(PERIOD_RTTS, LONGEST_CYCLE_RTTS + 1, PERIOD_RTTS):
        steps, span = cycle * STEPS_PER_RTT, (cycle + REMEMBERED_RTTS) * STEPS_PER_RTT
        if np.abs(rows[-span:] - rows[-span - steps : -steps]).max() <= SAME:
            return cycle
    return None
