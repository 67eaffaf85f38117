"""Solved games: exact belief sets against replay of histories, values against minimax, and what the theory says."""

import random
from fractions import Fraction
from typing import Any

import pytest

from ccenv.base.config import shipped_names
from ccenv.base.errors import InputError
from ccenv.proofs.games import boards as boards_module
from ccenv.proofs.games.boards import Boards, explore
from ccenv.proofs.games.game import GAMES, Game, load_game
from ccenv.proofs.games.values import convergence, is_certificate, ramp_steps, regret, share_kept, steps_to
from tests.oracles import slow_games

SMALL = [
    Game(model="ideal", jitter_steps=0, rates=(1, 2, 3), buffers=(0, "C"), loss=2),
    Game(model="cbr", jitter_steps=0, rates=(1, 3), buffers=(1, "2C"), loss="C"),
    Game(model="cbr", jitter_steps=1, rates=(1, 2, 3), buffers=("up to C",), loss=1),
    Game(model="cbr", jitter_steps=2, rates=(1, 2), buffers=(0, "2C"), loss=1),
    Game(model="cbr", jitter_steps=2, rates=(1, 2, 3), buffers=("inf",), loss=0, most_inflight=7),
    Game(model="ccac", jitter_steps=1, rates=(1, 2), buffers=(0, 1), loss=1),
    Game(model="ccac", jitter_steps=1, rates=(1, 3), buffers=("C",), loss="C/2+1"),
    Game(
        model="ideal", jitter_steps=0, rates=(1, 2), buffers=(1, "inf"), loss=1, most_inflight=6, delays=(1, 2, 3),
        start_inflight=2,
    ),
    Game(model="ideal", jitter_steps=0, rates=(1, 3), buffers=("2C",), loss="C", delays=(2, 4)),
]  # fmt: skip


def game(**fields: Any) -> Game:
    return Game(**{"model": "cbr", "rates": (1, 2, 3, 4), "buffers": (0,), "loss": 1, "most_inflight": 16} | fields)


@pytest.mark.parametrize("small", SMALL, ids=lambda g: f"{g.model}{g.jitter_steps}-{g.buffers}")
def test_boards_equal_replay_of_histories(small: Game) -> None:
    """Along random play every board is the set of all that explains the history, and so are all answers and all legal actions."""
    boards, draw = explore(small), random.Random(1)
    for _ in range(3):
        board, history = 0, ()
        for _ in range(4):
            legal = int(boards.actions[board])
            sent = draw.randrange(legal)
            after = slow_games.answers(small, history, sent)
            edges = boards.answers(board, sent)
            found = {(int(boards.delivered[e]), int(boards.lost[e])): set(boards.members(int(boards.target[e]))) for e in edges}
            assert found == after and slow_games.is_legal(small, history, sent, after)
            if legal <= small.most_sent:
                assert not slow_games.is_legal(small, history, legal, slow_games.answers(small, history, legal))
            edge = draw.choice(list(edges))
            history = (*history, (sent, int(boards.delivered[edge]), int(boards.lost[edge])))
            board = int(boards.target[edge])
            assert boards.inflight[board] == slow_games.in_flight(small, history)


@pytest.mark.parametrize(
    "small",
    [
        Game(model="cbr", jitter_steps=1, rates=(1, 2), buffers=(0, "C"), loss=1, most_inflight=4),
        Game(model="cbr", jitter_steps=2, rates=(1, 2), buffers=(1,), loss=1, most_inflight=4),
        Game(model="ccac", jitter_steps=1, rates=(1, 2), buffers=(0,), loss=1, most_inflight=4),
        game(model="ideal", jitter_steps=0, rates=(1, 2), buffers=(1,), most_inflight=4, delays=(1, 2), start_inflight=2),
    ],
    ids=("cbr", "cbr-2", "ccac", "delays"),
)
def test_regret_equals_minimax_over_histories(small: Game) -> None:
    boards = explore(small)
    assert [regret(boards, steps) for steps in (1, 2, 3)] == [slow_games.regret(small, steps) for steps in (1, 2, 3)]


