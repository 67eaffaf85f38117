"""Reduced models: theorems 1-5 of [BBR-fluid] against numerics over ranges of N, d and C, and exactly.

Each exact identity is between rational functions of N, d and C; it is checked without rounding at many rational points.
"""

from fractions import Fraction as F
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from ccenv.base.errors import InputError
from ccenv.engine.fluid.analysis.convergence import phase_portrait
from ccenv.engine.fluid.analysis.equilibria import (
    Bottleneck,
    bbr2_equilibrium,
    derivatives,
    equilibrium,
    find_equilibrium,
    residual,
)
from ccenv.engine.fluid.analysis.stability import (
    automatic_jacobian,
    central_jacobian,
    eigenvalues_theorem_2,
    eigenvalues_theorem_3,
    eigenvalues_theorem_5,
    is_stable,
    jacobian,
    jacobian_theorem_2,
    jacobian_theorem_3,
    jacobian_theorem_5,
    stability,
    verdict,
)

flows_st = st.integers(2, 40)
rtt_st = st.floats(0.002, 1.5)
rate_st = st.floats(1e4, 1e9)


def as_path(n, d, c, buffer_in_dc=np.inf):
    return Bottleneck(c, (d,) * n, buffer_in_dc * d * c)


@settings(max_examples=60, deadline=None)
@given(n=flows_st, d=rtt_st, c=rate_st, deep=st.floats(1.0, 20.0))
def test_theorem_1(n, d, c, deep):
    point = equilibrium("bbr1", as_path(n, d, c, deep))
    assert point.theorem == 1 and point.any_shares and point.loss == 0.0
    assert point.queue_bytes == pytest.approx(d * c, rel=1e-12)  # queueing delay = propagation delay
    assert sum(point.x_btl_Bps) == pytest.approx(c, rel=1e-12) and point.residual < 1e-12


@settings(max_examples=40, deadline=None)
@given(d=rtt_st, c=rate_st, weights=st.lists(st.floats(0.01, 1.0), min_size=2, max_size=12))
def test_theorem_1_allows_any_shares_and_one_queue(d, c, weights):
    path, x_btl = as_path(len(weights), d, c), c * np.array(weights) / sum(weights)
    assert residual("bbr1", path, x_btl, d * c) < 1e-12
    assert min(residual("bbr1", path, x_btl, factor * d * c) for factor in (0.7, 0.95, 1.05, 1.5)) > 1e-4


@settings(max_examples=60, deadline=None)
@given(n=flows_st, d=rtt_st, c=rate_st, buffer=st.floats(0.01, 0.599))
def test_theorem_3(n, d, c, buffer):
    point = equilibrium("bbr1", as_path(n, d, c, buffer))
    assert point.theorem == 3
    np.testing.assert_allclose(point.x_btl_Bps, 5 * c / (4 * n + 1), rtol=1e-12)
    assert point.queue_bytes == pytest.approx(buffer * d * c)
    assert point.loss == pytest.approx((n - 1) / (5 * n), rel=1e-9) and point.residual < 1e-12


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 40), d=rtt_st, c=rate_st)
def test_theorem_4(n, d, c):
    point = equilibrium("bbr2", as_path(n, d, c))
    assert point.theorem == 4 and point.queue_bytes == pytest.approx((n - 1) / (4 * n + 1) * d * c, rel=1e-12, abs=1e-9)
    np.testing.assert_allclose(point.rate_Bps, c / n, rtol=1e-12)
    assert point.queue_bytes < 0.25 * d * c  # at least 75 % less than BBRv1
    assert point.residual < 1e-12


def test_between_the_theorems_joins_both_ends():
    n, d, c = 10, 0.035, 12.5e6
    shallow = equilibrium("bbr1", as_path(n, d, c, 0.6))
    deep = equilibrium("bbr1", as_path(n, d, c, 1.0))
    losses = [equilibrium("bbr1", as_path(n, d, c, b)).loss for b in np.linspace(0.6001, 0.9999, 9)]
    assert shallow.loss > losses[0] > losses[-1] > deep.loss == 0.0 and losses == sorted(losses, reverse=True)
    middle = equilibrium("bbr1", as_path(n, d, c, 0.8))
    assert (middle.theorem, middle.regime) == (None, "between") and middle.residual < 1e-12
    with pytest.raises(InputError, match=r"theorems 1, 3 and 4"):
        stability(as_path(n, d, c, 0.8), middle)


