"""Stability of equilibria by Lyapunov's indirect method: Jacobians in closed form and automatic, eigenvalues, verdicts.

For Reno over several RED links with all delays: the characteristic function of the linearised fluid model.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ccenv.base.errors import EngineError, InputError
from ccenv.engine.fluid.analysis.equilibria import (
    REGIONS,
    Bottleneck,
    Equilibrium,
    Model,
    NetworkEquilibrium,
    derivatives,
    network_equilibrium,
    propagation_s,
)
from ccenv.engine.fluid.scenario import Scenario

_COMPLEX_STEP = 1e-30
_ZERO = 1e-9  # eigenvalues this close to 0 decide nothing (indirect method)


@dataclass(frozen=True)
class Stability:
    """What the indirect method says about an equilibrium."""

    theorem: int  # 2, 3 or 5 of [BBR-fluid]
    variables: str
    verdict: str  # `undetermined` means an eigenvalue on the imaginary axis
    eigenvalues: tuple[complex, ...]  # of the closed form, from the printed solutions, in 1/s, sorted by real part, descending
    automatic: tuple[complex, ...]
    # theorem 2 only: automatic eigenvalues of (y, q) on the other side of the kink, q < d C, for even shares. The printed proof
    # treats q > d C alone
    below: tuple[complex, ...]
    largest_difference: float  # between both Jacobians, relative to the largest entry of each row


def stability(path: Bottleneck, point: Equilibrium) -> Stability:
    """Analyse an equilibrium given by theorem 1, 3 or 4. Raises InputError for others.

    Reference: [BBR-fluid] theorems 2, 3, 5.
    """
    closed = jacobian(path, point)
    theorem, variables, eigenvalues_of = _PROOFS[point.theorem or 0]
    eigenvalues = eigenvalues_of(path)
    automatic = automatic_jacobian(path, point)
    size = np.max(np.abs(closed), axis=1, keepdims=True)
    return Stability(
        theorem=theorem,
        variables=variables,
        verdict=verdict(eigenvalues),
        eigenvalues=_sorted(eigenvalues),
        automatic=_sorted(np.linalg.eigvals(automatic)),
        below=_sorted(np.linalg.eigvals(automatic_jacobian(path, point, side="between"))) if theorem == 2 else (),
        largest_difference=float(np.max(np.abs(automatic - closed) / size)),
    )


def jacobian(path: Bottleneck, point: Equilibrium) -> np.ndarray:
    """Return the closed-form Jacobian at an equilibrium given by theorem 1, 3 or 4, in the variables of its proof.

    Raises:
        InputError: for an equilibrium that no theorem covers.

    Reference: [BBR-fluid] eqs. 47 (theorem 2), 59-60 (theorem 3), 72-74 (theorem 5).
    """
    forms = {1: jacobian_theorem_2, 3: jacobian_theorem_3, 4: jacobian_theorem_5}
    if point.theorem not in forms:
        raise InputError(f"closed forms exist for theorems 1, 3 and 4 (got the {point.regime} equilibrium)")
    return forms[point.theorem](path)


def is_stable(path: Bottleneck, point: Equilibrium) -> bool:
    """Tell whether an equilibrium is asymptotically stable by the indirect method."""
    return stability(path, point).verdict == "asymptotically stable"


def verdict(eigenvalues: np.ndarray) -> str:
    """Return what eigenvalues prove: `asymptotically stable`, `unstable` or `undetermined`."""
    largest = float(np.max(np.real(eigenvalues)))
    if largest < -_ZERO:
        return "asymptotically stable"
    return "unstable" if largest > _ZERO else "undetermined"


def _sorted(eigenvalues: np.ndarray) -> tuple[complex, ...]:
    return tuple(complex(v) for v in sorted(eigenvalues, key=lambda v: (-np.real(v), np.imag(v))))


def jacobian_theorem_2(path: Bottleneck, arrival: float | None = None, queue: float | None = None) -> np.ndarray:
    """Return the 2 x 2 Jacobian of (y, q), by default at the equilibrium y = C, q = d C.

    Reference: [BBR-fluid] eqs. 44-47.
    """
    c, d = path.capacity_Bps, path.common_rtt_s
    y = c if arrival is None else arrival
    rtt = d + (d * c if queue is None else queue) / c
    dy_dy = -2.0 * y / (c * rtt) + 1.0 / rtt - 1.0
    dy_dq = y**2 / (c * rtt) ** 2 - y / (c * rtt**2) - 2.0 * d / rtt**2
    return np.array([[dy_dy, dy_dq], [1.0, 0.0]])


def eigenvalues_theorem_2(path: Bottleneck) -> np.ndarray:
    """Return -1 and -1/(2d). Reference: [BBR-fluid] eqs. 47, 48 (the larger is -1 for d <= 1/2 s)."""
    return np.array([-1.0, -1.0 / (2.0 * path.common_rtt_s)])


def jacobian_theorem_3(path: Bottleneck) -> np.ndarray:
    """Return the N x N Jacobian of x_btl. Reference: [BBR-fluid] eqs. 59, 60."""
    n = path.flows
    return np.full((n, n), -4.0 / (4 * n + 1)) - np.eye(n) / (4 * n + 1)


def eigenvalues_theorem_3(path: Bottleneck) -> np.ndarray:
    """Return -1/(4N + 1), N - 1 times, and -1.

    Reference: [BBR-fluid] eqs. 59-62: J_ii - J_ij and J_ii + (N - 1) J_ij.
    Deviation: the eigenvectors of the first are those with sum 0 (the print has L1 norm 0, which is the zero vector).
    """
    n = path.flows
    return np.append(np.full(n - 1, -1.0 / (4 * n + 1)), -1.0)


def jacobian_theorem_5(path: Bottleneck) -> np.ndarray:
    """Return the (N+1) x (N+1) Jacobian of the sending rates and the queue.

    Reference: [BBR-fluid] eqs. 72-74.
    Deviation: eq. 70, from which eq. 74 follows, is misprinted: its first term has the wrong sign (it vanishes at the
    equilibrium) and its second a factor C too many; eq. 74 itself is right.
    """
    n, d = path.flows, path.common_rtt_s
    a = (4 * n + 1) / (5 * n**2 * d)
    out = np.zeros((n + 1, n + 1))
    out[:n, :n] = -a - 4.0 / (4 * n + 1) - np.eye(n) / (4 * n + 1)
    out[:n, n] = -a
    out[n, :n] = 1.0
    return out


def eigenvalues_theorem_5(path: Bottleneck) -> np.ndarray:
    """Return -1/(4N + 1), N - 1 times, -1 and -(4N + 1)/(5 N d).

    Reference: [BBR-fluid] eqs. 75-78.
    Deviation: the quadratic before eq. 78 factors into (l + 1)(l + (4N + 1)/(5Nd)); -1 is its larger root only for
    d + q/C <= 1 s, and from two flows on the largest eigenvalue of all is -1/(4N + 1). The verdict is the same.
    """
    n, d = path.flows, path.common_rtt_s
    return np.append(np.full(n - 1, -1.0 / (4 * n + 1)), [-1.0, -(4 * n + 1) / (5 * n * d)])


def automatic_jacobian(path: Bottleneck, point: Equilibrium, side: str = "window") -> np.ndarray:
    """Return the Jacobian in the same variables from the reduced model alone (no printed derivative enters).

    The time derivative of a sending rate is a complex-step directional derivative of the map from (x_btl, q) to it; the
    Jacobian is a central difference of that. At BBRv1's deep equilibrium it is taken on one ``side`` of the kink: `window`
    (q > d C, as in theorem 2) or `between` (q < d C).
    """
    x_btl, q, c = np.array(point.x_btl_Bps), point.queue_bytes, path.capacity_Bps
    n = path.flows
    if point.theorem == 3:
        region = np.zeros(n, dtype=int)
        return central_jacobian(
            lambda x: derivatives(point.model, path, x, q, region=region, saturated=True)[0], x_btl, np.full(n, c)
        )
    region = np.full(n, REGIONS.index(side))
    rates = np.array(point.rate_Bps)
    if point.theorem == 1:
        shares = rates / rates.sum()

        def aggregate(z: np.ndarray) -> np.ndarray:
            dx, dq = _rate_dynamics(point.model, path, shares * z[0], z[1], region)
            return np.array([dx.sum(), dq])

        return central_jacobian(aggregate, np.array([rates.sum(), q]), np.array([c, c * path.common_rtt_s]))

    def all_rates(z: np.ndarray) -> np.ndarray:
        dx, dq = _rate_dynamics(point.model, path, z[:n], z[n], region)
        return np.append(dx, dq)

    scales = np.append(np.full(n, c / n), c * path.common_rtt_s)
    return central_jacobian(all_rates, np.append(rates, q), scales)


def _rate_dynamics(
    model: Model, path: Bottleneck, rates: np.ndarray, queue: float, region: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the derivatives of (sending rates, queue) where the window limits every rate."""
    unit = derivatives(model, path, np.ones(path.flows), queue, region=region, saturated=True)[2]
    x_btl = rates / unit
    dx_btl, dq, _ = derivatives(model, path, x_btl, queue, region=region, saturated=True)
    moved = derivatives(
        model, path, x_btl + 1j * _COMPLEX_STEP * dx_btl, queue + 1j * _COMPLEX_STEP * dq, region=region, saturated=True
    )[2]
    return np.imag(moved) / _COMPLEX_STEP, dq