def test_random_small_games_equal_minimax_over_histories() -> None:
    """Regret after one and two steps, and steps to converge, against a search that knows no boards."""
    draw = random.Random(7)
    for _ in range(12):
        model, steps = draw.choice([("ideal", 0), ("cbr", 0), ("cbr", 1), ("cbr", 2), ("ccac", 1)])
        rates, buffers = sorted(draw.sample([1, 2, 3], 2)), draw.sample([0, 1, 2, "C", "2C", "up to C"], draw.choice([1, 2]))
        fields = {"loss": draw.choice([0, 1, 2, "C", "sqrt(C)"]), "most_inflight": draw.choice([3, 4, 5])}
        if model == "ideal":
            fields |= {"delays": (1, draw.choice([2, 3])), "start_inflight": draw.choice([0, 1, 2])}
        small = game(model=model, jitter_steps=steps, rates=tuple(rates), buffers=(*buffers, 2), **fields)
        boards = explore(small)
        assert [regret(boards, horizon) for horizon in (1, 2)] == [slow_games.regret(small, horizon) for horizon in (1, 2)]
        found = steps_to(boards, rates[1])
        assert slow_games.steps_to(small, rates[1], 2) == (found if found is not None and found <= 2 else None)


@pytest.mark.parametrize(("fields", "loss", "value"), [
    *(({"model": "ideal", "jitter_steps": 0, "buffers": (b,)}, 1, v) for b, v in ((0, 3), ("C", 1), ("inf", 0))),
    *(({"buffers": (b,)}, 1, v) for b, v in ((0, 7), ("C", 5), ("up to C", 11), ("2C", 4))),
    *(({"buffers": (b,)}, 2, v) for b, v in ((0, 5), ("C", 4), ("up to C", 5), ("inf", 4))),
    *(({"jitter_steps": 2, "buffers": (b,)}, 1, v) for b, v in ((0, 11), ("up to C", 15), ("2C", 8))),
    *(({"model": "ccac", "buffers": (b,)}, 1, v) for b, v in ((0, 11), ("C", 9), ("up to C", 14), ("2C", 7))),
    *(({"model": m, "jitter_steps": d}, "free", 4 * d) for m, d in (("ideal", 0), ("cbr", 1), ("cbr", 2), ("ccac", 1))),
    ({"feedback_steps": 1}, "free", 8),
])  # fmt: skip
def test_regret_of_the_design_page(fields: dict[str, Any], loss: int | str, value: int) -> None:
    """Rates up to 4, after 64 steps and after 128; with free loss it is C_max (D + extra feedback)."""
    boards = explore(game(**fields, loss=loss))
    assert (regret(boards, 64), regret(boards, 128)) == (value, value)


