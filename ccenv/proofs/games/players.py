"""Who plays a game: senders and networks on exact belief sets, how well they play, and where they first err."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccenv.agents.programs.program import BOOLEANS, Program
from ccenv.base.config import find_data
from ccenv.base.errors import InputError, UnknownNameError, unknown_name
from ccenv.base.foreign import read_bounded
from ccenv.base.foreign.tensors import MAX_FILE_BYTES, read_tensors
from ccenv.proofs.games.boards import Boards, Ints
from ccenv.proofs.games.bounds import BoundsSender, sends
from ccenv.proofs.games.values import Solved
from ccenv.proofs.senders.catalog import program_of

NETWORKS = ("worst", "optimal", "random")
"""The best response to a sender, the one that plays the value of the game, and one that draws among the possible answers."""
RANDOM = "random"


@dataclass(frozen=True)
class Sender:
    """A sender on boards: what it sends, by board, or by steps left and board; None: it draws among the legal actions."""

    name: str
    actions: Ints | None

    def at(self, left: int) -> Ints | None:
        """Return its actions with so many steps left, None if it draws."""
        return self.actions if self.actions is None or self.actions.ndim == 1 else self.actions[left]


def bounds_of(boards: Boards, board: int) -> dict[str, Fraction]:
    """Return the exact bounds of a board under the names that programs read; C_L_lambda is C_L, which holds all there is."""
    delays = [Fraction(max(0, -level), rate) for rate, _, level, *_ in boards.members(board)]
    slowest, fastest, queue = (Fraction(int(n)) for n in (boards.slowest[board], boards.fastest[board], boards.queues(board)[1]))
    rates = {"C_L": slowest, "C_L_lambda": slowest, "C_U": fastest}
    return rates | {"q_U": queue, "qdel_L": min(delays), "qdel_U": max(delays)}


_RULES: Mapping[str, Callable[[Boards], Ints]] = {
    "most": lambda boards: boards.actions - 1,
    "C_L": lambda boards: boards.slowest,
    "C_L+1": lambda boards: boards.slowest + 1,
}
PROGRAMS = ("cc_qdel", "cc_probe_fast", "cc_probe_drain", "cc_probe_slow", "cc_probe_qdel")
"""Listing 2 of [CCmatic]."""
BOUNDS = "bounds:"
POLICIES = ("ppo", "dqn")
"""Learned by the configs of these names (``ccenv.training.games``)."""
WEIGHTS = "ccenv.configs.learn"
SENDERS = ("optimal", *_RULES, *PROGRAMS, *(BOUNDS + name for name in PROGRAMS), *POLICIES, RANDOM)
Layers = list[tuple[NDArray[np.float64], NDArray[np.float64]]]


def require_sender(name: str) -> None:
    """Raise UnknownNameError for a name that ``sender_on`` does not know, before a game is solved."""
    if name not in SENDERS and not name.endswith(".safetensors"):
        _program(name)


def _program(name: str) -> Program:
    try:
        return program_of(name.removeprefix(BOUNDS))
    except UnknownNameError:
        raise unknown_name("sender of a game", name, SENDERS) from None


def sender_on(name: str, solved: Solved) -> Sender | BoundsSender:
    """Return a sender of a game: one of SENDERS, a shipped or stored policy, or a belief program by its name or file.

    ``bounds:`` before a program lets it go by the engine's bounds instead of exact sets. Raises UnknownNameError, and InputError
    for a program that reads more than a board says, or a policy of another game.
    """
    boards = solved.boards
    if name == RANDOM:
        return Sender(name, None)
    if name == "optimal":
        return Sender(name, solved.best_actions())
    if name in POLICIES or name.endswith(".safetensors"):
        return policy_sender(name, read_policy(name, boards.game.name), solved)
    if name in _RULES:
        actions = _RULES[name](boards)
    else:
        program = _program(name)
        if reads := program.inputs() & {"rate", *BOOLEANS}:
            raise InputError(f"program {program.name!r} reads {', '.join(sorted(reads))}, which a board does not say")
        if name.startswith(BOUNDS):
            return BoundsSender(name, program)
        actions = np.array([sends(program, bounds_of(boards, board)) for board in range(len(boards))])
    return Sender(name, np.clip(actions, 0, boards.actions - 1).astype(np.int32))  # the most that is legal instead of more


def read_policy(name: str, game: str) -> Layers:
    """Return the layers of a shipped policy of a game, by its config's name, or of a file. Raises InputError."""
    file = find_data(WEIGHTS, name if name not in POLICIES else f"{name}_{game}", ".safetensors", "policy of a game")
    tensors = read_tensors(read_bounded(file, MAX_FILE_BYTES), file.name)
    layers = [(tensors[f"w{i}"], tensors[f"b{i}"]) for i in range(len(tensors) // 2) if {f"w{i}", f"b{i}"} <= tensors.keys()]
    if not layers or 2 * len(layers) != len(tensors):
        raise InputError(f"{file.name}: tensors {sorted(tensors)[:6]}; a policy of a game has w0, b0, w1, b1, ...")
    return layers


def policy_sender(name: str, layers: Layers, solved: Solved) -> Sender:
    """Return what a policy does on every board and for every number of steps left; of an illegal number nothing is sent.

    A layer has weights (inputs, outputs) and biases; ReLU between them, the largest output is the action; observations are those
    of ``ccenv/Game-v0``. Raises InputError if the layers do not fit the game.
    """
    boards, seen = solved.boards, solved.boards.seen
    shape = (layers[0][0].shape[0], layers[-1][1].shape[0])
    chained = all(left.shape[1:] == bias.shape == right.shape[:1] for (left, bias), (right, _) in pairwise(layers))
    if not chained or shape != (seen.shape[1] + 1, boards.game.most_sent + 1):
        raise InputError(f"policy {name!r} has {shape[0]} inputs and {shape[1]} actions, not those of game {boards.game.name!r}")
    actions = np.zeros(solved.table.shape, dtype=np.int32)
    first = seen @ layers[0][0][:-1] + layers[0][1]
    for left in range(1, solved.horizon_steps + 1):
        values = first + left / solved.horizon_steps * layers[0][0][-1]
        for weights, biases in layers[1:]:
            values = np.maximum(values, 0.0) @ weights + biases
        chosen = values.argmax(axis=1)
        actions[left] = np.where(chosen < boards.actions, chosen, 0)
    return Sender(name, actions)


def regret_of(sender: Sender | BoundsSender, solved: Solved, network: str = "worst") -> float:
    """Return the regret of a sender: against its worst network, or the mean against another one of NETWORKS."""
    if network not in NETWORKS:
        raise unknown_name("network", network, NETWORKS)
    if isinstance(sender, BoundsSender):
        return sender.play(solved, network).regret
    boards, cost = solved.boards, solved.table[0].astype(np.float64)
    for left in range(1, solved.horizon_steps + 1):
        if network == "worst":
            by_action = solved.worst(cost)
        elif network == "random":
            by_action = np.add.reduceat(solved.answers(cost), boards.first_edge[:-1]) / np.diff(boards.first_edge)
        else:
            by_action = solved.answers(cost)[solved.worst_edges(solved.table[left - 1])]
        cost = _by_board(by_action, sender.at(left), boards)
    return float(cost[0])


def _by_board(by_action: NDArray[Any], actions: Ints | None, boards: Boards) -> NDArray[np.float64]:
    """Return of each board what its action has, or the mean over actions where they are drawn."""
    if actions is None:
        return np.asarray(np.add.reduceat(by_action.astype(np.float64), boards.first_action[:-1]) / boards.actions)
    return np.asarray(by_action[boards.first_action[:-1] + actions], dtype=np.float64)


def optimal_share(sender: Sender | BoundsSender, solved: Solved) -> float:
    """Return on which share of the boards that any play reaches the sender's decision is a best one, all steps alike.

    A sender that draws counts with the share of its actions that are best, one on the engine's bounds with the share of its
    decisions against the random network.
    """
    if isinstance(sender, BoundsSender):
        return sender.play(solved, "random").optimal_share
    boards = solved.boards
    edges_of = np.repeat(np.arange(len(boards)), np.diff(boards.first_edge[boards.first_action]))
    reached, shares = np.zeros(len(boards), dtype=bool), []
    reached[0] = True
    for left in range(solved.horizon_steps, 0, -1):
        shares.append(_by_board(solved.best(left), sender.at(left), boards)[reached])
        then = np.zeros_like(reached)
        then[boards.target[reached[edges_of]]] = True
        reached = then
    return float(np.concatenate(shares).mean())


def line(sender: Sender | BoundsSender, solved: Solved) -> list[dict[str, Any]]:
    """Return what a sender and its worst network play, a row a step: what the board says, what is played, and what it costs.

    ``error`` is by how many packets the decision is worse than the best one. Raises InputError for a sender that draws.
    """
    boards, H, rows = solved.boards, solved.horizon_steps, list[dict[str, Any]]()
    for step, (board, action, edge) in enumerate(_moves(sender, solved)):
        worst = solved.answers(solved.table[H - step - 1], boards.answers(board, action)).max()
        q_L, q_U = boards.queues(board)
        rows.append(
            {
                **{"step": step, "C_L": int(boards.slowest[board]), "C_U": int(boards.fastest[board]), "q_L": q_L, "q_U": q_U},
                **{"inflight": int(boards.inflight[board]), "sent": action},
                **{"delivered": int(boards.delivered[edge]), "lost": int(boards.lost[edge])},
                **{"error": int(worst - solved.table[H - step, board]), "board": board},
            }
        )
    return rows


def _moves(sender: Sender | BoundsSender, solved: Solved) -> list[tuple[int, int, int]]:
    """Return board, action and the edge of the answer of each step of a line."""
    if isinstance(sender, BoundsSender):
        return sender.play(solved, "worst").moves
    if sender.actions is None:
        raise InputError(f"sender {sender.name!r} draws its actions: there is no one line of play")
    boards, H = solved.boards, solved.horizon_steps
    after, moves, board = solved.table.astype(np.float64), list[tuple[int, int, int]](), 0
    for left in range(1, H + 1):
        after[left] = _by_board(solved.worst(after[left - 1]), sender.at(left), boards)
    for left in range(H, 0, -1):
        action = int(sender.at(left)[board])  # type: ignore[index]  # it does not draw
        edges = boards.answers(board, action)
        moves.append((board, action, edges[int(solved.answers(after[left - 1], edges).argmax())]))
        board = int(boards.target[moves[-1][2]])
    return moves


def first_error(sender: Sender | BoundsSender, solved: Solved) -> list[dict[str, Any]]:
    """Return a line of play up to and with the first decision that is not a best one; empty: there is none, or it draws."""
    rows = [] if isinstance(sender, Sender) and sender.actions is None else line(sender, solved)
    wrong = next((place for place, row in enumerate(rows) if row["error"] > 0), None)
    return [] if wrong is None else rows[: wrong + 1]
