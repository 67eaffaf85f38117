"""One deliberate break per law, for any legal trace that offers a place for it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ccenv.network.path import Path, Workload
from ccenv.network.trace import Trace

Break = Callable[[Trace], Trace]


class NoPlaceError(LookupError):
    """The trace offers no row where this law can be broken first."""


def _step(curve: np.ndarray) -> np.ndarray:
    return np.diff(curve, axis=0, prepend=curve[:1])


def _first(places: np.ndarray) -> tuple[int, ...]:
    """Return the first row (and flow) that qualifies, after row 0."""
    places = places.copy()
    places[0] = False
    found = np.argwhere(places)
    if not len(found):
        raise NoPlaceError
    return tuple(int(i) for i in found[len(found) // 3])


def _crumb(trace: Trace) -> float:
    """Return an amount of bytes that is small and still far above roundoff."""
    return 1e-3 * float(trace.link_rate_Bps.mean()) * trace.header.dt_s


def _raised(curve: np.ndarray, row: int, amount: float, flow: int | None = None) -> np.ndarray:
    out = curve.copy()
    if flow is None:
        out[row:] += amount
    else:
        out[row:, flow] += amount
    return out


def _with_path(trace: Trace, **changes: object) -> Trace:
    path = Path.model_validate(trace.header.path.model_dump() | changes)
    return replace(trace, header=trace.header.model_copy(update={"path": path}))


def _with_flow(trace: Trace, flow: int, **changes: object) -> Trace:
    flows = list(trace.header.path.flows)
    flows[flow] = flows[flow].model_copy(update=changes)
    return _with_path(trace, flows=tuple(flows))


def _dented(trace: Trace, name: str) -> Trace:
    """Let one curve fall below the row before, at one row."""
    curve = getattr(trace, name).copy()
    if curve.ndim == 1:
        row = trace.n_steps // 2
        curve[row] = curve[row - 1] - _crumb(trace)
    else:
        row, flow = trace.n_steps // 2, trace.n_flows - 1
        curve[row, flow] = curve[row - 1, flow] - _crumb(trace)
    return replace(trace, **{name: curve})


def _freed(trace: Trace) -> Trace:
    """Let the flows send whenever and whatever their rates allow, so that only the network's laws can be broken."""
    free = {"workload": Workload(), "start_s": 0.0, "stop_s": np.inf}
    flows = tuple(flow.model_copy(update=free) for flow in trace.header.path.flows)
    return replace(_with_path(trace, flows=flows), cwnd_bytes=np.full_like(trace.cwnd_bytes, np.inf))


def initial_state(t: Trace) -> Trace:
    return replace(t, S=t.S + _crumb(t), A=t.A + _crumb(t))


def sent_monotone(t: Trace) -> Trace:
    return _dented(t, "A")


def lost_monotone(t: Trace) -> Trace:
    return _dented(t, "L")


def free_loss_monotone(t: Trace) -> Trace:
    return _dented(t, "L_free")


def delivered_monotone(t: Trace) -> Trace:
    return _dented(t, "S")


def tokens_monotone(t: Trace) -> Trace:
    return _dented(t, "G")


