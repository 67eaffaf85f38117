"""The game of two populations: known games, and the conditions of an equilibrium."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.training.league.games import Payoffs, equilibrium, payoffs_against


def one_scene(matrix: list[list[float]], nominal: list[float] | None = None, share: float = 0.5) -> Payoffs:
    attacked = np.array(matrix, dtype=np.float64)[:, :, None]
    return Payoffs(np.array(nominal or [0.0] * len(matrix))[:, None], attacked, share)


def test_equilibria_by_hand() -> None:
    """Without saddle point: (ad - bc) / (a + d - b - c) (J. von Neumann, O. Morgenstern 1944, section 18)."""
    found = equilibrium(one_scene([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]))
    np.testing.assert_allclose(found.senders, 1 / 3, atol=1e-9)
    np.testing.assert_allclose(found.networks[:, 0], 1 / 3, atol=1e-9)
    assert found.value == pytest.approx(0.0, abs=1e-9)
    found = equilibrium(one_scene([[0.9, 0.4], [0.5, 0.8]]))
    assert found.value == pytest.approx(0.5 * (0.9 * 0.8 - 0.4 * 0.5) / (0.9 + 0.8 - 0.4 - 0.5))
    assert found.senders[0] == pytest.approx(0.375)
    found = equilibrium(one_scene([[0.9, 0.9], [0.6, 0.6]], nominal=[0.2, 0.9], share=0.5))
    np.testing.assert_allclose(found.senders, [0.0, 1.0], atol=1e-9)
    assert found.value == pytest.approx(0.75)
    attacked = np.array([[[0.2, 0.9], [0.8, 0.3]], [[0.2, 0.9], [0.8, 0.3]]])  # network 0 is worse in scene 0 only
    found = equilibrium(Payoffs(np.zeros((2, 1)), attacked, 0.5))
    np.testing.assert_allclose(found.networks, [[1.0, 0.0], [0.0, 1.0]], atol=1e-9)
    assert found.value == pytest.approx(0.5 * (0.2 + 0.3) / 2)


@settings(max_examples=40)
@given(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)), st.floats(0.1, 0.9), st.integers(0, 2**32 - 1))
def test_nobody_gains_by_leaving_an_equilibrium(shape: tuple[int, int, int], share: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    payoffs = Payoffs(draw.random((shape[0], 5)), draw.random(shape), share)
    found = equilibrium(payoffs)
    assert found.senders.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(found.networks.sum(axis=0), 1.0)
    assert payoffs_against(payoffs, found.networks).max() == pytest.approx(found.value, abs=1e-7)
    nominal = (1 - share) * found.senders @ payoffs.nominal.mean(axis=1)
    for j in range(shape[1]):
        of_network = nominal + share * (found.senders @ payoffs.attacked[:, j]).mean()
        assert of_network >= found.value - 1e-7


def test_matrix_and_guarantees_are_those_of_plain_loops() -> None:
    draw = np.random.default_rng(3)
    payoffs = Payoffs(draw.random((3, 4)), draw.random((3, 2, 5)), 0.4)
    for i in range(3):
        nominal = 0.6 * sum(payoffs.nominal[i]) / 4
        worst = sum(min(payoffs.attacked[i, j, k] for j in range(2)) for k in range(5)) / 5
        assert payoffs.guarantees[i] == pytest.approx(nominal + 0.4 * worst)
        for j in range(2):
            assert payoffs.matrix[i, j] == pytest.approx(nominal + 0.4 * sum(payoffs.attacked[i, j]) / 5)
