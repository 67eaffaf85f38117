"""What a game is worth: regret, time to converge, and the share of the link that a sender can be sure of."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccenv.base.errors import InputError
from ccenv.proofs.games import kernels
from ccenv.proofs.games.boards import Boards, Ints, explore
from ccenv.proofs.games.game import Game

OF = 120
"""Shares of the link are decided to this part of the whole."""
SENDER, NETWORK = 1, -1
"""Sides of ``kernels.raise_credit``."""


def costs(boards: Boards, horizon_steps: int, rows: int | None = None) -> Ints:
    """Return what is still to come under best play of both sides, by steps left (row) and board (column).

    The cost of a run of H steps is C_U H - S: with the greatest rate that is possible at its end, what could have been delivered
    less what was. Row 0 is C_U H, and the cost at a board is what is delivered from there on, taken off the final C_U H. With
    fewer ``rows`` than H + 1 the last ones are kept, each in the row of its number modulo theirs.
    """
    rows = rows or horizon_steps + 1
    table = np.empty((rows, len(boards)), dtype=np.int32)
    table[0] = boards.fastest * horizon_steps
    graph = (boards.first_action, boards.first_edge, boards.delivered, boards.target)
    for left in range(horizon_steps):
        kernels.sweep(*graph, table[left % rows], table[(left + 1) % rows])
    return table


def regret(boards: Boards, horizon_steps: int) -> int:
    """Return the least over senders of the largest over networks of C t - S, C in the belief, after so many steps."""
    return int(costs(boards, horizon_steps, 2)[horizon_steps % 2, 0])


class Solved:
    """A game, H, and the cost of every board for every number of steps left (``table``, as of ``costs``)."""

    def __init__(self, boards: Boards) -> None:
        self.boards, self.horizon_steps = boards, boards.game.horizon_steps
        self.table = costs(boards, self.horizon_steps)

    @property
    def value(self) -> int:
        """The regret under best play of both sides."""
        return int(self.table[-1, 0])

    def answers(self, after: NDArray[Any], edges: range | None = None) -> NDArray[Any]:
        """Return the cost of each answer (of some edges), given the costs of the boards that it leads to."""
        chosen = slice(None) if edges is None else slice(edges.start, edges.stop)
        return np.asarray(after[self.boards.target[chosen]] - self.boards.delivered[chosen])

    def worst(self, after: NDArray[Any]) -> NDArray[Any]:
        """Return the cost of each action against the network that answers worst."""
        return np.maximum.reduceat(self.answers(after), self.boards.first_edge[:-1])

    def worst_edges(self, after: NDArray[Any]) -> NDArray[np.int64]:
        """Return the first of the worst answers to each action."""
        cost, starts = self.answers(after), self.boards.first_edge
        top = np.repeat(np.maximum.reduceat(cost, starts[:-1]), np.diff(starts))
        places = np.where(cost == top, np.arange(len(cost)), len(cost))
        return np.asarray(np.minimum.reduceat(places, starts[:-1]), dtype=np.int64)

    def best(self, left: int) -> NDArray[np.bool_]:
        return np.asarray(self.worst(self.table[left - 1]) == np.repeat(self.table[left], self.boards.actions))

    def best_actions(self) -> Ints:
        """Return the least of the best actions, by steps left (row; row 0 means nothing) and board."""
        starts, actions = self.boards.first_action[:-1], np.zeros(self.table.shape, dtype=np.int32)
        places = np.arange(len(self.boards.first_edge) - 1)
        for left in range(1, self.horizon_steps + 1):
            actions[left] = np.minimum.reduceat(np.where(self.best(left), places, len(places)), starts) - starts
        return actions


@dataclass(frozen=True)
class Share:
    """The share of the link, C_U at each step, that a sender can be sure of for ever, with a certificate of each side."""

    share: Fraction  # the sender keeps at least this
    below: Fraction | None  # the network keeps it to at most this; None: the share is the whole link
    # of each board, in packets over OF: along every edge of its best action the credit pays what is missing
    sender_credit: NDArray[np.int64]
    network_credit: NDArray[np.int64] | None  # the same of the network at `below`

    @property
    def starves(self) -> bool:
        """Whether the network can keep the sender below the link's rate for ever, so that its regret has no bound."""
        return self.below is not None and self.below < 1