def link_rate_legal(t: Trace) -> Trace:
    rate = t.link_rate_Bps.copy()
    rate[t.n_steps // 2] = 0.9999 * (t.header.path.link_rate_min_Bps or rate[t.n_steps // 2])
    return replace(t, link_rate_Bps=rate)


def tokens_within_link_rate(t: Trace) -> Trace:
    row = t.n_steps // 2
    return replace(t, G=_raised(t.G, row, float(_step(t.W)[row]) + _crumb(t)))


def sent_within_rate(t: Trace) -> Trace:
    sent = _step(t.A)
    row, flow = _first(sent > _crumb(t))
    rate = t.rate_Bps.copy()
    rate[row, flow] = 0.999 * sent[row, flow] / t.header.dt_s
    return replace(t, rate_Bps=rate)


def sent_within_window(t: Trace) -> Trace:
    row, flow = _first(_step(t.A) > _crumb(t))
    steps = t.grid.rtt_steps[flow]
    delivered = t.S[row - steps, flow] if row >= steps else 0.0
    cwnd = t.cwnd_bytes.copy()
    cwnd[row, flow] = t.A[row, flow] - delivered - t.L[row - 1, flow] - _crumb(t)
    return replace(t, cwnd_bytes=cwnd)


def sent_while_active(t: Trace) -> Trace:
    row, flow = _first(_step(t.A) > _crumb(t))
    return _with_flow(t, flow, start_s=row * t.header.dt_s)


def sent_within_workload(t: Trace) -> Trace:
    _, flow = _first(_step(t.A) > _crumb(t))
    size = 0.5 * float(t.A[-1, flow] - t.L[-1, flow])
    return _with_flow(t, flow, workload=Workload(kind="finite", size_bytes=size))


def lost_within_sent(t: Trace) -> Trace:
    row, flow = t.n_steps // 2, 0
    return replace(t, L=_raised(t.L, row, float((_step(t.A) - _step(t.L))[row, flow]) + _crumb(t), flow))


def free_loss_within_lost(t: Trace) -> Trace:
    row, flow = t.n_steps // 2, 0
    return replace(t, L_free=_raised(t.L_free, row, float((_step(t.L) - _step(t.L_free))[row, flow]) + _crumb(t), flow))


def free_loss_budget(t: Trace) -> Trace:
    row, flow = t.n_steps // 2, 0
    budget = t.header.path.flows[flow].loss_budget
    extra = (budget * float(t.A[row, flow]) - float(t.L_free[row, flow]) + _crumb(t)) / (1 - budget)
    rate = t.rate_Bps.copy()
    rate[row, flow] = np.inf
    return replace(
        _freed(t),
        A=_raised(t.A, row, extra, flow),
        L=_raised(t.L, row, extra, flow),
        L_free=_raised(t.L_free, row, extra, flow),
        rate_Bps=rate,
    )


def waste_only_when_idle(t: Trace) -> Trace:
    queue = t.E.sum(axis=1) - t.G
    (row,) = _first((queue > _crumb(t)) & (_step(t.G) > _crumb(t)))
    return replace(t, G=_raised(t.G, row, -_crumb(t)))


def no_hoarding(t: Trace) -> Trace:
    (row,) = _first(_step(t.W) > 2 * _crumb(t))
    return replace(t, G=_raised(t.G, row, _crumb(t)))


def buffer_bound(t: Trace) -> Trace:
    if t.queue_bytes.max() <= _crumb(t):
        raise NoPlaceError
    return _with_path(t, buffer_bytes=0.5 * float(t.queue_bytes.max()))


def drop_tail_loss(t: Trace) -> Trace:
    spare = _step(t.A) - _step(t.L)
    row, flow = _first((spare > _crumb(t)) & (t.queue_bytes > _crumb(t))[:, None])
    return replace(t, L=_raised(t.L, row, _crumb(t), flow))


def red_loss(t: Trace) -> Trace:
    return drop_tail_loss(t)


def loss_split(t: Trace) -> Trace:
    if t.n_flows < 2:
        raise NoPlaceError
    congestive = _step(t.L - t.L_free)
    spare = _step(t.A) - _step(t.L)
    (row,) = _first((congestive[:, 1] > _crumb(t)) & (spare[:, 0] > _crumb(t)))
    return replace(t, L=_raised(_raised(t.L, row, _crumb(t), 0), row, -_crumb(t), 1))


def delivered_within_entered(t: Trace) -> Trace:
    row, flow = t.n_steps // 2, 0
    return replace(t, S=_raised(t.S, row, float((t.E - t.S)[row, flow]) + _crumb(t), flow))


def delivered_within_tokens(t: Trace) -> Trace:
    extra = (t.G - t.S.sum(axis=1) + _crumb(t))[:, None]
    row, flow = _first((extra < t.E - t.S) & (extra > 0))
    return replace(t, S=_raised(t.S, row, float(extra[row, 0]), flow))


def tokens_used_in_time(t: Trace) -> Trace:
    row = t.n_steps // 3
    held = t.S.copy()
    held[row:] = held[row - 1]
    steps = max(t.grid.jitter_steps)
    if not t.G[t.n_steps - steps] > held[row].sum() + _crumb(t):
        raise NoPlaceError
    return replace(_freed(t), S=held)


def fifo_order(t: Trace) -> Trace:
    if t.n_flows < 2:
        raise NoPlaceError
    served = _step(t.S)
    (row,) = _first((served[:, 1] > _crumb(t)) & (t.E[:, 0] - t.S[:, 0] > _crumb(t)))
    return replace(t, S=_raised(_raised(t.S, row, _crumb(t), 0), row, -_crumb(t), 1))


def delivered_after_departure(t: Trace) -> Trace:
    """Deliver bytes of flow 0 that still wait for the link; flow 1 gets less, so that the tokens suffice."""
    if t.n_flows < 2:
        raise NoPlaceError
    total = np.maximum.accumulate(t.E.sum(axis=1))
    departed = np.interp(np.minimum(t.G, t.E.sum(axis=1)), *_strict(total, t.E[:, 0]))
    extra = departed - t.S[:, 0] + _crumb(t)
    (row,) = _first((t.E[:, 0] - t.S[:, 0] > extra + _crumb(t)) & (_step(t.S)[:, 1] > extra))
    return replace(t, S=_raised(_raised(t.S, row, float(extra[row]), 0), row, -float(extra[row]), 1))


def _strict(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    keep = np.concatenate(([True], np.diff(x) > 0))
    return x[keep], y[keep]


def delivered_within_jitter(t: Trace) -> Trace:
    row, flow = t.n_steps // 3, 0
    held = t.S.copy()
    held[row:, flow] = held[row - 1, flow]
    steps = t.grid.jitter_steps[flow] if t.model.has_jitter else 0
    if not t.S[t.n_steps - steps, flow] > held[row, flow] + _crumb(t):
        raise NoPlaceError
    return replace(_freed(t), S=held)


BREAKS: dict[str, Break] = {
    f.__name__: f
    for f in (
        initial_state,
        sent_monotone,
        lost_monotone,
        free_loss_monotone,
        delivered_monotone,
        tokens_monotone,
        link_rate_legal,
        tokens_within_link_rate,
        sent_within_rate,
        sent_within_window,
        sent_while_active,
        sent_within_workload,
        lost_within_sent,
        free_loss_within_lost,
        free_loss_budget,
        waste_only_when_idle,
        no_hoarding,
        buffer_bound,
        drop_tail_loss,
        red_loss,
        loss_split,
        delivered_within_entered,
        delivered_within_tokens,
        tokens_used_in_time,
        fifo_order,
        delivered_after_departure,
        delivered_within_jitter,
    )
}
"""Name of a law -> a function that returns a trace whose first violation is of that law (or raises NoPlaceError)."""

_ONLY_HOARDING = {"tokens_used_in_time", "fifo_order"}
_NEVER_HOARDING = {"no_hoarding", "delivered_after_departure", "delivered_within_jitter"}


def breaks_for(trace: Trace) -> dict[str, Break]:
    """Return the breaks of the laws that apply to the trace's model and queue discipline."""
    out = dict(BREAKS)
    for name in _NEVER_HOARDING if trace.model.hoards_tokens else _ONLY_HOARDING:
        del out[name]
    del out["drop_tail_loss" if trace.header.path.red is not None else "red_loss"]
    if trace.header.history == "free":
        del out["initial_state"], out["sent_within_workload"]
    return out
