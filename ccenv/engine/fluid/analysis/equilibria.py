"""Equilibria of the reduced models: closed forms of theorems 1, 3 and 4, and a numeric finder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.engine.fluid.analysis.reduced import Bottleneck, Model, derivatives, known_model, limited, window_factor
from ccenv.base.errors import EngineError, InputError

_TOLERANCE = 1e-8  # residual relative to C at which a state counts as an equilibrium
_STARVED = 1e-6  # share of C below which a flow counts as starved


@dataclass(frozen=True)
class Equilibrium:
    """A rest point of a reduced model.

    Attributes:
        model: `bbr1` or `bbr2`.
        theorem: 1, 3 or 4 of [BBR-fluid]; None for a state that no theorem covers.
        regime: `deep`, `between` or `shallow` buffer by closed form; found by search: `numeric`, or `starved` if some
            flow has no share.
        x_btl_Bps: (N,) estimates.
        rate_Bps: (N,) sending rates outside the probing phase.
        queue_bytes: q.
        loss: share of arrivals lost, 1 - C/y.
        any_shares: whether every division of the same total rate is an equilibrium too (theorem 1).
        residual: largest |derivative| relative to C, computed from the reduced model.
    """

    model: Model
    theorem: int | None
    regime: str
    x_btl_Bps: tuple[float, ...]
    rate_Bps: tuple[float, ...]
    queue_bytes: float
    loss: float
    any_shares: bool
    residual: float


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

    Args:
        model: `bbr1` or `bbr2`.
        path: the bottleneck.
        tries: starting points, at least 1: even shares first, then scattered ones.
        seed: of the scattered starting points.

    Raises:
        EngineError: if no state comes to rest; names the smallest residual seen.
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
    found = least_squares(rest, start, bounds=(np.zeros_like(upper), upper), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return found.x[:n] * c, found.x[n] * scale if fixed is None else fixed
