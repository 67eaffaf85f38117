"""All boards of a game and the moves between them: exact belief sets, found by playing every action against every answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ccenv.base.errors import InputError
from ccenv.proofs.games import kernels
from ccenv.proofs.games.game import Game

MEMORY_BYTES = 2_000_000_000
EDGE_BYTES = 6
MODELS = ("ideal", "cbr", "ccac")
"""By their codes in the kernels."""
_TRIED_EDGES = 600_000  # a part of a game that has so many tells how it grows
_GROWING = 2.0  # arrays that grow are held twice for a while

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Boards:
    """The graph of a game: board 0 is the first, and the actions of a board are 0, 1, 2, ... packets.

    Attributes:
        tuples: the possible (C, beta, level, due, Rm, base), one a row (``ccenv.proofs.games.kernels``).
        bits: of each board, which tuples it holds.
        inflight: packets in flight.
        pending: with late feedback what is being sent, whose answer is not known yet.
        first_action: of each board, into ``first_edge``.
        first_edge: of each action, into the next three.
        delivered, lost, target: of each answer of the network.
    """

    game: Game
    tuples: NDArray[np.int64]
    bits: NDArray[np.uint64]
    inflight: NDArray[np.int16]
    pending: NDArray[np.int16]
    first_action: NDArray[np.int64]
    first_edge: NDArray[np.int64]
    delivered: NDArray[np.uint8]
    lost: NDArray[np.uint8]
    target: Ints

    def __len__(self) -> int:
        return len(self.inflight)

    @cached_property
    def held(self) -> NDArray[np.bool_]:
        """Which of the game's rates each board holds, (boards, rates)."""
        region, rates = self.region(), self.tuples[:, kernels.RATE]
        return np.stack([region[:, rates == rate].any(axis=1) for rate in self.game.rates], axis=1)

    @cached_property
    def slowest(self) -> Ints:
        """C_L of each board, the least rate that it holds."""
        return np.asarray(np.take(self.game.rates, self.held.argmax(axis=1)), dtype=np.int32)

    @cached_property
    def fastest(self) -> Ints:
        """C_U of each board, the greatest rate that it holds."""
        return np.asarray(np.take(self.game.rates[::-1], self.held[:, ::-1].argmax(axis=1)), dtype=np.int32)

    @property
    def actions(self) -> Ints:
        return np.diff(self.first_action).astype(np.int32)

    def members(self, board: int) -> list[tuple[int, ...]]:
        """Return the tuples of a board: rate, buffer, level, due, Rm."""
        inside = np.unpackbits(self.bits[board].view(np.uint8), bitorder="little")[: len(self.tuples)]
        return [tuple(row) for row in self.tuples[inside == 1, : kernels.BASE].tolist()]

    def queues(self, board: int) -> tuple[int, int]:
        """Return q_L and q_U of a board, the fewest and the most packets that may be queued."""
        queues = [max(0, -level) for _, _, level, *_ in self.members(board)]
        return min(queues), max(queues)

    def region(self) -> NDArray[np.uint8]:
        """Return of each board which tuples it holds, as zeros and ones."""
        return np.unpackbits(self.bits.view(np.uint8), axis=1, bitorder="little")[:, : len(self.tuples)]

    @cached_property
    def seen(self) -> NDArray[np.float32]:
        """What a policy sees of each board: the region, packets in flight over their cap, packets pending over the most sent."""
        shares = np.stack([self.inflight / self.game.inflight_cap, self.pending / self.game.most_sent], axis=1)
        return np.concatenate([self.region(), shares], axis=1, dtype=np.float32)

    def answers(self, board: int, action: int) -> range:
        place = self.first_action[board] + action
        return range(int(self.first_edge[place]), int(self.first_edge[place + 1]))


