"""All boards of a game and the moves between them: exact belief sets, found by playing every action against every answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

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
        game: whose they are.
        tuples: the possible (C, beta, level, due, base), one a row (``ccenv.proofs.games.kernels``).
        bits: of each board, which tuples it holds.
        inflight: packets in flight.
        pending: with late feedback what is being sent, whose answer is not known yet.
        first_action: of each board, into ``first_edge``.
        first_edge: of each action, into the next three.
        delivered, lost, target: of each answer of the network.
        slowest, fastest: C_L and C_U of each board, the least and the greatest rate that it holds.
        least_queue, most_queue: q_L and q_U, the fewest and the most packets that may be queued.
        held: (boards, rates) which of the game's rates it holds.
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
    slowest: Ints
    fastest: Ints
    least_queue: Ints
    most_queue: Ints
    held: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of boards."""
        return len(self.inflight)

    def holds(self, rate: int) -> NDArray[np.bool_]:
        """Return which boards hold a rate."""
        return self.held[:, self.game.rates.index(rate)]

    @property
    def actions(self) -> Ints:
        """How many actions each board has."""
        return np.diff(self.first_action).astype(np.int32)

    def members(self, board: int) -> list[tuple[int, ...]]:
        """Return the tuples of a board: rate, buffer, level, due."""
        chosen = np.zeros(len(self.tuples), dtype=np.int64)
        count = kernels.members(self.bits[board], self.tuples, chosen)
        return [tuple(row) for row in self.tuples[chosen[:count], :4].tolist()]

    def region(self) -> NDArray[np.uint8]:
        """Return of each board which tuples it holds, as zeros and ones."""
        return np.unpackbits(self.bits.view(np.uint8), axis=1, bitorder="little")[:, : len(self.tuples)]

    @cached_property
    def seen(self) -> NDArray[np.float32]:
        """What a policy sees of each board: the region, packets in flight over their cap, packets pending over the most sent."""
        shares = np.stack([self.inflight / self.game.inflight_cap, self.pending / self.game.most_sent], axis=1)
        return np.concatenate([self.region(), shares], axis=1, dtype=np.float32)

    def answers(self, board: int, action: int) -> range:
        """Return the edges of an action."""
        place = self.first_action[board] + action
        return range(int(self.first_edge[place]), int(self.first_edge[place + 1]))


def explore(game: Game) -> Boards:
    """Find all boards of a game.

    Raises:
        InputError: with the estimated size, before it starts, if they do not fit into MEMORY_BYTES.
    """
    estimated = estimated_bytes(game)
    if estimated > MEMORY_BYTES:
        raise InputError(_too_large(game, estimated))
    boards = _explored(game, MEMORY_BYTES // EDGE_BYTES)
    if boards is None:
        raise InputError(_too_large(game, max(estimated, MEMORY_BYTES)))
    return boards


def _too_large(game: Game, size: float) -> str:
    return (
        f"game {game.name!r} would take about {size / 1e9:.2g} GB; {MEMORY_BYTES / 1e9:g} GB are allowed: "
        "fewer rates or buffers, a smaller loss, or a smaller most_inflight"
    )


def estimated_bytes(game: Game) -> float:
    """Return about how much memory it takes to find the boards of a game, told from how parts with fewer rates grow."""
    sizes: list[float] = []
    for count in range(1, len(game.rates) + 1):
        part = game.narrowed(game.rates[:count])
        if game.most_inflight is not None:
            part = part.changed(most_inflight=max(1, game.most_inflight * part.rates[-1] // game.rates[-1]))
        boards = _explored(part, 8 * _TRIED_EDGES)
        if boards is None:
            return _extrapolated(sizes, len(game.rates)) if count > 3 else math.inf
        sizes.append(_GROWING * _bytes(boards))
        if len(boards.target) > _TRIED_EDGES and count > 3:
            return _extrapolated(sizes, len(game.rates))
    return sizes[-1]


def _extrapolated(sizes: Sequence[float], count: int) -> float:
    """Return the size at so many rates: its logarithm grows by less and less, each time by the ratio of the last two growths."""
    first, second, third = np.log(sizes[-3:]).tolist()
    growth, size = third - second, third
    ratio = min(1.0, growth / (second - first))
    for _ in range(count - len(sizes)):
        growth *= ratio
        size += growth
    return math.exp(size) if size < 700 else math.inf


def _bytes(boards: Boards) -> float:
    arrays = (boards.bits, boards.inflight, boards.pending, boards.first_action, boards.first_edge)
    return float(sum(array.nbytes for array in arrays) + EDGE_BYTES * len(boards.target))


def _explored(game: Game, most_edges: int) -> Boards | None:
    """Return the boards of a game, or None if there are more moves than allowed."""
    cap = game.inflight_cap
    tuples: list[tuple[int, ...]] = []
    rows: dict[tuple[int, int, int], int] = {}
    ages = cap + 1 if game.jitter_steps == 2 else 1
    for rate, buffer in game.paths:
        lowest, highest = -min(buffer, cap), rate if game.model == "ccac" else 0
        base = len(tuples) - lowest * ages
        for level in range(lowest, highest + 1):
            rows[rate, buffer, level] = len(tuples)
            tuples += [(rate, buffer, level, due, base) for due in range(ages)]
    start = np.zeros((len(tuples) + 63) // 64, dtype=np.uint64)
    for (_, _, level), row in rows.items():
        if level >= 0:  # at the beginning nothing is queued; a bucket may hold any number of tokens
            start[row // 64] |= np.uint64(1 << (row % 64))
    table = np.array(tuples, dtype=np.int64)
    model = MODELS.index(game.model)
    most_boards = min(2**31 - 1, MEMORY_BYTES // (8 * len(start) + 16))
    network = (model, game.jitter_steps, game.feedback_steps, table, ages, start)
    explored = kernels.explore(*network, game.most_sent, cap, game.allowed_loss, most_boards, most_edges)
    status, boards, actions, edges = explored[:4]
    lengths = (boards, boards, boards, boards + 1, actions + 1, edges, edges, edges)
    if status == kernels.FULL:
        return None
    graph = [array[:length] for array, length in zip(explored[4:], lengths, strict=True)]
    return Boards(game, table, *graph, *kernels.look(graph[0], table, np.array(game.rates)))
