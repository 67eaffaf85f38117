"""Belief programs on the engine's own bounds of what was seen, where the exact senders have belief sets.

Bounds follow from all of the past and not from the board, so there are too many states for exact play against the worst network
(five times as many at each step). The optimal network's one run is exact; the random network is sampled; the worst network is
searched: of all runs that differ in board or bounds those are kept that cost most under best play from there, and the worst that
is found is a bound from below. Nobody times out, since the link's rate does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccenv.agents.programs.program import Program, decide
from ccenv.engine.compiled.beliefs import belief_settings, reciprocal_table, settings_record
from ccenv.engine.curve.layout import ENV_DTYPE, FLOW_DTYPE
from ccenv.proofs.games import kernels
from ccenv.proofs.games.boards import Boards
from ccenv.proofs.games.game import UNLIMITED, Game
from ccenv.proofs.games.values import Solved

RUNS = 1_000
"""Runs that the search keeps, and that the random network draws."""
_FINEST = 1_000  # denominators of bounds are products of two windows, far below
FIELDS = {
    **{"C_L": "C_L_Bps", "C_U": "C_U_Bps", "C_L_lambda": "C_L_lambda_Bps"},
    **{"q_U": "q_U_bytes", "qdel_L": "qdel_L_s", "qdel_U": "qdel_U_s"},
}
"""Bound -> field of the engine's flows."""
_ONE = dict.fromkeys(("MSS", "MSS/Rm", "Rm"), Fraction(1))


class EngineBounds:
    """What the engine's rules know in a batch of runs, in packets and steps of Rm, by the preset ``no_timeout``.

    Attributes:
        flows: (R,) FLOW_DTYPE.
        rings: (R, 5, H) their curves (``ccenv.engine.compiled.beliefs.FlowRings``).
    """

    def __init__(self, game: Game, runs: int = 1) -> None:
        """Start runs in which nothing was seen."""
        length = 1 << (game.with_known_delay("the engine's bounds").horizon_steps + 2).bit_length()
        self._n, self.rings = 0, np.zeros((runs, 5, length))
        self.flows = np.zeros(runs, FLOW_DTYPE)
        one = ("C_L_Bps", "C_L_lambda_Bps", "period_C_L_Bps", "rtt_steps", "rtt_s", "rtt_now_steps", "lag_steps")
        values = dict.fromkeys((*one, "probe_window_steps"), 1.0)
        values |= dict.fromkeys(("C_U_Bps", "period_C_U_Bps", "rtt_min_steps"), np.inf)
        values |= dict.fromkeys(("jitter_steps", "jitter_s"), game.jitter_steps)
        for name, value in values.items():
            self.flows[name] = value
        self._settings, self._reciprocals = settings_record(belief_settings("no_timeout"))[0], reciprocal_table()

    def follow(self, parents: NDArray[Any], sent: NDArray[Any], delivered: NDArray[Any], lost: NDArray[Any]) -> None:
        """Go on from given runs with what a step brought in each."""
        self._n = n = self._n + 1
        self.flows, self.rings = self.flows[parents], self.rings[parents]
        for row, step in enumerate((delivered, delivered, sent - lost, lost)):
            self.rings[:, row, n] = self.rings[:, row, n - 1] + step
        at = (self.rings.ctypes.data, self.rings.shape[2] - 1, n)
        kernels.hear(self.flows, *at, sent, np.zeros(1, ENV_DTYPE)[0], self._settings, self._reciprocals.ctypes.data)

    def bounds(self) -> NDArray[np.float64]:
        """Return the bounds of FIELDS, (R, 6)."""
        return np.stack([self.flows[field] for field in FIELDS.values()], axis=1)


