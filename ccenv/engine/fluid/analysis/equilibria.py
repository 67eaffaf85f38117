"""Equilibria: of BBRv1 and BBRv2 at one bottleneck, and of Reno and CUBIC over several links with queues.

The reduced models of both BBRs ([BBR-fluid] sections 5.1.1, 5.2.1) with closed forms of theorems 1, 3 and 4, and a numeric
finder. State: the bottleneck-bandwidth estimates x_btl of N flows and the queue q. Time is in seconds with the printed unit gain
of eq. 38, so an eigenvalue of -1 means one adaptation per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ccenv.base.errors import EngineError, InputError, unknown_name
from ccenv.engine.fluid.scenario import Flow, Link, Scenario

Model = Literal["bbr1", "bbr2"]
MODELS: tuple[Model, ...] = ("bbr1", "bbr2")
REGIONS = ("pacing", "between", "window")
PROBE_GAIN = 1.25


@dataclass(frozen=True)
class Bottleneck:
    """One bottleneck with a queue, shared by N flows."""

    capacity_Bps: float  # C, bytes/s, above 0
    rtt_s: tuple[float, ...]  # propagation RTT d_i of each flow, s, above 0
    buffer_bytes: float = float("inf")  # B, above 0; infinity for a buffer that never fills

    def __post_init__(self) -> None:
        """Check the values. Raises InputError."""
        if not self.rtt_s:
            raise InputError("an equilibrium needs at least one flow (got 0)")
        for name, value in (("capacity_Bps", self.capacity_Bps), ("buffer_bytes", self.buffer_bytes)):
            if not value > 0:
                raise InputError(f"{name} must be above 0 (got {value:g})")
        if not np.isfinite(self.capacity_Bps):
            raise InputError("capacity_Bps must be finite (got inf)")
        bad = [d for d in self.rtt_s if not (d > 0 and np.isfinite(d))]
        if bad:
            raise InputError(f"rtt_s must be above 0 and finite (got {bad[0]:g})")

    @property
    def flows(self) -> int:
        return len(self.rtt_s)

    @property
    def common_rtt_s(self) -> float:
        """The propagation RTT that all flows share. Raises InputError when they differ."""
        if len(set(self.rtt_s)) > 1:
            raise InputError(f"closed forms need equal RTTs (got {min(self.rtt_s):g} to {max(self.rtt_s):g} s)")
        return self.rtt_s[0]


def known_model(name: str) -> Model:
    """Return the reduced model of a name. Raises UnknownNameError."""
    for model in MODELS:
        if model == name:
            return model
    raise unknown_name("reduced model", name, MODELS)


def window_factor(model: Model, rtt_s: np.ndarray, queue_delay_s: complex | float) -> np.ndarray:
    """Return what the window allows, as a multiple of x_btl: Delta_i (BBRv1) or delta_i (BBRv2).

    Reference: [BBR-fluid] eq. 37 (Delta), eq. 49 (delta = Delta/2).
    """
    return (2.0 if model == "bbr1" else 1.0) * rtt_s / (rtt_s + queue_delay_s)


def region_of(model: Model, rtt_s: np.ndarray, queue_delay_s: float) -> np.ndarray:
    """Return per flow the index into REGIONS: who limits the rate.

    `pacing`: the window never binds; `between`: it binds while probing; `window`: it always binds. BBRv2 knows
    `window` only (delta <= 1, and eq. 49 scales the pulse with it).
    """
    if model == "bbr2":
        return np.full(len(rtt_s), 2)
    factor = np.real(window_factor(model, rtt_s, queue_delay_s))
    return np.where(factor >= PROBE_GAIN, 0, np.where(factor >= 1.0, 1, 2))


def factors(model: Model, rtt_s: np.ndarray, queue_delay_s: complex | float, region: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (while probing, otherwise) the sending rate as a multiple of x_btl.

    Within a region both are smooth in the queueing delay, which may be complex (complex-step derivatives).

    Reference: [BBR-fluid] eqs. 37, 49, 50.
    """
    free = window_factor(model, rtt_s, queue_delay_s)
    if model == "bbr2":
        return PROBE_GAIN * free, free
    return np.where(region == 0, PROBE_GAIN, free), np.where(region == 2, free, 1.0)


