"""Two-flow counterexamples in exact numbers, independent of the encoder: laws and senders replayed, and traces for the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from ccenv.network.path import DEFAULT_MSS_BYTES, Path
from ccenv.network.trace import Trace, TraceHeader
from ccenv.smt.network.export import RTT_S
from ccenv.smt.network.setting import LARGEST_ALPHA, Setting
from ccenv.smt.replay.exact import ReplayError, number

N_FLOWS = 2
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
    """What an exact sender reads in step t of a flow: its own state and curves at sample t - 1, and the delay then.

    Attributes:
        control: cwnd or rate of the step before.
        memory: what it remembers besides. AIMD: what must be delivered before the next halving; belief programs: C_L at sample 0.
        E: bytes enqueued by t - 1.
        S: bytes delivered by t - 1.
        served: bytes delivered by 0, 1, ..., t - 1.
        lost: bytes lost in the step before; 0 for the first one.
        delay: delay of the newest byte at t - 1, in whole steps.
        alpha: MSS.
        mu_minus: parameter of Algorithm 1.
    """

    control: Fraction
    memory: Fraction
    E: Fraction
    S: Fraction
    served: list[Fraction]
    lost: Fraction
    delay: int
    alpha: Fraction
    mu_minus: Fraction


ExactControl = Callable[[Seen], tuple[Fraction, Fraction, Fraction]]
"""Seen -> (control, memory, bytes sent) of the step."""


def exact_aimd(seen: Seen) -> tuple[Fraction, Fraction, Fraction]:
    """AIMD: plus one MSS, or halved once per round with loss."""
    if seen.lost > 0 and seen.memory <= seen.S:
        window, memory = seen.control / 2, seen.E
    else:
        window, memory = seen.control + seen.alpha, seen.memory
    return window, memory, max(Fraction(0), window - (seen.E - seen.S))


def exact_rate_delay(s: Fraction, rmax_steps: int, factor: Fraction) -> ExactControl:
    """Return Algorithm 1 of [Starvation] s.6.3."""

    def control(seen: Seen) -> tuple[Fraction, Fraction, Fraction]:
        target = seen.mu_minus * s ** (rmax_steps - seen.delay)
        rate = seen.control + seen.alpha if seen.control < target else factor * seen.control
        return rate, Fraction(0), rate

    return control


class _Pair:
    """The numbers of a model."""

    def __init__(self, setting: Setting, v: Values) -> None:
        n = self.n = setting.samples
        self.E = [[number(v, f"E_{i}_{t}") for t in range(n)] for i in range(N_FLOWS)]
        self.S = [[number(v, f"S_{i}_{t}") for t in range(n)] for i in range(N_FLOWS)]
        self.sent = [[number(v, f"sent_{i}_{t}") if t else Fraction(0) for t in range(n)] for i in range(N_FLOWS)]
        self.control = [[number(v, f"control_{i}_{t}") for t in range(n)] for i in range(N_FLOWS)]
        self.G = [number(v, f"G_{t}") for t in range(n)]
        self.all_E = [sum(x, start=Fraction(0)) for x in zip(*self.E, strict=True)]
        self.all_S = [sum(x, start=Fraction(0)) for x in zip(*self.S, strict=True)]
        self.room = number(v, "beta") if setting.has_loss else None

    def lost(self, i: int, t: int) -> Fraction:
        return self.E[i][t - 1] + self.sent[i][t] - self.E[i][t] if t else Fraction(0)


def check_two(setting: Setting, v: Values, control: ExactControl) -> Values:
    """Check a two-flow model in plain rational arithmetic: conservation, drop-tail, tokens, jitter, FIFO, and both senders.

    Returns:
        Mapping: the values, unchanged.

    Raises:
        ReplayError: naming the law and the sample.
    """
    pair = _Pair(setting, v)
    _check_start(pair, v, setting)
    _check_senders(pair, v, control)
    d = setting.jitter_steps
    for t in range(1, pair.n):
        offered = pair.all_E[t - 1] + sum(pair.sent[i][t] for i in range(N_FLOWS))
        checks = {
            "no flow loses more than it sent": all(0 <= pair.lost(i, t) <= pair.sent[i][t] for i in range(N_FLOWS)),
            "drop-tail": pair.all_E[t] == (offered if pair.room is None else min(offered, pair.G[t] + pair.room)),
            "token rate": 0 <= pair.G[t] - pair.G[t - 1] <= 1,
            "no waste while bytes queue": pair.G[t] == pair.G[t - 1] + 1 or pair.all_E[t] <= pair.G[t],
            "service": pair.G[t - d] <= pair.all_S[t] <= min(pair.G[t], pair.all_E[t]),
            "service per flow": all(pair.S[i][t - 1] <= pair.S[i][t] <= pair.E[i][t] for i in range(N_FLOWS)),
            "FIFO": all(_in_order(pair, t, x) for x in range(t + 1)),
        }
        broken = [name for name, fine in checks.items() if not fine]
        if broken:
            raise ReplayError(f"two-flow replay: the solver's trace breaks {broken[0]!r} at sample {t}")
    return v


def _check_start(pair: _Pair, v: Values, setting: Setting) -> None:
    alpha, behind = number(v, "alpha"), [pair.all_E[0], *_past(v)]
    late = [m for m in range(1, len(behind)) if v.get(f"late_0_{m}")]
    checks = {
        "segment size": 0 < alpha < LARGEST_ALPHA,
        "S(0) = 0": all(pair.S[i][0] == 0 for i in range(N_FLOWS)),
        "S <= A - L": all(pair.E[i][0] >= 0 for i in range(N_FLOWS)),
        "service": pair.G[0] - setting.jitter_steps <= 0 <= pair.G[0],
        "drop-tail": pair.room is None or pair.all_E[0] <= pair.G[0] + pair.room,
        "sending before the trace": all(now >= before for now, before in pairwise(behind)),
        "delay": all(behind[m] >= 0 for m in late),
    }
    broken = [name for name, fine in checks.items() if not fine]
    if broken:
        raise ReplayError(f"two-flow replay: the solver's trace breaks {broken[0]!r} at sample 0")


def _past(v: Values) -> list[Fraction]:
    return [number(v, f"E_before_{k}") for k in range(sum(name.startswith("E_before_") for name in v))]


def _in_order(pair: _Pair, t: int, x: int) -> bool:
    if pair.all_S[t] > pair.all_E[x]:
        return all(pair.S[i][t] >= pair.E[i][x] for i in range(N_FLOWS))
    return all(pair.S[i][t] <= pair.E[i][x] for i in range(N_FLOWS))


def _check_senders(pair: _Pair, v: Values, control: ExactControl) -> None:
    delays = _delays(pair, v)
    alpha, mu_minus = number(v, "alpha"), number(v, "mu_minus")
    for i in range(N_FLOWS):
        now, memory = pair.control[i][0], number(v, f"memory_{i}_0")
        for t in range(1, pair.n):
            at = t - 1
            served = pair.S[i][:t]
            seen = Seen(now, memory, pair.E[i][at], pair.S[i][at], served, pair.lost(i, at), delays[at], alpha, mu_minus)
            now, memory, sent = control(seen)
            if (now, sent) != (pair.control[i][t], pair.sent[i][t]):
                raise ReplayError(
                    f"two-flow replay: flow {i} decides {now} and sends {sent} at sample {t}; the solver said "
                    f"{pair.control[i][t]} and {pair.sent[i][t]}"
                )


def _delays(pair: _Pair, v: Values) -> list[int]:
    """Return the delay of the newest byte per sample: what the solver chose at sample 0, computed from the curves after it."""
    past = _past(v)
    delays = [max([m for m in range(1, len(past) + 1) if v.get(f"late_0_{m}")], default=0)]
    for t in range(1, pair.n):
        served = pair.all_S[t] > pair.all_S[t - 1]
        enqueued = {m: pair.all_E[t - m] if m <= t else past[m - t - 1] for m in range(1, len(past) + 1)}
        late = [m for m, before in enqueued.items() if pair.all_S[t] <= before]
        delays.append(max(late, default=0) if served else delays[-1])
        for m in enqueued:
            if bool(v.get(f"late_{t}_{m}")) != (delays[t] >= m):
                raise ReplayError(f"two-flow replay: the delay at sample {t} is {delays[t]} steps; the solver said otherwise")
    return delays


def as_two_flow_trace(setting: Setting, v: Values, sender: str, notes: str = "") -> Trace:
    """Turn a two-flow model into a trace in seconds and bytes, as :func:`ccenv.smt.network.export.as_trace` does for one flow.

    Which flow a full buffer hits is the network's choice in the model, so losses are written as non-congestive ones, with the
    smallest loss budget that allows them.
    """
    pair = _Pair(setting, v)
    bdp_bytes = DEFAULT_MSS_BYTES / float(number(v, "alpha"))
    link_rate_Bps = bdp_bytes / RTT_S

    def curve(rows: list[list[Fraction]]) -> np.ndarray:
        return np.array([[float(x) for x in row] for row in rows]).T * bdp_bytes

    lost = np.cumsum(curve([[pair.lost(i, t) for t in range(pair.n)] for i in range(N_FLOWS)]), axis=0)
    sent = curve(pair.E) + lost
    share = np.divide(lost, sent, out=np.zeros_like(lost), where=lost > 0).max(axis=0)
    delays = {"rtt_s": RTT_S, "jitter_s": RTT_S * setting.jitter_steps}
    flows = [delays | {"loss_budget": min(float(part) * (1 + 1e-12), 1 - 1e-12)} for part in share]
    buffer_bytes = math.inf if pair.room is None else float(pair.room) * bdp_bytes
    path = Path.from_dict({"link_rate_Bps": link_rate_Bps, "buffer_bytes": buffer_bytes, "flows": flows})
    header = TraceHeader(
        path=path, model=setting.model, timing="smt", steps_per_rtt=1, dt_s=RTT_S, history="free",
        senders=(sender,) * N_FLOWS, adversary="solver", notes=notes,
    )  # fmt: skip
    return Trace(
        header=header,
        A=sent,
        L=lost,
        L_free=lost,
        S=curve(pair.S),
        G=np.array([float(x) for x in pair.G]) * bdp_bytes,
        link_rate_Bps=np.full(pair.n, link_rate_Bps),
        rate_Bps=curve(pair.sent) / RTT_S,
        cwnd_bytes=curve(pair.control) if sender == "aimd" else np.full((pair.n, N_FLOWS), np.inf),
    )