def explore(game: Game) -> Boards:
    """Find all boards of a game.

    Raises InputError with the estimated size, before it starts, if they do not fit into MEMORY_BYTES.
    """
    size = estimated_bytes(game)
    boards = _explored(game, MEMORY_BYTES // EDGE_BYTES) if size <= MEMORY_BYTES else None
    if boards is None:
        raise InputError(
            f"game {game.name!r} would take about {max(size, MEMORY_BYTES) / 1e9:.2g} GB; {MEMORY_BYTES / 1e9:g} GB are allowed: "
            "fewer rates or buffers, a smaller loss, or a smaller most_inflight"
        )
    if not boards.bits[0].any():
        raise InputError(f"game {game.name!r}: no path explains {game.start_inflight} packets in flight at the start")
    return boards


def estimated_bytes(game: Game) -> float:
    """Return about how much memory it takes to find the boards of a game, told from how parts with fewer rates grow.

    The logarithm of the size grows by less and less, each time by the ratio of the last two growths.
    """
    sizes: list[float] = []
    for count in range(1, len(game.rates) + 1):
        cap = game.most_inflight and max(1, game.start_inflight, game.most_inflight * game.rates[count - 1] // game.rates[-1])
        boards = _explored(game.changed(rates=game.rates[:count], most_inflight=cap), 8 * _TRIED_EDGES)
        if boards is None and count <= 3:
            return math.inf
        if boards is not None:
            arrays = (boards.bits, boards.inflight, boards.pending, boards.first_action, boards.first_edge)
            sizes.append(_GROWING * (sum(array.nbytes for array in arrays) + EDGE_BYTES * len(boards.target)))
        if boards is None or (len(boards.target) > _TRIED_EDGES and count > 3):
            break
    if len(sizes) == len(game.rates):
        return sizes[-1]
    first, second, size = np.log(sizes[-3:]).tolist()
    growth, ratio = size - second, min(1.0, (size - second) / (second - first))
    for _ in range(len(game.rates) - len(sizes)):
        growth *= ratio
        size += growth
    return math.exp(size) if size < 700 else math.inf


def _explored(game: Game, most_edges: int) -> Boards | None:
    """Return the boards of a game, or None if there are more moves than allowed."""
    cap, tuples, first = game.inflight_cap, list[tuple[int, ...]](), list[bool]()
    ages = cap + 1 if game.jitter_steps == 2 else (game.rates[-1] + 1) ** (game.delays[-1] - 1)
    for (rate, buffer), delay in product(game.paths, game.delays):
        lowest, highest = -min(buffer, cap), rate if game.model == "ccac" else 0
        base = len(tuples) - lowest * ages
        for level, due in product(range(lowest, highest + 1), range(ages)):
            tuples.append((rate, buffer, level, due, delay, base))
            served = [due // (rate + 1) ** age % (rate + 1) for age in range(delay - 1)]  # the last step first
            whole = due < (rate + 1) ** (delay - 1) and (level >= 0 or served[:1] in ([], [rate]))  # a queue keeps a link busy
            first.append(whole and max(0, -level) + sum(served) == game.start_inflight)  # a bucket may hold any number of tokens
    start = np.zeros((len(tuples) + 63) // 64 * 64, dtype=np.uint8)
    start[: len(tuples)] = first
    begin = np.packbits(start, bitorder="little").view(np.uint64)
    table = np.array(tuples, dtype=np.int64)
    most_boards = min(2**31 - 1, MEMORY_BYTES // (8 * len(begin) + 16))
    network = (MODELS.index(game.model), game.jitter_steps, game.feedback_steps, table, ages, begin, game.start_inflight)
    explored = kernels.explore(*network, game.most_sent, cap, game.allowed_loss, most_boards, most_edges)
    boards, actions, edges = explored[:3]
    if not boards:
        return None
    lengths = (boards, boards, boards, boards + 1, actions + 1, edges, edges, edges)
    return Boards(game, table, *(array[:length] for array, length in zip(explored[3:], lengths, strict=True)))