def derivatives(
    model: Model,
    path: Bottleneck,
    x_btl: np.ndarray,
    queue: complex | float,
    *,
    region: np.ndarray | None = None,
    saturated: bool | None = None,
) -> tuple[np.ndarray, float, np.ndarray]:
    """Return (dx_btl/dt, dq/dt without limits, sending rates x).

    ``x_btl`` is (N,) in bytes/s, ``queue`` in bytes. ``region``, (N,) indices into REGIONS, forces one side of a kink, by default
    that of the queue. ``saturated`` says whether the first case of eqs. 37 and 51 applies; by default if the queue is above 0 or
    y >= C.

    Reference: [BBR-fluid] eqs. 2, 37, 38, 51.
    Deviation: an empty queue on a saturated link counts as saturated, as in the correction of eq. 18.
    """
    rtt = np.asarray(path.rtt_s)
    delay = queue / path.capacity_Bps
    if region is None:
        region = region_of(model, rtt, np.real(delay))
    probing, cruising = factors(model, rtt, delay, region)
    sending = cruising * x_btl
    pulse = probing * x_btl
    total = np.sum(sending)
    if saturated is None:
        saturated = bool(np.real(queue) > 0 or np.real(total) >= path.capacity_Bps * (1.0 - 1e-12))
    if saturated:
        x_max = pulse * path.capacity_Bps / (pulse + total - sending)
    else:
        x_max = pulse
    return x_max - x_btl, total - path.capacity_Bps, sending


def limited(path: Bottleneck, queue: float, growth: float) -> float:
    """Return dq/dt with the queue kept in [0, B]."""
    if (queue <= 0 and growth < 0) or (queue >= path.buffer_bytes and growth > 0):
        return 0.0
    return growth


_TOLERANCE = 1e-8  # residual relative to C at which a state counts as an equilibrium
_STARVED = 1e-6  # share of C below which a flow counts as starved


@dataclass(frozen=True)
class Equilibrium:
    """A rest point of a reduced model."""

    model: Model
    theorem: int | None  # 1, 3 or 4 of [BBR-fluid]; None for a state that no theorem covers
    # `deep`, `between` or `shallow` buffer by closed form; found by search: `numeric`, or `starved` if some flow has no share
    regime: str
    x_btl_Bps: tuple[float, ...]  # (N,) estimates
    rate_Bps: tuple[float, ...]  # (N,) sending rates outside the probing phase
    queue_bytes: float
    loss: float  # share of arrivals lost, 1 - C/y
    any_shares: bool  # whether every division of the same total rate is an equilibrium too (theorem 1)
    residual: float  # largest |derivative| relative to C, computed from the reduced model


def equilibrium(model: Model, path: Bottleneck) -> Equilibrium:
    """Return the equilibrium of N flows with equal RTT, by the theorem that the buffer calls for.

    BBRv1 with B >= d C: theorem 1, q = d C, any shares; with B <= 3/5 d C (Delta >= 5/4): theorem 3, full buffer,
    x_btl = 5 C/(4N + 1), loss (N - 1)/(5N). In between neither applies: with a full buffer, 1 < Delta < 5/4 and eq. 37,
    x_btl = Delta C/(Delta + N - 1) and loss (N - 1)(Delta - 1)/(N Delta), which joins the two.
    BBRv2 with B >= (N - 1)/(4N + 1) d C: theorem 4, that queue, equal shares.

    Raises:
        InputError: for unequal RTTs, or a BBRv2 buffer too small for theorem 4 (there loss comes, which the reduced
            model leaves out).

    Reference: [BBR-fluid] theorems 1, 3, 4.
    Deviation: with one flow theorem 1's "only if" does not hold: eqs. 55 and 56 then agree for every Delta >= 1, so any
    queue up to d C rests; the one given is the empty queue's limit for shallow and d C for deep buffers.
    """
    known_model(model)
    n, c, d, b = path.flows, path.capacity_Bps, path.common_rtt_s, path.buffer_bytes
    if model == "bbr2":
        queue = (n - 1) / (4 * n + 1) * d * c
        if queue > b:
            raise InputError(
                f"theorem 4 needs a buffer of at least {queue:.6g} bytes, (N-1)/(4N+1) d C (got {b:.6g}): below it BBRv2 "
                "loses packets, which the reduced model leaves out; use `ccenv ode run`"
            )
        return _describe(path, model, (4, "deep"), np.full(n, 5 * c / (4 * n + 1)), queue)
    if b >= d * c:
        return _describe(path, model, (1, "deep"), np.full(n, c / n), d * c)
    factor = float(window_factor(model, np.array([d]), b / c)[0])
    if factor >= 1.25:
        return _describe(path, model, (3, "shallow"), np.full(n, 5 * c / (4 * n + 1)), b)
    return _describe(path, model, (None, "between"), np.full(n, factor * c / (factor + n - 1)), b)


