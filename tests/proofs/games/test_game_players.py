"""Players of games: programs on the engine's bounds, and learned policies."""

from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ccenv.base.errors import InputError
from ccenv.engine.compiled.beliefs import belief_settings
from ccenv.proofs.games.boards import explore
from ccenv.proofs.games.bounds import FIELDS, BoundsSender, EngineBounds
from ccenv.proofs.games.game import Game, load_game
from ccenv.proofs.games.players import NETWORKS, POLICIES, first_error, line, optimal_share, regret_of, sender_on
from ccenv.proofs.games.values import Solved
from tests.oracles.beliefs import ReferenceBeliefs

ONE = Fraction(1)


@pytest.fixture(scope="module")
def cbr_small() -> Solved:
    return Solved(explore(load_game("cbr_small")))


@pytest.mark.parametrize("name", ["cbr_small", "ccac_small", "ideal", "cbr_late"])
def test_bounds_of_a_run_are_those_of_the_reference(name: str) -> None:
    """Random play: C_L, C_U and C_L_lambda equal the reference that other tests hold equal to the kernel."""
    game = load_game(name)
    boards, draw = explore(game), np.random.default_rng(1)
    runs, reference = EngineBounds(game), ReferenceBeliefs(1, game.jitter_steps, ONE, ONE, belief_settings("no_timeout"), 1, 10)
    board, sent_before, curves = 0, 0, [[Fraction(0)] for _ in range(3)]
    for _ in range(game.horizon_steps):
        action = int(draw.integers(boards.actions[board]))
        edge = int(draw.choice(list(boards.answers(board, action))))
        sent, delivered, lost = sent_before if game.feedback_steps else action, boards.delivered[edge], boards.lost[edge]
        runs.follow(np.zeros(1, np.int64), np.array([sent]), np.array([int(delivered)]), np.array([int(lost)]))
        for curve, step in zip(curves, (sent - int(lost), int(lost), int(delivered)), strict=True):
            curve.append(curve[-1] + step)
        expected = reference.update(*curves)
        known = dict(zip(FIELDS, runs.bounds()[0], strict=True))
        assert [known[bound] for bound in ("C_L", "C_U", "C_L_lambda")] == pytest.approx([float(x) for x in expected])
        assert known["C_L"] <= boards.slowest[boards.target[edge]] + 1e-9
        board, sent_before = int(boards.target[edge]), action


def replayed_regret(sender: BoundsSender, solved: Solved) -> int:
    """Return the largest regret over all answers of the network, each history replayed from its start."""
    boards, largest = solved.boards, 0
    frontier = [((), 0, 0)]
    for _ in range(solved.horizon_steps):
        following = []
        for history, board, got in frontier:
            runs = EngineBounds(boards.game)
            for step in history:
                runs.follow(np.zeros(1, np.int64), *(np.array([x]) for x in step))
            action = min(int(sender.sends(runs.bounds())[0]), int(boards.actions[board]) - 1)
            for edge in boards.answers(board, action):
                step = (action, int(boards.delivered[edge]), int(boards.lost[edge]))
                following.append(((*history, step), int(boards.target[edge]), got + step[1]))
        frontier = following
    for _, board, got in frontier:
        largest = max(largest, int(boards.fastest[board]) * solved.horizon_steps - got)
    return largest


@pytest.mark.parametrize(("program", "model"), product(("cc_qdel", "cc_probe_slow"), ("cbr", "ccac")))
def test_the_search_finds_the_worst_network_of_short_games(program: str, model: str) -> None:
    solved = Solved(explore(Game(model=model, rates=(1, 2, 4), buffers=(0, "C"), loss=1, horizon_steps=4)))
    sender = sender_on(f"bounds:{program}", solved)
    assert isinstance(sender, BoundsSender) and regret_of(sender, solved) == replayed_regret(sender, solved) >= solved.value
    assert regret_of(sender, solved, "optimal") <= regret_of(sender, solved)
    assert regret_of(sender, solved, "random") <= regret_of(sender, solved)


def test_bounds_are_played_worse_than_exact_sets_and_the_first_error_is_a_line(cbr_small: Solved) -> None:
    exact, bounds = (sender_on(name, cbr_small) for name in ("cc_qdel", "bounds:cc_qdel"))
    assert [regret_of(exact, cbr_small, n) for n in NETWORKS[:2]] == [52, 51] and regret_of(bounds, cbr_small) >= 56
    rows = first_error(bounds, cbr_small)
    assert rows[-1]["error"] > 0 and rows == line(bounds, cbr_small)[: len(rows)]


def test_shipped_policies_play_their_games(cbr_small: Solved, tmp_path: Path) -> None:
    """PPO plays the value of cbr_small against the worst network; a policy of another game is refused."""
    for name in ("cbr_small", "cbr_deep", "ccac_small", "ideal", "cbr_late"):
        solved = cbr_small if name == "cbr_small" else Solved(explore(load_game(name)))
        for policy in POLICIES:
            assert regret_of(sender_on(policy, solved), solved, "optimal") >= solved.value
    ppo = sender_on("ppo", cbr_small)
    assert [regret_of(ppo, cbr_small, n) for n in NETWORKS[:2]] == [34, 34] and 0.5 < optimal_share(ppo, cbr_small) < 1
    other = Solved(explore(Game(name="mine", model="ideal", jitter_steps=0, rates=(1, 2), buffers=(0,), loss=1)))
    with pytest.raises(InputError, match="unknown policy of a game 'ppo_mine'"):
        sender_on("ppo", other)
    with pytest.raises(InputError, match="not those of game 'ideal'"):
        sender_on("ppo", Solved(explore(load_game("ideal").changed(rates=(1, 2)))))