def bounds_along(boards: Boards, rows: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    """Return the engine's bounds before each row of ``ccenv.proofs.games.players.line``, and ``line`` of (6.3), in packets."""
    runs, found = EngineBounds(boards.game), []
    for row in rows:
        line = float(runs.flows["buffer_line_bytes"][0])
        found.append(dict(zip(FIELDS, runs.bounds()[0].tolist(), strict=True)) | {"line": line})
        sent = int(boards.pending[row["board"]]) if boards.game.feedback_steps else row["sent"]
        runs.follow(np.zeros(1, np.int64), *(np.array([step]) for step in (sent, row["delivered"], row["lost"])))
    return found


class Played(NamedTuple):
    """Runs against a network: the largest regret (random: the mean), the share of best decisions, and the worst run's moves."""

    regret: float
    optimal_share: float
    moves: list[tuple[int, int, int]]


@dataclass(frozen=True)
class BoundsSender:
    """A belief program on the engine's bounds, MSS = Rm = 1, rates rounded down to what is legal and whole."""

    name: str
    program: Program

    def sends(self, bounds: NDArray[np.float64]) -> NDArray[np.int64]:
        rows, places = np.unique(bounds, axis=0, return_inverse=True)
        exact = ([Fraction(min(x, UNLIMITED)).limit_denominator(_FINEST) for x in row] for row in rows.tolist())
        sent = [sends(self.program, dict(zip(FIELDS, row, strict=True))) for row in exact]
        return np.array(sent)[places.ravel()]

    def play(self, solved: Solved, network: str, runs: int = RUNS) -> Played:
        """Play against a network (``ccenv.proofs.games.players.NETWORKS``); runs are those that are kept or drawn."""
        return _play(self, solved, network, runs)


@lru_cache(maxsize=32)
def _play(sender: BoundsSender, solved: Solved, network: str, runs: int) -> Played:
    boards, draw, history, best = solved.boards, np.random.default_rng(1), [], []
    known = EngineBounds(boards.game, runs if network == "random" else 1)
    board = np.zeros(len(known.flows), dtype=np.int64)
    got = np.zeros_like(board)
    for left in range(solved.horizon_steps, 0, -1):
        after = solved.table[left - 1]
        action = np.clip(sender.sends(known.bounds()), 0, boards.actions[board] - 1)
        place, parents = boards.first_action[board] + action, np.arange(len(board))
        first, count = boards.first_edge[place], np.diff(boards.first_edge)[place]
        best.append(solved.best(left)[place])
        if network == "optimal":
            edges = solved.worst_edges(after)[place]
        elif network == "random":
            edges = first + (draw.random(len(board)) * count).astype(np.int64)
        else:
            parents = np.repeat(parents, count)
            edges = np.arange(len(parents)) + np.repeat(first - np.cumsum(count) + count, count)
        delivered, lost = boards.delivered[edges].astype(np.int64), boards.lost[edges].astype(np.int64)
        target, total = boards.target[edges].astype(np.int64), got[parents] + delivered
        sent = boards.pending[board] if boards.game.feedback_steps else action
        known.follow(parents, sent[parents], delivered, lost)
        kept: Any = slice(None)
        if network == "worst":
            costs = after[target] - total
            _, kept = np.unique(np.column_stack([target, costs, known.bounds()]), axis=0, return_index=True)
            kept = kept[np.lexsort((draw.random(len(kept)), -costs[kept]))[:runs]]
            known.flows, known.rings = known.flows[kept], known.rings[kept]
        history.append((parents[kept], board, action, edges[kept]))
        board, got = target[kept], total[kept]
    regrets = boards.fastest[board] * solved.horizon_steps - got
    run, moves = int(regrets.argmax()), []
    for parents, boards_then, actions, edges in reversed(history):
        edge, run = int(edges[run]), int(parents[run])
        moves.append((int(boards_then[run]), int(actions[run]), edge))
    regret = float(regrets.mean() if network == "random" else regrets.max())
    found = Played(regret, float(np.concatenate(best).mean()), moves[::-1])
    return found if network != "worst" else max(_play(sender, solved, "optimal", runs), found, key=lambda played: played.regret)


def sends(program: Program, bounds: Mapping[str, Fraction]) -> int:
    """Return the packets that a program sends at given bounds, MSS = Rm = 1, the rate rounded down."""
    return int(decide(program, {**_ONE, **bounds, "q_U/Rm": bounds["q_U"]}).rate)
