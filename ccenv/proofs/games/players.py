"""Who plays a game: senders and networks on exact belief sets, how well they play, and where they first err."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccenv.agents.programs.program import BOOLEANS, Program, decide
from ccenv.base.errors import InputError, UnknownNameError, unknown_name
from ccenv.proofs.games.boards import Boards, Ints
from ccenv.proofs.games.values import costs
from ccenv.proofs.senders.catalog import program_of

NETWORKS = ("worst", "optimal", "random")
"""The best response to a sender, the one that plays the value of the game, and one that draws among the possible answers."""
RANDOM = "random"


class Solved:
    """A game with the cost of every board for every number of steps left.

    Attributes:
        boards: of the game.
        horizon_steps: H.
        table: cost by steps left and board (``ccenv.proofs.games.values.costs``).
    """

    def __init__(self, boards: Boards) -> None:
        self.boards, self.horizon_steps = boards, boards.game.horizon_steps
        self.table: Ints = costs(boards, self.horizon_steps)

    @property
    def value(self) -> int:
        """The regret under best play of both sides."""
        return int(self.table[-1, 0])

    def answers(self, after: NDArray[Any]) -> NDArray[Any]:
        """Return the cost of each answer, given the costs of the boards that it leads to."""
        return after[self.boards.target] - self.boards.delivered

    def worst(self, after: NDArray[Any]) -> NDArray[Any]:
        """Return the cost of each action against the network that answers worst."""
        return np.maximum.reduceat(self.answers(after), self.boards.first_edge[:-1])

    def best_actions(self) -> Ints:
        """Return the least of the best actions, by steps left (row; row 0 means nothing) and board."""
        actions = np.zeros((self.horizon_steps + 1, len(self.boards)), dtype=np.int32)
        places = np.arange(len(self.boards.first_edge) - 1)
        owner = np.repeat(np.arange(len(self.boards)), self.boards.actions)
        for left in range(1, self.horizon_steps + 1):
            good = self.worst(self.table[left - 1]) == self.table[left][owner]
            first = np.minimum.reduceat(np.where(good, places, len(places)), self.boards.first_action[:-1])
            actions[left] = first - self.boards.first_action[:-1]
        return actions


@dataclass(frozen=True)
class Sender:
    """A sender on boards.

    Attributes:
        name: of it.
        actions: what it sends, by board, or by steps left and board; None: it draws among the legal actions.
    """

    name: str
    actions: Ints | None

    def at(self, left: int) -> Ints | None:
        """Return its actions with so many steps left, None if it draws."""
        return None if self.actions is None else self.moves(left)

    def moves(self, left: int) -> Ints:
        """Return its actions with so many steps left. Raises InputError for a sender that draws."""
        if self.actions is None:
            raise InputError(f"sender {self.name!r} draws its actions: there is no one line of play")
        return self.actions if self.actions.ndim == 1 else self.actions[left]


def _of_program(program: Program, boards: Boards) -> Ints:
    """Return what a belief program sends with exact bounds: MSS = Rm = 1, rates rounded down to whole packets."""
    reads = program.inputs() & {"rate", *BOOLEANS}
    if reads:
        raise InputError(f"program {program.name!r} reads {', '.join(sorted(reads))}, which a board does not say")
    sent = np.empty(len(boards), dtype=np.int32)
    for board in range(len(boards)):
        sent[board] = int(decide(program, bounds_of(boards, board)).rate)
    return sent


def bounds_of(boards: Boards, board: int) -> dict[str, Fraction]:
    """Return the exact bounds of a board under the names that programs read; C_L_lambda is C_L, which holds all there is."""
    inside = boards.members(board)
    delays = [Fraction(max(0, -level), rate) for rate, _, level, _ in inside]
    slowest, queue = Fraction(int(boards.slowest[board])), Fraction(int(boards.most_queue[board]))
    one = Fraction(1)
    return {
        **{"C_L": slowest, "C_L_lambda": slowest, "C_U": Fraction(int(boards.fastest[board]))},
        **{"q_U": queue, "q_U/Rm": queue, "qdel_L": min(delays), "qdel_U": max(delays)},
        **{"MSS": one, "MSS/Rm": one, "Rm": one},
    }


_RULES: Mapping[str, Callable[[Boards], Ints]] = {
    "most": lambda boards: boards.actions - 1,
    "C_L": lambda boards: boards.slowest,
    "C_L+1": lambda boards: boards.slowest + 1,
}
PROGRAMS = ("cc_qdel", "cc_probe_fast", "cc_probe_drain", "cc_probe_slow", "cc_probe_qdel")
"""Listing 2 of [CCmatic]."""
SENDERS = ("optimal", *_RULES, *PROGRAMS, RANDOM)


def sender_on(name: str, solved: Solved) -> Sender:
    """Return a sender of a game: one of SENDERS, or a belief program by its name or file.

    Raises:
        UnknownNameError: if there is neither.
        InputError: for a program that reads more than a board says.
    """
    boards = solved.boards
    if name == RANDOM:
        return Sender(name, None)
    if name == "optimal":
        return Sender(name, solved.best_actions())
    if name in _RULES:
        return legal(name, boards, _RULES[name](boards))
    try:
        program = program_of(name)
    except UnknownNameError:
        raise unknown_name("sender of a game", name, SENDERS) from None
    return legal(name, boards, _of_program(program, boards))


def legal(name: str, boards: Boards, actions: NDArray[Any]) -> Sender:
    """Return a sender that plays given actions, each the largest legal one where it is not legal."""
    return Sender(name, np.clip(actions, 0, boards.actions - 1).astype(np.int32))


def regret_of(sender: Sender, solved: Solved, network: str = "worst") -> float:
    """Return the regret of a sender: against its worst network, or the mean against another one.

    Args:
        sender: who plays.
        solved: the game.
        network: one of NETWORKS.
    """
    if network not in NETWORKS:
        raise unknown_name("network", network, NETWORKS)
    boards, cost = solved.boards, solved.table[0].astype(np.float64)
    for left in range(1, solved.horizon_steps + 1):
        if network == "worst":
            by_action = solved.worst(cost)
        elif network == "random":
            total = np.add.reduceat(solved.answers(cost), boards.first_edge[:-1])
            by_action = total / np.diff(boards.first_edge)
        else:
            by_action = solved.answers(cost)[_worst_edges(solved, solved.table[left - 1])]
        actions = sender.at(left)
        if actions is None:
            cost = np.add.reduceat(by_action, boards.first_action[:-1]) / boards.actions
        else:
            cost = by_action[boards.first_action[:-1] + actions]
    return float(cost[0])


def _worst_edges(solved: Solved, after: NDArray[Any]) -> NDArray[np.int64]:
    """Return the first of the worst answers to each action."""
    starts = solved.boards.first_edge
    cost = solved.answers(after)
    top = np.repeat(np.maximum.reduceat(cost, starts[:-1]), np.diff(starts))
    places = np.where(cost == top, np.arange(len(cost)), len(cost))
    return np.asarray(np.minimum.reduceat(places, starts[:-1]), dtype=np.int64)


def optimal_share(sender: Sender, solved: Solved) -> float:
    """Return on which share of the boards that any play reaches the sender's decision is a best one, all steps alike.

    A sender that draws counts with the share of its actions that are best.
    """
    boards = solved.boards
    edges_of = np.repeat(np.arange(len(boards)), np.diff(boards.first_edge[boards.first_action]))
    reached, shares = np.zeros(len(boards), dtype=bool), []
    reached[0] = True
    for left in range(solved.horizon_steps, 0, -1):
        good = solved.worst(solved.table[left - 1]) == np.repeat(solved.table[left], boards.actions)
        actions = sender.at(left)
        if actions is None:
            best = np.add.reduceat(good.astype(np.float64), boards.first_action[:-1]) / boards.actions
        else:
            best = good[boards.first_action[:-1] + actions].astype(np.float64)
        shares.append(best[reached])
        then = np.zeros_like(reached)
        then[boards.target[reached[edges_of]]] = True
        reached = then
    return float(np.concatenate(shares).mean())


def line(sender: Sender, solved: Solved) -> list[dict[str, Any]]:
    """Return what a sender and its worst network play, a row a step: what the board says, what is played, and what it costs.

    ``error`` is by how many packets the decision is worse than the best one. Raises InputError for a sender that draws.
    """
    boards, H = solved.boards, solved.horizon_steps
    after = np.empty_like(solved.table)
    after[0] = solved.table[0]
    for left in range(1, H + 1):
        after[left] = solved.worst(after[left - 1])[boards.first_action[:-1] + sender.moves(left)]
    board, rows = 0, []
    for left in range(H, 0, -1):
        action = int(sender.moves(left)[board])
        edges = boards.answers(board, action)
        inside = slice(edges.start, edges.stop)
        worst = int((after[left - 1][boards.target[inside]] - boards.delivered[inside].astype(np.int32)).argmax())
        error = int((solved.table[left - 1][boards.target[inside]] - boards.delivered[inside].astype(np.int32)).max())
        edge = edges[worst]
        rows.append(
            {
                "step": H - left,
                "C_L": int(boards.slowest[board]),
                "C_U": int(boards.fastest[board]),
                "q_L": int(boards.least_queue[board]),
                "q_U": int(boards.most_queue[board]),
                "inflight": int(boards.inflight[board]),
                "sent": action,
                "delivered": int(boards.delivered[edge]),
                "lost": int(boards.lost[edge]),
                "error": error - int(solved.table[left, board]),
                "board": board,
            }
        )
        board = int(boards.target[edge])
    return rows


def first_error(sender: Sender, solved: Solved) -> list[dict[str, Any]]:
    """Return a line of play up to and with the first decision that is not a best one; empty: there is none, or it draws."""
    if sender.actions is None:
        return []
    rows = line(sender, solved)
    wrong = next((place for place, row in enumerate(rows) if row["error"] > 0), None)
    return [] if wrong is None else rows[: wrong + 1]
