"""Equilibria of Reno and CUBIC over several links with queues, such as parking lots."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ccenv.base.errors import EngineError, InputError
from ccenv.engine.fluid.scenario import Flow, Link, Scenario

_SWEEPS = 2000
_BISECTIONS = 200
_TOLERANCE = 1e-10  # of a link's rate
_FULL_LOSS = 1.0 - 1e-12


@dataclass(frozen=True)
class NetworkEquilibrium:
    """A rest point of loss-based flows over several links.

    Attributes:
        windows_packets: (N,) window of each flow.
        rate_Bps: (N,) sending rate of each flow.
        loss: (N,) share of each flow's bytes that is lost on its path.
        rtt_s: (N,) RTT of each flow, queueing included.
        link_loss: (L,) loss of each link; 0 at a link that is no bottleneck.
        queue_bytes: (L,) queue of each link.
        utilisation: (L,) share of each link's rate that is used.
        residual: largest imbalance of a saturated link, relative to its rate.
    """

    windows_packets: tuple[float, ...]
    rate_Bps: tuple[float, ...]
    loss: tuple[float, ...]
    rtt_s: tuple[float, ...]
    link_loss: tuple[float, ...]
    queue_bytes: tuple[float, ...]
    utilisation: tuple[float, ...]
    residual: float


def reno_window(loss: float, decrease: float = 0.5) -> float:
    """Return Reno's window in packets at rest under a loss probability: sqrt((1 - p)/(decrease p)), at least 1.

    Reference: [BBR-fluid] eq. 52 with the left side 0.
    """
    return max(math.sqrt((1.0 - loss) / (decrease * loss)), 1.0) if loss > 0.0 else math.inf


def cubic_window(loss: float, rtt_s: float, c: float, b: float) -> float:
    """Return CUBIC's window in packets at rest: (rtt/p)^(3/4) (c/b)^(1/4), at least 1.

    Reference: [BBR-fluid] eqs. 53, 54 with the left sides 0: the window is w_max, and the time since the last loss is both
    1/(x p) and the plateau's (w b/c)^(1/3).
    """
    return max((rtt_s / loss) ** 0.75 * (c / b) ** 0.25, 1.0) if loss > 0.0 else math.inf


def network_equilibrium(scenario: Scenario) -> NetworkEquilibrium:
    """Return the equilibrium of a scenario's Reno and CUBIC flows over all its links, with the set's printed equations.

    A link loses nothing, or it is saturated: under RED its queue is then what gives its loss, under drop-tail it is full.
    Loss is found link after link by bisection, because a link's load falls with its own loss, until nothing moves.

    Raises:
        InputError: for flows other than Reno and CUBIC, or a set whose loss-based senders have no rest point (they react
            once per round or per millisecond).
        EngineError: if the search does not end.
    """
    for flow in scenario.flows:
        if flow.cca not in {"reno", "cubic"}:
            raise InputError(f"equilibria over several links are those of reno and cubic (got {flow.cca})")
    if scenario.constants.form != "print":
        raise InputError(f"equilibria over several links need the printed equations, params: paper (got {scenario.params})")
    loss = [0.0] * len(scenario.links)
    for _ in range(_SWEEPS):
        moved = 0.0
        for k in range(len(loss)):
            link_loss = _loss_of_link(scenario, loss, k)
            moved = max(moved, abs(link_loss - loss[k]) / max(link_loss, loss[k], 1e-300))
            loss[k] = link_loss
        if moved < _TOLERANCE:
            return _describe(scenario, loss)
    raise EngineError(f"the equilibrium of {scenario.title!r} was not found in {_SWEEPS} sweeps over its links")


def queue_at(link: Link, loss: float, mss_bytes: float) -> float:
    """Return the queue in bytes with which a saturated link loses this share (0 for no loss: it is no bottleneck)."""
    if loss <= 0.0:
        return 0.0
    buffer = link.buffer_bytes(mss_bytes)
    if link.discipline == "drop-tail":
        return buffer
    return buffer * (link.red.q0 + min(loss / link.red.p1, 1.0) * (link.red.q1 - link.red.q0))


def rtts_s(scenario: Scenario, queues: list[float]) -> list[float]:
    """Return each flow's RTT for given queues in bytes."""
    return [
        propagation_s(scenario, flow) + sum(queues[k] / scenario.links[k].capacity_Bps for k in scenario.path_links(flow))
        for flow in scenario.flows
    ]


def propagation_s(scenario: Scenario, flow: Flow) -> float:
    """Return a flow's propagation RTT."""
    return 2e-3 * (flow.access_delay_ms + sum(scenario.links[k].delay_ms for k in scenario.path_links(flow)))


def _loss_of_link(scenario: Scenario, loss: list[float], link: int) -> float:
    def excess(value: float) -> float:
        tried = [*loss[:link], value, *loss[link + 1 :]]
        return _loads(scenario, tried)[link] - scenario.links[link].capacity_Bps

    if excess(0.0) <= 0.0:
        return 0.0
    low, high = 0.0, _FULL_LOSS
    if excess(high) > 0.0:
        return high
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high) if low > 1e-12 else math.sqrt(max(low, 1e-18) * high)
        low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
        if high - low <= 1e-15 * high:
            break
    return high


def _state(scenario: Scenario, loss: list[float]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return path loss, RTTs, windows and sending rates of the flows for given losses of the links."""
    mss, constants = float(scenario.mss_bytes), scenario.constants
    taus = rtts_s(scenario, [queue_at(link, p, mss) for link, p in zip(scenario.links, loss, strict=True)])
    paths = [1.0 - math.prod(1.0 - loss[k] for k in scenario.path_links(flow)) for flow in scenario.flows]
    windows = [
        reno_window(p, constants.reno_decrease)
        if flow.cca == "reno"
        else cubic_window(p, tau, constants.cubic_c, constants.cubic_b)
        for flow, p, tau in zip(scenario.flows, paths, taus, strict=True)
    ]
    return paths, taus, windows, [mss * w / tau for w, tau in zip(windows, taus, strict=True)]


def _loads(scenario: Scenario, loss: list[float]) -> list[float]:
    """Return the bytes/s that each link accepts."""
    rates = _state(scenario, loss)[3]
    out = [0.0] * len(loss)
    for flow, rate in zip(scenario.flows, rates, strict=True):
        left = rate
        for k in scenario.path_links(flow):
            left *= 1.0 - loss[k]
            out[k] += left
    return out


def _describe(scenario: Scenario, loss: list[float]) -> NetworkEquilibrium:
    paths, taus, windows, rates = _state(scenario, loss)
    loads, capacities = _loads(scenario, loss), [link.capacity_Bps for link in scenario.links]
    queues = [queue_at(link, p, scenario.mss_bytes) for link, p in zip(scenario.links, loss, strict=True)]
    balance = [abs(y / c - 1.0) for y, c, p in zip(loads, capacities, loss, strict=True) if p > 0.0]
    return NetworkEquilibrium(
        windows_packets=tuple(windows),
        rate_Bps=tuple(rates),
        loss=tuple(paths),
        rtt_s=tuple(taus),
        link_loss=tuple(loss),
        queue_bytes=tuple(queues),
        utilisation=tuple(y / c for y, c in zip(loads, capacities, strict=True)),
        residual=max(balance, default=0.0),
    )