@pytest.mark.parametrize("n", [2, 5, 10])
@pytest.mark.parametrize(("model", "buffer"), [("bbr1", 5.0), ("bbr1", 0.5), ("bbr1", 0.8), ("bbr2", 5.0)])
def test_numeric_finder_meets_the_closed_forms(model, buffer, n):
    path = as_path(n, 0.035, 12.5e6, buffer)
    closed, found = equilibrium(model, path), find_equilibrium(model, path)
    assert found.theorem is None and found.queue_bytes == pytest.approx(closed.queue_bytes, rel=1e-6)
    assert (sum(found.rate_Bps), found.loss) == pytest.approx((sum(closed.rate_Bps), closed.loss), rel=1e-6, abs=1e-6)
    if not closed.any_shares:
        np.testing.assert_allclose(found.x_btl_Bps, closed.x_btl_Bps, rtol=1e-5)


def test_numeric_finder_with_unequal_rtts():
    """Deep BBRv1: no equilibrium but the longest RTT taking everything (theorem 1); BBRv2: an unfair one."""
    path = Bottleneck(12.5e6, (0.030, 0.034, 0.040), 2e6)
    winner = find_equilibrium("bbr1", path)
    np.testing.assert_allclose(np.array(winner.rate_Bps) / 12.5e6, [0, 0, 1], atol=1e-3)
    assert winner.regime == "starved"
    shared = find_equilibrium("bbr2", path)
    assert list(shared.x_btl_Bps) == sorted(shared.x_btl_Bps) and min(shared.x_btl_Bps) > 0.2 * 12.5e6
    assert shared.residual < 1e-8


RTTS_MS = [(35,) * 10, (30, 33, 36, 40), (10, 100, 100), (44, 100, 100), (45, 100, 100), (20, 25, 60, 90, 100)]


@pytest.mark.parametrize("rtts_ms", RTTS_MS)
def test_every_equilibrium_of_bbr2(rtts_ms: tuple[int, ...]) -> None:
    """Each set of active flows has one at most; only one of them holds against a small rate of the others."""
    path = Bottleneck(12.5e6, tuple(rtt / 1e3 for rtt in rtts_ms))
    rtt, holding = np.array(path.rtt_s), []
    for active in product((False, True), repeat=len(rtt)):
        chosen = np.array(active)
        if not chosen.any():
            continue
        delay_s = brentq(lambda q, chosen=chosen: (5 * rtt / (rtt + q) - 4)[chosen].sum() - 1, 0, 1) if chosen.sum() > 1 else 0.0
        delta = rtt / (rtt + delay_s)
        if (delta[chosen] <= 0.8).any():
            continue
        x_btl = np.where(chosen, (5 - 4 / delta) * path.capacity_Bps, 0.0)
        assert residual("bbr2", path, x_btl, delay_s * path.capacity_Bps) < 1e-9
        grow, _, _ = derivatives("bbr2", path, np.where(chosen, x_btl, 1e-3), delay_s * path.capacity_Bps, saturated=True)
        if (grow[~chosen] <= 0).all():
            holding.append((x_btl, delay_s))
    point = bbr2_equilibrium(path)
    ((x_btl, delay_s),) = holding
    np.testing.assert_allclose(point.x_btl_Bps, x_btl, atol=1)
    assert point.queue_bytes == pytest.approx(delay_s * path.capacity_Bps) and point.residual < 1e-9
    assert (point.regime == "starved") == (min(path.rtt_s) <= 4 * delay_s) == (min(rtts_ms) in (10, 20, 44))
    assert point.theorem == (4 if len(set(rtts_ms)) == 1 else None)


def test_theorem_1_does_not_hold_for_one_flow():
    """Deviation: with N = 1 every queue up to d C rests."""
    path = as_path(1, 0.035, 12.5e6)
    for queue_share in (0.1, 0.5, 1.0):
        assert residual("bbr1", path, np.array([12.5e6]), queue_share * 0.035 * 12.5e6) < 1e-12
    assert residual("bbr1", path, np.array([12.5e6]), 1.1 * 0.035 * 12.5e6) > 0.01