def _cap(boards: Boards) -> int:
    """Return a credit in parts of OF that no sender with a bounded regret needs on a grid of this size."""
    return OF * (16 * boards.game.rates[-1] ** 2 + 8 * boards.game.inflight_cap)


def _credit(boards: Boards, part: int, side: int) -> NDArray[np.int64] | None:
    credit = np.zeros(len(boards), dtype=np.int64)
    graph = (boards.first_action, boards.first_edge, boards.delivered, boards.target, boards.fastest)
    return credit if kernels.raise_credit(graph, side, part, OF, _cap(boards), credit) else None


def share_kept(boards: Boards) -> Share:
    """Decide the share of the link by bisection, to one part in OF, and confirm it by a certificate of the network.

    Raises InputError if neither side has one: the grid is too large for the credits that are tried.
    """
    whole = _credit(boards, OF, SENDER)
    if whole is not None:
        return Share(Fraction(1), None, whole, None)
    low, high, kept = 0, OF, np.zeros(len(boards), dtype=np.int64)
    while high - low > 1:
        middle = (low + high) // 2
        credit = _credit(boards, middle, SENDER)
        low, high, kept = (low, middle, kept) if credit is None else (middle, high, credit)
    for part in range(high, min(OF, high + 4)):
        if (credit := _credit(boards, part, NETWORK)) is not None:
            return Share(Fraction(low, OF), Fraction(part, OF), kept, credit)
    raise InputError(
        f"game {boards.game.name!r}: no certificate that the sender is kept below {high}/{OF} of the link, nor above"
    )


def is_certificate(boards: Boards, share: Fraction, credit: NDArray[np.int64], of_network: bool) -> bool:
    """Check a certificate edge by edge, in plain arithmetic: from each board with credit below the cap, credit pays every move.

    The credit is in packets over OF. The sender's needs one action and all answers, the network's all actions, one answer each.
    """
    gain = OF * boards.delivered.astype(np.int64) - int(share * OF) * boards.fastest[boards.target].astype(np.int64)
    left, cap = np.repeat(credit, np.diff(boards.first_edge[boards.first_action])), _cap(boards)
    pays = (left + (-gain if of_network else gain) >= credit[boards.target]) & (credit[boards.target] < cap)
    by_answer, by_action = (np.logical_or, np.logical_and)[:: 1 if of_network else -1]
    by_board = by_action.reduceat(by_answer.reduceat(pays, boards.first_edge[:-1]), boards.first_action[:-1])
    return bool(credit[0] < cap and by_board[credit < cap].all())


def steps_to(boards: Boards, rate: int) -> int | None:
    """Return the fewest steps until all smaller rates are excluded while the network behaves as one of this rate; None: never."""
    there, live, before = boards.slowest >= rate, boards.held[:, boards.game.rates.index(rate)], np.zeros(0, dtype=np.int32)
    graph = (boards.first_action, boards.first_edge, np.zeros_like(boards.delivered), boards.target)
    steps = np.where(there, 0, kernels.NEVER).astype(np.int32)
    while not np.array_equal(steps, before):
        before = steps.copy()
        kernels.sweep(*graph, np.where(live, before + 1, -kernels.NEVER).astype(np.int32), steps)  # others count for nothing
        steps = np.where(there, 0, np.minimum(steps, kernels.NEVER)).astype(np.int32)
    return None if steps[0] >= kernels.NEVER else int(steps[0])


def kept_for_ever(boards: Boards, what: NDArray[Any], idle: NDArray[np.bool_] | None = None) -> NDArray[Any]:
    """Return of each board how much of something the network can keep for ever, whatever is sent.

    The result is its own certificate: it is at most ``what``, and each action has an answer that leads to no less.

    ``what`` is (boards,) booleans or numbers, ``idle`` actions that the sender does not take.
    """
    kept, before = what, np.zeros(0)
    while not np.array_equal(kept, before):
        before, answered = kept, np.maximum.reduceat(kept[boards.target], boards.first_edge[:-1])
        if idle is not None:
            answered = np.where(idle, what.max(), answered)
        kept = np.minimum(before, np.minimum.reduceat(answered, boards.first_action[:-1]))
    return kept