def test_ccac_converges_quadratically_and_cbr_delay_linearly() -> None:
    """Theorem 1 of docs/games.md: C (C + 1)/2 - 1 steps on CCAC; (C + 1)(C + 2)/2 - 3 if a buffer of C is possible too."""
    rates = tuple(range(1, 8))
    none = convergence(game(model="ccac", rates=rates, most_inflight=None))
    assert none == {rate: rate * (rate + 1) // 2 - 1 for rate in rates[1:]}
    either = convergence(game(model="ccac", rates=rates[:6], buffers=(0, "C"), most_inflight=None))
    assert either == {rate: (rate + 1) * (rate + 2) // 2 - 3 for rate in rates[1:6]}
    assert list(convergence(game(rates=rates, buffers=("C",), most_inflight=None)).values()) == [1, 2, 3, 4, 5, 6]
    assert list(convergence(game(rates=rates[:6], buffers=("up to C",), most_inflight=None)).values()) == [2, 5, 9, 13, 17]


@pytest.mark.parametrize("loss", [1, 2, "sqrt(C)", "C/2+1", "C"])
def test_ideal_link_converges_as_theorem_6_1_says(loss: int | str) -> None:
    ideal = game(model="ideal", jitter_steps=0, rates=tuple(range(1, 11)), loss=loss, most_inflight=None)
    assert convergence(ideal) == ramp_steps(ideal)


@pytest.mark.parametrize("loss", [1, 2, 3])
def test_ccac_without_a_buffer_drains_no_faster_than_theorem_2_says(loss: int) -> None:
    for rate, steps in convergence(game(model="ccac", rates=tuple(range(1, 11)), loss=loss, most_inflight=None)).items():
        assert steps is not None and steps * loss * (loss + 1) / 2 >= sum(j + 1 for j in range(1, rate))


def test_starved_senders_have_certificates_of_both_sides() -> None:
    """Without loss and buffer the sender keeps one packet a step of four; each certificate is checked edge by edge."""
    boards = explore(game(loss=0))
    kept = share_kept(boards)
    assert kept.starves and (kept.share, kept.below) == (Fraction(1, 4), Fraction(31, 120))
    assert is_certificate(boards, kept.share, kept.sender_credit, of_network=False)
    assert is_certificate(boards, kept.below, kept.network_credit, of_network=True)
    assert not is_certificate(boards, kept.below, kept.sender_credit, of_network=False)
    assert not is_certificate(boards, kept.share - Fraction(1, 120), kept.network_credit, of_network=True)
    assert steps_to(boards, 2) is None


def test_senders_that_do_not_starve_have_a_credit() -> None:
    boards = explore(load_game("cbr_small"))
    kept = share_kept(boards)
    assert not kept.starves and kept.share == 1 and is_certificate(boards, kept.share, kept.sender_credit, of_network=False)


def test_value_is_monotone_in_the_paths() -> None:
    """A sender that knows less is not better off: fewer rates, a weaker model, a shorter D."""
    most = regret(explore(game(rates=(1, 2, 3, 4), buffers=(0, "C"))), 64)
    assert regret(explore(game(rates=(1, 2, 4), buffers=(0, "C"))), 64) <= most
    assert regret(explore(game(buffers=("C",))), 64) <= most
    assert most <= regret(explore(game(buffers=(0, "C"), model="ccac")), 64)
    assert most <= regret(explore(game(buffers=(0, "C"), jitter_steps=2)), 64)


SIZES = {"ideal_delays": 71, "cbr_deep": 2706, "cbr_late": 1053, "cbr_small": 1962, "ccac_small": 104, "ideal": 15}


@pytest.mark.parametrize("name", sorted(SIZES))
def test_shipped_games(name: str) -> None:
    assert len(explore(load_game(name))) == SIZES[name]


def test_all_shipped_games_are_tested() -> None:
    assert sorted(SIZES) == shipped_names(GAMES, ".yaml")


def test_a_grid_that_does_not_fit_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    large = game(rates=tuple(range(1, 17)), buffers=(0, "C", "2C"), most_inflight=None, loss="free")
    with pytest.raises(InputError, match=r"would take about \d.* GB; 2 GB are allowed"):
        explore(large)
    monkeypatch.setattr(boards_module, "MEMORY_BYTES", 100_000)
    with pytest.raises(InputError, match="are allowed"):
        explore(load_game("cbr_small"))


@pytest.mark.parametrize(("fields", "message"), [
    ({"buffers": ("inf",), "most_inflight": None}, "give most_inflight"), ({"buffers": ("3D",)}, "buffer '3D' must be"),
    ({"buffers": (-1,)}, "a buffer of -1 packets"), ({"delays": (2, 1)}, "delays must ascend"),
    ({"delays": (1, 2)}, "take model 'ideal' and feedback_steps 0"),
    ({"model": "ideal", "jitter_steps": 0, "start_inflight": 17}, "at most 16 packets may be in flight"),
    ({"loss": "much"}, "allowance 'much' must be"), ({"loss": -1}, "an allowance of -1 packets"),
    ({"rates": (2, 1)}, "rates must ascend"), ({"model": "ccac", "jitter_steps": 2}, "jitter_steps is 2; model 'ccac' takes 1"),
    ({"buffers": (9,), "deepest_buffer_bdp": 1}, "none is left"),
])  # fmt: skip
def test_impossible_games_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        game().changed(**fields)


def test_boards_know_their_extremes() -> None:
    boards: Boards = explore(load_game("cbr_deep"))
    for board in range(0, len(boards), 97):
        inside = boards.members(board)
        assert boards.slowest[board] == min(rate for rate, *_ in inside)
        assert boards.fastest[board] == max(rate for rate, *_ in inside)
        queues = [max(0, -level) for _, _, level, *_ in inside]
        assert boards.queues(board) == (min(queues), max(queues))
        assert boards.held[board].tolist() == [any(held == rate for held, *_ in inside) for rate in boards.game.rates]
        assert boards.region()[board].sum() == len(inside)