CLOSED_FORMS = {
    2: ("bbr1", np.inf, jacobian_theorem_2, eigenvalues_theorem_2),
    3: ("bbr1", 0.5, jacobian_theorem_3, eigenvalues_theorem_3),
    5: ("bbr2", np.inf, jacobian_theorem_5, eigenvalues_theorem_5),
}


@pytest.mark.parametrize("theorem", CLOSED_FORMS)
@settings(max_examples=40, deadline=None)
@given(n=flows_st, d=rtt_st, c=rate_st)
def test_jacobians_and_eigenvalues_of_theorems_2_3_and_5(theorem, n, d, c):
    """Their entries are those derived exactly below; a value is an eigenvalue where J - value is singular."""
    model, buffer, jacobian_of, eigenvalues_of = CLOSED_FORMS[theorem]
    path = as_path(n, d, c, buffer)
    point, closed, values = equilibrium(model, path), jacobian_of(path), eigenvalues_of(path)
    size = np.abs(closed).max()
    np.testing.assert_allclose(automatic_jacobian(path, point), closed, rtol=1e-6, atol=(1e-9 if theorem == 3 else 1e-7) * size)
    assert len(values) == len(closed) and np.trace(closed) == pytest.approx(values.sum(), rel=1e-9)
    for value in values:
        assert np.linalg.svd(closed - value * np.eye(len(closed)), compute_uv=False)[-1] < 1e-9 * size * n
    assert is_stable(path, point)


@pytest.mark.parametrize(("y", "q"), [(0.8, 1.3), (1.2, 2.0), (1.0, 1.0)])
def test_theorem_2_jacobian_away_from_the_equilibrium(y, q):
    """Eqs. 44-46 as functions of (y, q), against eqs. 41-43 built from the reduced model by the chain rule."""
    n, d, c = 4, 0.05, 2e6
    path = as_path(n, d, c)
    region = np.full(n, 2)

    def dynamics(z):
        unit = derivatives("bbr1", path, np.ones(n), z[1], region=region, saturated=True)[2]
        x_btl = np.full(n, z[0] / n) / unit
        dx, dq, _ = derivatives("bbr1", path, x_btl, z[1], region=region, saturated=True)
        step = 1e-6
        later = derivatives("bbr1", path, x_btl + step * dx, z[1] + step * dq, region=region, saturated=True)[2].sum()
        earlier = derivatives("bbr1", path, x_btl - step * dx, z[1] - step * dq, region=region, saturated=True)[2].sum()
        return np.array([(later - earlier) / (2 * step), dq])

    at = np.array([y * c, q * d * c])
    numeric = central_jacobian(dynamics, at, np.array([c, d * c]), 1e-4)
    np.testing.assert_allclose(numeric, jacobian_theorem_2(path, *at), rtol=1e-4, atol=1e-3)


def test_theorem_2_below_the_kink():
    """The printed proof covers q > d C; below it the model is a stable spiral or node as well."""
    path = as_path(10, 0.035, 12.5e6)
    found = stability(path, equilibrium("bbr1", path))
    roots = np.roots([1, 1, (1 - 1 / 10) / (2 * 0.035)])
    np.testing.assert_allclose(np.array(found.below), roots[np.argsort(roots.imag)], rtol=1e-6)
    assert all(v.real < 0 for v in found.below)


def test_equation_78_is_not_the_largest_eigenvalue():
    """Deviation: -1 is neither the largest of all (N >= 2) nor of the quadratic once d + q/C > 1 s."""
    fast, slow = as_path(10, 0.035, 1e6), as_path(10, 2.0, 1e6)
    assert eigenvalues_theorem_5(fast).max() == pytest.approx(-1 / 41)
    assert any(-1 < value < -2 / 41 for value in eigenvalues_theorem_5(slow)) and is_stable(slow, equilibrium("bbr2", slow))


@pytest.mark.parametrize(("second", "said"), [(-0.1 + 2j, "asymptotically stable"), (0.0, "undetermined"), (0.2, "unstable")])
def test_verdict(second, said):
    assert verdict(np.array([-1.0, second])) == said


@pytest.mark.parametrize("model", ["bbr1", "bbr2"])
def test_phase_portrait_ends_at_the_equilibrium(model):
    path = as_path(10, 0.035, 12.5e6, 2.0)
    portrait = phase_portrait(model, path, grid=5, duration_s=8.0)
    for line in portrait.trajectories:
        np.testing.assert_allclose(line[-1], portrait.rest, atol=0.01)
        assert (line[:, 1] >= 0).all() and (line[:, 1] <= 2.0 + 1e-9).all()
    assert portrait.speed_x.shape == (5, 5)