def central_jacobian(f: Callable[[np.ndarray], np.ndarray], at: np.ndarray, scales: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Return the Jacobian (m, n) of f at (n,) by central differences; ``step`` is relative to each variable's scale, (n,)."""
    columns = []
    for j, scale in enumerate(scales):
        shift = np.zeros(len(at))
        shift[j] = step * scale
        columns.append((f(at + shift) - f(at - shift)) / (2.0 * shift[j]))
    return np.array(columns).T


# Existence theorem: (stability theorem, variables, eigenvalues).
_PROOFS = {
    1: (2, "arrival rate y, queue q; side q > d C", eigenvalues_theorem_2),
    3: (3, "x_btl of each flow", eigenvalues_theorem_3),
    4: (5, "sending rate of each flow, queue q", eigenvalues_theorem_5),
}


_RADIUS = 60.0  # of the contour, over the shortest RTT: beyond it s^n outweighs all feedback
_TURN = 0.5  # largest turn of the characteristic function between two points of the contour, rad
_POINTS = 200_000


@dataclass(frozen=True)
class NetworkStability:
    """What the characteristic function says about an equilibrium."""

    verdict: str  # `asymptotically stable` or `unstable`
    unstable_roots: int  # number of roots with a positive real part (argument principle)
    rightmost: complex  # the root of the largest real part that Newton's method found, in 1/s: growth and angular frequency


class Characteristic:
    """The linearised network at an equilibrium: M(s) z = 0 for z = (windows, queues of saturated links).

    A flow's rate follows window and RTT; at a link the bytes accepted move the queue; what leaves it is what arrived when the
    head of line did, stretched by the queue's growth since; the sender hears of delivery and loss one RTT after it sent.

    Reference: the kernels of ``ccenv.engine.fluid.kernel``, linearised; [BBR-fluid] eqs. 1-3, 7, 52.
    """

    def __init__(self, scenario: Scenario, point: NetworkEquilibrium) -> None:
        """Keep what M(s) needs. Raises InputError unless all flows are Reno and all saturated links have RED below q1."""
        if any(flow.cca != "reno" for flow in scenario.flows):
            raise InputError("stability over several links is that of reno (CUBIC's linearisation is 0: it decides nothing)")
        self.scenario, self.point = scenario, point
        self.saturated = [k for k, p in enumerate(point.link_loss) if p > 0.0]
        for k in self.saturated:
            link = scenario.links[k]
            if link.discipline != "red" or link.red.averaging_s > 0.0 or point.link_loss[k] >= link.red.p1:
                raise InputError(
                    f"stability over several links needs RED without averaging, below its upper threshold (link {link.name!r})"
                )
        self.column = {k: len(scenario.flows) + j for j, k in enumerate(self.saturated)}
        self.size = len(scenario.flows) + len(self.saturated)

    def matrix(self, s: complex) -> np.ndarray:
        """Return M(s), (n, n)."""
        sc, point, mss = self.scenario, self.point, float(self.scenario.mss_bytes)
        out = np.zeros((self.size, self.size), dtype=complex)
        for k in self.saturated:
            out[self.column[k], self.column[k]] += s
        for i, flow in enumerate(sc.flows):
            w, tau, x, path_loss = point.windows_packets[i], point.rtt_s[i], point.rate_Bps[i] / mss, point.loss[i]
            sent: np.ndarray = np.zeros(self.size, dtype=complex)  # packets/s per unit of z
            sent[i] = 1.0 / tau
            for k in sc.path_links(flow):
                if k in self.column:
                    sent[self.column[k]] -= w / tau**2 / sc.links[k].capacity_Bps
            # delay_s: from the sender to the arrival at the next link; moving: the deviation that arrives there; mean: its rest
            delay_s, mean = 1e-3 * flow.access_delay_ms, x
            lost: np.ndarray = path_loss * sent
            moving: np.ndarray = sent * cmath.exp(-s * delay_s)
            for k in sc.path_links(flow):
                link = sc.links[k]
                if k in self.column:
                    p, queueing_s, at = point.link_loss[k], point.queue_bytes[k] / link.capacity_Bps, self.column[k]
                    slope = link.red.p1 / ((link.red.q1 - link.red.q0) * link.buffer_bytes(mss))
                    seen = np.zeros(self.size, dtype=complex)
                    seen[at] = slope * x * (1.0 - path_loss) / (1.0 - p)
                    lost = lost + seen * cmath.exp(s * delay_s)
                    accepted: np.ndarray = (1.0 - p) * moving
                    accepted[at] -= mean * slope
                    mean *= 1.0 - p
                    out[at] -= mss * accepted
                    moving = accepted.copy()
                    moving[at] -= mean * s / link.capacity_Bps
                    moving = moving * cmath.exp(-s * queueing_s)
                    delay_s += queueing_s
                moving = moving * cmath.exp(-s * link.delay_s)
                delay_s += link.delay_s
            delivered = moving * cmath.exp(-s * 0.5 * propagation_s(sc, flow))
            decrease = sc.constants.reno_decrease
            out[i, i] += s + mean / w**2 + decrease * path_loss * x
            out[i] -= delivered / w - decrease * w * lost * cmath.exp(-s * tau)
        return out

    def value(self, s: complex) -> complex:
        """Return det M(s), divided by (s + r)^n, r the radius of the contour, so that it stays finite there."""
        scaled = self.matrix(s) / (s + _RADIUS / min(self.point.rtt_s))
        return complex(np.linalg.det(scaled))


def network_stability(scenario: Scenario) -> NetworkStability:
    """Tell whether Reno's equilibrium over a scenario's RED links is stable, delays included.

    The zeros of det M(s) in the right half-plane are counted by how often the function turns around 0 along a half-circle.

    Raises:
        InputError: as ``Characteristic`` and ``network_equilibrium``.
        EngineError: if the contour passes too near to a root.
    """
    form = Characteristic(scenario, network_equilibrium(scenario))
    radius = _RADIUS / min(form.point.rtt_s)
    axis = _turn(lambda u: form.value(1j * u), 0.0, radius)
    arc = _turn(lambda u: form.value(radius * cmath.exp(1j * u)), 0.0, 0.5 * math.pi)
    roots = round((arc - axis) / math.pi)
    return NetworkStability("unstable" if roots else "asymptotically stable", roots, _rightmost(form))


def _turn(f: Callable[[float], complex], low: float, high: float) -> float:
    """Return by how many radians a complex function turns between two parameters, refined until no step turns far."""
    total, stack, used = 0.0, [(low, f(low), high, f(high), 0)], 0
    while stack:
        a, fa, b, fb, depth = stack.pop()
        middle = 0.5 * (a + b)
        fm = f(middle)
        used += 1
        halves = (cmath.phase(fm / fa), cmath.phase(fb / fm))
        if depth >= 6 and max(map(abs, halves)) < _TURN:
            total += sum(halves)
        elif used > _POINTS or depth > 60:
            raise EngineError("the characteristic function passes too near to 0: the equilibrium lies on the edge of stability")
        else:
            stack += [(a, fa, middle, fm, depth + 1), (middle, fm, b, fb, depth + 1)]
    return total


def _rightmost(form: Characteristic) -> complex:
    """Return the rightmost root that Newton's method finds from a grid of starts."""
    unit = 1.0 / max(form.point.rtt_s)
    best: complex | None = None
    for real in (-1.0, 0.5):
        for imaginary in np.linspace(0.0, 6.0, 13):
            root = _newton(form, unit * complex(real, float(imaginary)))
            if root is not None and (best is None or root.real > best.real + 1e-12):
                best = root
    if best is None:
        raise EngineError("no root of the characteristic function was found")
    return complex(best.real, abs(best.imag))


def _newton(form: Characteristic, s: complex) -> complex | None:
    scale = 1.0 / max(form.point.rtt_s)
    for _ in range(30):
        step = 1e-6 * scale
        value = form.value(s)
        slope = (form.value(s + step) - form.value(s - step)) / (2.0 * step)
        if slope == 0.0:
            return None
        moved = value / slope
        s -= moved
        if abs(s) > 200.0 * scale:
            return None
        if abs(moved) < 1e-10 * scale:
            return s
    return None