def unshrunk(boards: Boards) -> bool:
    """Tell whether the network can leave the greatest rate and a slower one possible for ever ([CCmatic] lemma 2.1)."""
    fastest = boards.game.rates[-1]
    return bool(kept_for_ever(boards, (boards.fastest == fastest) & (boards.slowest < fastest))[0])


def delay_kept(boards: Boards) -> tuple[float, float, bool]:
    """Return what the network can keep for ever of the queueing delay, the largest on the paths that are still possible.

    In steps: against every sender, and against those that leave no link idle that is still possible; then whether these leave the
    least and the greatest Rm possible ([CCmatic] lemma 4.1).
    """
    region, (rate, _, level, _, delay, _) = boards.region(), boards.tuples.T
    longest = (region * (np.maximum(0, -level) / rate)).max(axis=1)
    least_sent = (region * np.maximum(0, rate + level)).max(axis=1)
    idle = np.arange(len(boards.first_edge) - 1) < np.repeat(boards.first_action[:-1] + least_sent, boards.actions)
    both = region[:, delay == boards.game.delays[0]].any(axis=1) & region[:, delay == boards.game.delays[-1]].any(axis=1)
    kept, busy, stay = (kept_for_ever(boards, *of)[0] for of in ((longest,), (longest, idle), (both, idle)))
    return float(kept), float(busy), bool(stay)


def convergence(game: Game) -> dict[int, int | None]:
    """Return rate -> fewest steps until all smaller rates are excluded."""
    boards = explore(game)
    return {rate: steps_to(boards, rate) for rate in game.rates[1:]}


def rows_of(game: Game) -> list[dict[str, Any]]:
    """Return per rate the fewest steps until all smaller rates are excluded, and F^-1 of theorem 6.1. Raises InputError."""
    about = {"game": game.name, "model": game.model, "buffers": list(game.buffers), "loss": game.loss}
    ramp = ramp_steps(game)
    return [{**about, "rate": rate, "steps": steps, "ramp_steps": ramp[rate]} for rate, steps in convergence(game).items()]


THEOREM_6_1: dict[str, dict[str, Any]] = {
    "ideal, no buffer": {"model": "ideal", "jitter_steps": 0, "buffers": (0,)},
    "cbr, beta = C": {"model": "cbr", "jitter_steps": 1, "buffers": ("C",)},
    "cbr, beta up to C": {"model": "cbr", "jitter_steps": 1, "buffers": ("up to C",)},
    "ccac, no buffer": {"model": "ccac", "jitter_steps": 1, "buffers": (0,)},
}
LOSSES = (1, 2, "sqrt(C)", "C/2+1", "C")


def theorem_rows(game: Game) -> list[dict[str, Any]]:
    """Return ``rows_of`` the networks of THEOREM_6_1 with the rates of a game and the allowances LOSSES."""
    plain: dict[str, Any] = {"deepest_buffer_bdp": None, "most_inflight": None, "feedback_steps": 0}
    plain |= {"delays": (1,), "start_inflight": 0}
    return [
        {"network": network, **row}
        for loss, (network, fields) in product(LOSSES, THEOREM_6_1.items())
        for row in rows_of(game.changed(**plain, **fields, loss=loss))
    ]


def ramp_steps(game: Game) -> dict[int, int]:
    """Return rate -> F^-1(C) of theorem 6.1 in whole packets, with Rm for beta_s: F grows by the allowance at its value."""
    allowed, steps_by_rate = game.allowed_loss, {}
    for rate in game.rates[1:]:
        reached, steps = game.rates[0], 0
        while reached < rate:
            if allowed[reached] < 1:
                raise InputError(f"game {game.name!r}: the allowance at rate {reached} is 0; theorem 6.1 needs one above 0")
            reached, steps = reached + int(allowed[reached]), steps + 1
        steps_by_rate[rate] = steps
    return steps_by_rate