def test_phase_portrait_of_two_flows():
    """Shallow: every start ends at equal shares (theorem 3). Deep: shares stay what they were (theorem 1)."""
    shallow = phase_portrait("bbr1", as_path(2, 0.035, 12.5e6, 0.5), "shares", grid=3, duration_s=40.0)
    for line in shallow.trajectories:
        np.testing.assert_allclose(line[-1], [5 / 9, 5 / 9], atol=0.02)
    deep = phase_portrait("bbr1", as_path(2, 0.035, 12.5e6, 5.0), "shares", grid=3, duration_s=8.0)
    for line in deep.trajectories:
        assert line[-1].sum() == pytest.approx(1.0, abs=1e-3)
        assert line[-1][0] / line[-1][1] == pytest.approx(line[0][0] / line[0][1], rel=1e-6)


@pytest.mark.parametrize(("arguments", "theorem", "queue", "share", "loss_pct"), [
    (("bbr1", "--flows", "10", "--buffer", "7"), 1, 437_500.0, 0.1, 0.0),
    (("bbr1", "--flows", "10", "--buffer", "2"), 3, 250_000.0, 5 / 41, 18.0),
    (("bbr2", "--flows", "10", "--buffer", "7"), 4, 9 / 41 * 437_500.0, 5 / 41, 0.0),
])  # fmt: skip
def test_command_line_equals_the_theorems(arguments, theorem, queue, share, loss_pct, answer):
    out = answer(["ode", "equilibrium", *arguments, "--stability", "--json"])
    assert out["theorem"] == theorem and out["stability"]["verdict"] == "asymptotically stable"
    assert (out["queue_bytes"], out["loss_pct"]) == pytest.approx((queue, loss_pct), abs=1e-9)
    np.testing.assert_allclose(out["x_btl_Bps"], share * 12.5e6, rtol=1e-9)
    expected = {1: [-1, -1 / 0.07], 3: [-1 / 41] * 9 + [-1], 4: [-1 / 41] * 9 + [-1, -41 / (50 * 0.035)]}  # eqs. 48, 59-62, 78
    for key in ("eigenvalues", "automatic"):
        np.testing.assert_allclose([v["real"] for v in out["stability"][key]], expected[theorem], rtol=1e-6)


POINTS = list(product((2, 3, 5), (F(1, 40), F(7, 100), F(3, 2)), (F(1), F(125, 10))))


class Dual:
    """A number with exact first derivatives."""

    def __init__(self, value, slopes):
        self.value, self.slopes = F(value), tuple(slopes)

    def _other(self, other):
        return other if isinstance(other, Dual) else Dual(other, [F(0)] * len(self.slopes))

    def __add__(self, other):
        o = self._other(other)
        return Dual(self.value + o.value, [a + b for a, b in zip(self.slopes, o.slopes, strict=True)])

    def __mul__(self, other):
        o = self._other(other)
        return Dual(self.value * o.value, [a * o.value + self.value * b for a, b in zip(self.slopes, o.slopes, strict=True)])

    def __truediv__(self, other):
        o = self._other(other)
        return self * Dual(1 / o.value, [-b / o.value**2 for b in o.slopes])

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + -self._other(other)

    def __rtruediv__(self, other):
        return self._other(other) / self

    __radd__, __rmul__ = __add__, __mul__


def variables(values):
    return [Dual(v, [F(int(i == j)) for j in range(len(values))]) for i, v in enumerate(values)]


def rows(derivatives):
    return [list(d.slopes) for d in derivatives]


def delivery(pulse, others, c):
    """Eqs. 37 and 51, first case."""
    return pulse * c / (pulse + others)


def rank(matrix):
    m = [list(row) for row in matrix]
    found = 0
    for column in range(len(m[0])):
        pivot = next((r for r in range(found, len(m)) if m[r][column]), None)
        if pivot is None:
            continue
        m[found], m[pivot] = m[pivot], m[found]
        for r in range(found + 1, len(m)):
            factor = m[r][column] / m[found][column]
            m[r] = [a - factor * b for a, b in zip(m[r], m[found], strict=True)]
        found += 1
    return found


