"""Stability of Reno over several RED links, with all delays: the characteristic function of the linearised fluid model."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ccenv.engine.fluid.analysis.network import NetworkEquilibrium, network_equilibrium, propagation_s
from ccenv.engine.fluid.scenario import Scenario
from ccenv.base.errors import EngineError, InputError

_RADIUS = 60.0  # of the contour, over the shortest RTT: beyond it s^n outweighs all feedback
_TURN = 0.5  # largest turn of the characteristic function between two points of the contour, rad
_POINTS = 200_000


@dataclass(frozen=True)
class NetworkStability:
    """What the characteristic function says about an equilibrium.

    Attributes:
        verdict: `asymptotically stable` or `unstable`.
        unstable_roots: number of roots with a positive real part (argument principle).
        rightmost: the root of the largest real part that Newton's method found, in 1/s: growth and angular frequency.
    """

    verdict: str
    unstable_roots: int
    rightmost: complex


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
