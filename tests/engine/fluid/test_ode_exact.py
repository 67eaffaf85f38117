"""Theorems 1-5 of [BBR-fluid] in exact rational arithmetic: equilibria, Jacobians by dual numbers, eigenvalues by rank.

Each identity is between rational functions of N, d and C; it is checked without rounding at many rational points.
"""

from __future__ import annotations

from fractions import Fraction as F
from itertools import product

import numpy as np
import pytest

from ccenv.engine.fluid.analysis.equilibria import Bottleneck, equilibrium
from ccenv.engine.fluid.analysis.stability import eigenvalues_theorem_5, jacobian

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


def total(terms):
    out = terms[0]
    for term in terms[1:]:
        out = out + term
    return out


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
    assert dynamics(*variables([c, d * c]))[0].value == 0
    assert jac == [[-1 / (2 * d) - 1, -1 / (2 * d)], [1, 0]]
    eigenvalues = {F(-1), -1 / (2 * d)}
    assert all(multiplicity(jac, value) == 1 for value in eigenvalues)
    path = Bottleneck(float(c), (float(d),) * n)
    np.testing.assert_allclose(jacobian(path, equilibrium("bbr1", path)), np.array(jac, float), rtol=1e-14)


@pytest.mark.parametrize(("n", "d", "c"), POINTS)
def test_theorem_3_exactly(n, d, c):
    """Eqs. 57-62: fair x_btl, loss (N - 1)/(5N), eigenvalues -1/(4N + 1) and -1."""
    fair = 5 * c / (4 * n + 1)
    x = variables([fair] * n)
    dots = [delivery(F(5, 4) * x[i], total([x[j] for j in range(n) if j != i]), c) - x[i] for i in range(n)]
    assert all(dot.value == 0 for dot in dots)
    assert 1 - c / (n * fair) == F(n - 1, 5 * n)
    jac = rows(dots)
    assert all(jac[i][j] == (F(-5, 4 * n + 1) if i == j else F(-4, 4 * n + 1)) for i in range(n) for j in range(n))
    assert multiplicity(jac, F(-1, 4 * n + 1)) == n - 1
    assert multiplicity(jac, F(-1)) == 1
    path = Bottleneck(float(c), (float(d),) * n, float(d * c) / 2)
    np.testing.assert_allclose(jacobian(path, equilibrium("bbr1", path)), np.array(jac, float), rtol=1e-14)


@pytest.mark.parametrize(("n", "d", "c"), POINTS)
def test_theorems_4_and_5_exactly(n, d, c):
    """Eqs. 49-51 and 66-78: queue (N - 1)/(4N + 1) d C, three kinds of eigenvalues, of which eq. 78 gives one."""

    def dynamics(*state):
        x, q = list(state[:n]), state[n]
        share = d / (d + q / c)
        growth = total(x) - c
        share_dot = share * growth * -1 / (c * (d + q / c))
        out = []
        for i in range(n):
            x_btl = x[i] / share
            others = total([x[j] for j in range(n) if j != i])
            x_btl_dot = delivery(F(5, 4) * x[i], others, c) - x_btl
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
    assert multiplicity(jac, F(-1, 4 * n + 1)) == n - 1
    assert multiplicity(jac, F(-1)) == 1
    assert multiplicity(jac, -largest_of_pair) == 1
    path = Bottleneck(float(c), (float(d),) * n)
    np.testing.assert_allclose(jacobian(path, equilibrium("bbr2", path)), np.array(jac, float), rtol=1e-12)
    exact = sorted([-1 / (4 * n + 1)] * (n - 1) + [-1.0, -float(largest_of_pair)])
    np.testing.assert_allclose(np.sort(eigenvalues_theorem_5(path)), exact, rtol=1e-12)


@pytest.mark.parametrize(("n", "d", "c"), POINTS)
def test_theorem_1_exactly(n, d, c):
    """With q = d C every division of C rests; with any other window factor none does (N >= 2, all shares above 0)."""
    weights = [F(k + 1) for k in range(n)]
    shares = [c * w / sum(weights) for w in weights]
    for factor in (F(3, 4), F(1), F(9, 8), F(3, 2)):
        probing, cruising = min(F(5, 4), factor), min(F(1), factor)
        x = [s / cruising for s in shares]  # so that the arrival rate is C and the queue rests
        moves = [delivery(probing * x[i], c - shares[i], c) - x[i] for i in range(n)]
        assert all(m == 0 for m in moves) == (factor == 1)


def test_one_flow_rests_for_every_shorter_queue():
    """N = 1: eqs. 55 and 56 agree for every factor of at least 1, so theorem 1's "only if" needs two flows."""
    c = F(7)
    for factor in (F(1), F(9, 8), F(2)):
        assert delivery(min(F(5, 4), factor) * c, F(0), c) - c == 0


def test_equation_36_exactly():
    """The derivative of eq. 35 by d_i: numerator 2 x_btl q sum_j x_j; the print lacks the factor q."""
    for d, q, x_btl, others, c in product((F(1, 30), F(1, 10)), (F(1, 5), F(3)), (F(1, 2), F(2)), (F(1), F(5, 3)), (F(1), F(4))):
        (rtt,) = variables([d])
        rate = 2 * rtt * x_btl / (rtt + q / c)
        slope = (rate * c / (rate + others)).slopes[0]
        bottom = (2 * d * x_btl + (d + q / c) * others) ** 2
        assert slope == 2 * x_btl * q * others / bottom
        assert (slope == 2 * x_btl * others / bottom) == (q == 1)