def multiplicity(matrix, eigenvalue):
    """Dimension of the eigenspace."""
    n = len(matrix)
    return n - rank([[matrix[i][j] - (eigenvalue if i == j else 0) for j in range(n)] for i in range(n)])


@pytest.mark.parametrize(("n", "d", "c"), POINTS)
def test_theorem_2_exactly(n, d, c):
    """Eqs. 41-43 from the reduced model with the window binding, then eqs. 44-48."""

    def dynamics(y, q):
        window = 2 * d / (d + q / c)
        growth = y - c
        window_dot = window * growth * -1 / (c * (d + q / c))
        x_btl = y / window
        x_btl_dot = x_btl * c / x_btl - x_btl  # eq. 41 summed over the flows
        return window_dot * x_btl + window * x_btl_dot, growth

    jac = rows(dynamics(*variables([c, d * c])))
    assert dynamics(*variables([c, d * c]))[0].value == 0 and jac == [[-1 / (2 * d) - 1, -1 / (2 * d)], [1, 0]]
    eigenvalues = {F(-1), -1 / (2 * d)}
    assert all(multiplicity(jac, value) == 1 for value in eigenvalues)
    path = Bottleneck(float(c), (float(d),) * n)
    np.testing.assert_allclose(jacobian(path, equilibrium("bbr1", path)), np.array(jac, float), rtol=1e-14)


@pytest.mark.parametrize(("n", "d", "c"), POINTS)
def test_theorem_3_exactly(n, d, c):
    """Eqs. 57-62: fair x_btl, loss (N - 1)/(5N), eigenvalues -1/(4N + 1) and -1."""
    fair = 5 * c / (4 * n + 1)
    x = variables([fair] * n)
    dots = [delivery(F(5, 4) * x[i], sum(x) - x[i], c) - x[i] for i in range(n)]
    assert all(dot.value == 0 for dot in dots) and 1 - c / (n * fair) == F(n - 1, 5 * n)
    jac = rows(dots)
    assert all(jac[i][j] == (F(-5, 4 * n + 1) if i == j else F(-4, 4 * n + 1)) for i in range(n) for j in range(n))
    assert [multiplicity(jac, value) for value in (F(-1, 4 * n + 1), F(-1))] == [n - 1, 1]
    path = Bottleneck(float(c), (float(d),) * n, float(d * c) / 2)
    np.testing.assert_allclose(jacobian(path, equilibrium("bbr1", path)), np.array(jac, float), rtol=1e-14)


@pytest.mark.parametrize(("n", "d", "c"), POINTS)
def test_theorems_4_and_5_exactly(n, d, c):
    """Eqs. 49-51 and 66-78: queue (N - 1)/(4N + 1) d C, three kinds of eigenvalues, of which eq. 78 gives one."""

    def dynamics(*state):
        x, q = list(state[:n]), state[n]
        share = d / (d + q / c)
        growth = sum(x) - c
        share_dot = share * growth * -1 / (c * (d + q / c))
        out = []
        for i in range(n):
            x_btl = x[i] / share
            x_btl_dot = delivery(F(5, 4) * x[i], sum(x) - x[i], c) - x_btl
            out.append(share_dot * x_btl + share * x_btl_dot)
        return [*out, growth]

    queue = F(n - 1, 4 * n + 1) * d * c
    dots = dynamics(*variables([c / n] * n + [queue]))
    assert all(dot.value == 0 for dot in dots)
    jac = rows(dots)
    a = (4 * n + 1) / (5 * n**2 * d)
    expected = [[-a - (F(5) if i == j else F(4)) / (4 * n + 1) for j in range(n)] + [-a] for i in range(n)]
    assert jac == [*expected, [F(1)] * n + [F(0)]]
    largest_of_pair = (4 * n + 1) / (5 * n * d)
    assert [multiplicity(jac, value) for value in (F(-1, 4 * n + 1), F(-1), -largest_of_pair)] == [n - 1, 1, 1]
    path = Bottleneck(float(c), (float(d),) * n)
    np.testing.assert_allclose(jacobian(path, equilibrium("bbr2", path)), np.array(jac, float), rtol=1e-12)
    exact = sorted([-1 / (4 * n + 1)] * (n - 1) + [-1.0, -float(largest_of_pair)])
    np.testing.assert_allclose(np.sort(eigenvalues_theorem_5(path)), exact, rtol=1e-12)