def bbr2_equilibrium(path: Bottleneck) -> Equilibrium:
    """Return the one equilibrium of BBRv2 from which no starved flow recovers, for any RTTs.

    With g_i = delta_i x_i, the rate in cruise, sum g = C, eq. 51 rests where g_i = 0 or g_i = C (5 delta_i - 4). So each set of
    active flows has at most one equilibrium: its queue solves sum (5 delta_i - 4) = 1, whose left side falls in the queue, and
    needs delta_i > 4/5 of each. A starved flow's estimate grows at the rate 5/4 delta_i - 1, so the equilibrium stays only if
    exactly the flows with delta_i > 4/5, q/C < d_i/4, are active; there is one such queue. Equal RTTs: theorem 4, the only
    equilibrium without a starved flow. Flows with d_i <= 4 q/C starve.

    Reference: [BBR-fluid] theorem 4, which leaves open whether there are others; eqs. 49 to 51.
    """
    rtt, low, high = np.asarray(path.rtt_s), 0.0, max(path.rtt_s) / 4
    for _ in range(200):
        delay_s = (low + high) / 2
        shares = np.maximum(0.0, 5 * window_factor("bbr2", rtt, delay_s) - 4)
        low, high = (delay_s, high) if shares.sum() > 1 else (low, delay_s)
    queue = delay_s * path.capacity_Bps
    if queue > path.buffer_bytes:
        raise InputError(f"the queue of {queue:.6g} bytes needs a buffer of that size (got {path.buffer_bytes:.6g})")
    kind = (4 if len(set(path.rtt_s)) == 1 else None, "starved" if (shares == 0).any() else "deep")
    return _describe(path, "bbr2", kind, path.capacity_Bps * shares / window_factor("bbr2", rtt, delay_s), queue)


def _describe(path: Bottleneck, model: Model, kind: tuple[int | None, str], x_btl: np.ndarray, queue: float) -> Equilibrium:
    theorem, regime = kind
    _, growth, sending = derivatives(model, path, x_btl, queue)
    total = float(np.sum(sending))
    overload = growth > _TOLERANCE * path.capacity_Bps
    return Equilibrium(
        model=model,
        theorem=theorem,
        regime=regime,
        x_btl_Bps=tuple(float(x) for x in x_btl),
        rate_Bps=tuple(float(x) for x in sending),
        queue_bytes=float(queue),
        loss=1.0 - path.capacity_Bps / total if overload else 0.0,
        any_shares=theorem == 1 and path.flows > 1,
        residual=residual(model, path, x_btl, queue),
    )


def residual(model: Model, path: Bottleneck, x_btl: np.ndarray, queue: float) -> float:
    """Return the largest |derivative| of a state relative to C; 0 at an equilibrium.

    An empty queue cannot shrink. A full one cannot grow, but only for BBRv1 is that rest: BBRv2 would react to the loss.
    """
    rates, growth, _ = derivatives(model, path, x_btl, queue)
    overflowing = model == "bbr2" and growth > 0
    kept = growth if overflowing else limited(path, queue, growth)
    return float(max(np.max(np.abs(rates)), abs(kept))) / path.capacity_Bps


def find_equilibrium(model: Model, path: Bottleneck, tries: int = 8, seed: int = 0) -> Equilibrium:
    """Search for an equilibrium numerically, for any RTTs and buffer, using the reduced model only.

    A state in which some flow has no share rests trivially (0 stays 0); it is returned only if nothing else rests.

    Of ``tries`` >= 1 starting points the first has even shares; ``seed`` scatters the others. Raises EngineError if no state
    comes to rest; names the smallest residual seen.
    """
    known_model(model)
    if tries < 1:
        raise InputError(f"tries must be at least 1 (got {tries})")
    random = np.random.Generator(np.random.Philox(seed))
    fixed_queues = [None, 0.0]
    if model == "bbr1" and np.isfinite(path.buffer_bytes):
        fixed_queues.append(path.buffer_bytes)  # a full buffer loses packets, which only BBRv1 ignores
    starved: Equilibrium | None = None
    best = np.inf
    for attempt in range(tries):
        shares = np.full(path.flows, 1.0 / path.flows) if attempt == 0 else random.dirichlet(np.ones(path.flows))
        height = 0.5 if attempt == 0 else random.uniform(0.05, 0.95)
        for fixed in fixed_queues:
            x_btl, queue = _solve(model, path, shares, height, fixed)
            off = residual(model, path, x_btl, queue)
            best = min(best, off)
            if off >= _TOLERANCE:
                continue
            if x_btl.min() > _STARVED * path.capacity_Bps:
                return _describe(path, model, (None, "numeric"), x_btl, queue)
            starved = starved or _describe(path, model, (None, "starved"), x_btl, queue)
    if starved is not None:
        return starved
    raise EngineError(f"no equilibrium of {model} found: the smallest residual seen is {best:.3g} C, needed {_TOLERANCE:g}")


