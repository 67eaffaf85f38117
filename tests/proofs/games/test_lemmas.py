"""Lemmas 2.1 and 4.1 of [CCmatic] as games without value: what a sender cannot bound while its belief set does not shrink."""

from fractions import Fraction

import numpy as np
import pytest

from ccenv.proofs.games.boards import explore
from ccenv.proofs.games.game import Game, load_game
from ccenv.proofs.games.values import delay_kept, is_certificate, kept_for_ever, share_kept, unshrunk
from tests.oracles import slow_games


@pytest.mark.parametrize("fastest", [2, 3, 4, 5, 6])
def test_lemma_2_1_is_a_game_without_value(fastest: int) -> None:
    """Where nothing bounds C from above the sender keeps C_min/C_max of the link, which goes to 0 with C_max."""
    boards = explore(Game(model="cbr", rates=tuple(range(1, fastest + 1)), buffers=(0,), loss=0))
    kept = share_kept(boards)
    assert unshrunk(boards)
    assert kept.starves and kept.share == Fraction(1, fastest) and kept.below is not None
    assert is_certificate(boards, kept.below, kept.network_credit, of_network=True)  # type: ignore[arg-type]
    assert not unshrunk(explore(Game(model="cbr", rates=tuple(range(1, fastest + 1)), buffers=(0,), loss=1)))


def window(rates: tuple[int, ...], longest: int) -> Game:
    """Return a game whose window fills the path of the greatest C and Rm: all RTTs are that Rm, or less and queue."""
    sizes = {"start_inflight": rates[-1] * (longest - 1), "most_inflight": rates[-1] * (2 * longest - 1)}
    delays = tuple(range(1, longest + 1))
    return Game(model="ideal", jitter_steps=0, rates=rates, buffers=("inf",), loss=0, delays=delays, **sizes)


@pytest.mark.parametrize("rates", [(2,), (1, 2), (3,)])
@pytest.mark.parametrize("longest", [1, 2, 3, 4])
def test_lemma_4_1_is_a_game_without_value(rates: tuple[int, ...], longest: int) -> None:
    """A sender that keeps the link busy bounds the queueing delay by no less than how far the possible delays are apart.

    So it has no bound if any delay is possible; a sender that lets the link run dry has every bound.
    """
    assert delay_kept(explore(window(rates, longest))) == (0, longest - 1, True)


def test_both_ends_of_the_delays_stay_possible_whatever_a_busy_sender_does() -> None:
    """The certificate in plain arithmetic, tuple by tuple: the network answers each action that may leave no link idle."""
    boards = explore(load_game("ideal_delays"))
    inside = {b for b in range(len(boards)) if {1, 3} <= {delay for *_, delay in boards.members(b)}}
    sets = {b: boards.members(b) for b in inside}
    before: set[int] = set()
    while inside != before:
        before = set(inside)
        for board in before:
            busy = [a for a in range(boards.actions[board]) if all(a - level >= rate for rate, _, level, *_ in sets[board])]
            assert busy  # C packets a step are always possible
            if not all(any(int(boards.target[e]) in inside for e in boards.answers(board, a)) for a in busy):
                inside.remove(board)
    assert 0 in inside and all(max(-level for rate, _, level, _, delay in sets[b] if delay == 1) >= 2 * 2 for b in inside)


@pytest.mark.parametrize("busy", [False, True])
def test_delays_that_the_network_keeps_equal_minimax_over_histories(busy: bool) -> None:
    small = window((1,), 3).changed(most_inflight=4)
    kept, by_histories = delay_kept(explore(small))[busy], [slow_games.delay_kept(small, steps, busy) for steps in range(5)]
    assert by_histories == sorted(by_histories, reverse=True) and by_histories[-1] == kept


def test_what_is_kept_for_ever_is_its_own_certificate() -> None:
    boards = explore(load_game("cbr_small"))
    kept = kept_for_ever(boards, boards.fastest)
    answered = np.maximum.reduceat(kept[boards.target], boards.first_edge[:-1])
    assert (kept <= boards.fastest).all() and (kept <= np.minimum.reduceat(answered, boards.first_action[:-1])).all()