def _solve(model: Model, path: Bottleneck, shares: np.ndarray, height: float, fixed: float | None) -> tuple[np.ndarray, float]:
    """Run least squares on the derivatives, with the queue free (fixed None) or held. Return (x_btl, queue)."""
    from scipy.optimize import least_squares

    n, c = path.flows, path.capacity_Bps
    scale = max(path.rtt_s) * c
    top = min(path.buffer_bytes, 4.0 * scale) / scale

    def rest(z: np.ndarray) -> np.ndarray:
        rates, growth, _ = derivatives(model, path, z[:n] * c, z[n] * scale if fixed is None else fixed, saturated=True)
        return np.append(rates, growth) / c if fixed is None else rates / c

    start = np.append(shares, height * top) if fixed is None else shares
    upper = np.append(np.full(n, 2.0), top) if fixed is None else np.full(n, 2.0)
    solution = least_squares(rest, start, bounds=(np.zeros_like(upper), upper), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return solution.x[:n] * c, solution.x[n] * scale if fixed is None else fixed


# --- Reno and CUBIC over several links, such as parking lots

_SWEEPS = 2000
_BISECTIONS = 200
_BALANCE = 1e-10  # of a link's rate
_FULL_LOSS = 1.0 - 1e-12


@dataclass(frozen=True)
class NetworkEquilibrium:
    """A rest point of loss-based flows over several links."""

    windows_packets: tuple[float, ...]
    rate_Bps: tuple[float, ...]
    loss: tuple[float, ...]  # (N,) share of each flow's bytes that is lost on its path
    rtt_s: tuple[float, ...]  # (N,) RTT of each flow, queueing included
    link_loss: tuple[float, ...]  # (L,) loss of each link; 0 at a link that is no bottleneck
    queue_bytes: tuple[float, ...]
    utilisation: tuple[float, ...]  # (L,) share of each link's rate that is used
    residual: float  # largest imbalance of a saturated link, relative to its rate


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

    A link loses nothing, or it is saturated: under RED its queue is then what gives its loss, under drop-tail it is full. Loss is
    found link after link by bisection, because a link's load falls with its own loss, until nothing moves. Raises InputError for
    flows other than Reno and CUBIC, or a set whose loss-based senders have no rest point (they react once per round or per
    millisecond); EngineError if the search does not end.
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
        if moved < _BALANCE:
            return _describe_network(scenario, loss)
    raise EngineError(f"the equilibrium of {scenario.title!r} was not found in {_SWEEPS} sweeps over its links")


def _queue_at(link: Link, loss: float, mss_bytes: float) -> float:
    """Return the queue in bytes with which a saturated link loses this share (0 for no loss: it is no bottleneck)."""
    if loss <= 0.0:
        return 0.0
    buffer = link.buffer_bytes(mss_bytes)
    if link.discipline == "drop-tail":
        return buffer
    return buffer * (link.red.q0 + min(loss / link.red.p1, 1.0) * (link.red.q1 - link.red.q0))


def _rtts_s(scenario: Scenario, queues: list[float]) -> list[float]:
    return [
        propagation_s(scenario, flow) + sum(queues[k] / scenario.links[k].capacity_Bps for k in scenario.path_links(flow))
        for flow in scenario.flows
    ]


def propagation_s(scenario: Scenario, flow: Flow) -> float:
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


def _network_state(scenario: Scenario, loss: list[float]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return path loss, RTTs, windows and sending rates of the flows for given losses of the links."""
    mss, constants = float(scenario.mss_bytes), scenario.constants
    taus = _rtts_s(scenario, [_queue_at(link, p, mss) for link, p in zip(scenario.links, loss, strict=True)])
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
    rates = _network_state(scenario, loss)[3]
    out = [0.0] * len(loss)
    for flow, rate in zip(scenario.flows, rates, strict=True):
        left = rate
        for k in scenario.path_links(flow):
            left *= 1.0 - loss[k]
            out[k] += left
    return out


def _describe_network(scenario: Scenario, loss: list[float]) -> NetworkEquilibrium:
    paths, taus, windows, rates = _network_state(scenario, loss)
    loads, capacities = _loads(scenario, loss), [link.capacity_Bps for link in scenario.links]
    queues = [_queue_at(link, p, scenario.mss_bytes) for link, p in zip(scenario.links, loss, strict=True)]
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
