"""Greedy and beam search on engine snapshots.

Greedy search takes at each decision the corner with the worst consequences within its horizon; beam search keeps several
prefixes, because moves that hurt later may not hurt now.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from ccenv.attacks.game import Found, Game
from ccenv.attacks.goals import UTILISATION
from ccenv.base.errors import InputError
from ccenv.base.registry import number
from ccenv.engine.curve.engine import CurveEngine, Snapshot
from ccenv.network.adversary import ExternalAdversary, RecordedAdversary

MOST_OPEN = 4  # moves: 16 corners, 256 plans


def fork(engine: CurveEngine, sources: np.ndarray) -> None:
    """Set environment b of an engine to the state of environment sources[b]."""
    state = engine.snapshot()
    arrays = dict(state.arrays)
    for name, array in state.arrays.items():
        if len(array) % engine.n_envs == 0:  # else no environment uses it
            rows = array.reshape(engine.n_envs, len(array) // engine.n_envs, *array.shape[1:])
            arrays[name] = rows[sources].reshape(array.shape)
    engine.restore(Snapshot(arrays))


def plans(game: Game) -> np.ndarray:
    """Return the plans of each decision: a corner for now and a corner for later, (n, 2, open moves)."""
    if len(game.open_moves) > MOST_OPEN:
        raise InputError(f"{len(game.open_moves)} open moves have too many corners to look ahead; at most {MOST_OPEN}")
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=len(game.open_moves))))
    return np.array([(now, later) for now in corners for later in corners])


@dataclass(frozen=True)
class Look:
    """Parameters of a search that looks ahead."""

    width: int  # prefixes kept; 1 is greedy
    interval_rtts: int  # Rm per decision
    horizon_rtts: int  # Rm looked ahead, interval included

    def flow_steps(self, game: Game) -> int:
        rtts = (game.n_steps - game.calm_steps) / game.scene.steps_per_rtt
        decisions = math.ceil(rtts / self.interval_rtts) + 1  # one more where the window begins
        played = decisions * (self.interval_rtts + self.horizon_rtts) * game.scene.steps_per_rtt
        steps = self.width * (len(plans(game)) * (game.calm_steps + played) + game.n_steps)
        return steps * game.scene.path.n_flows

    def _cheaper_looks(self, game: Game) -> Iterator[Look]:
        """Yield these parameters, then cheaper ones: fewer prefixes, then rarer decisions."""
        look = self
        yield look
        while look.width > 1 or look.interval_rtts < game.n_steps // game.scene.steps_per_rtt:
            if look.width > 1:
                look = replace(look, width=look.width // 2)
            else:
                twice = 2 * look.interval_rtts
                look = replace(look, interval_rtts=twice, horizon_rtts=max(look.horizon_rtts, twice))
            yield look

    def least_flow_steps(self, game: Game) -> int:
        """Return the largest cost of the cheapest parameters."""
        return min(look.flow_steps(game) for look in self._cheaper_looks(game))

    def within(self, game: Game, budget_flow_steps: int, name: str) -> Look:
        """Return the first parameters that a budget allows. Raises InputError if none is cheap enough."""
        for look in self._cheaper_looks(game):
            if look.flow_steps(game) <= budget_flow_steps:
                return look
        raise InputError(
            f"adversary {name!r} has a budget of {budget_flow_steps} flow-steps; at least {self.least_flow_steps(game)} are "
            "needed: raise the budget"
        )


def look_ahead(game: Game, look: Look) -> tuple[np.ndarray, float]:
    """Build moves decision by decision, keeping the worst prefixes; return the worst sequence (n_steps, 2 + 2 N) and its outcome.

    At each decision every prefix is tried with every plan: one corner for the interval, one for the rest of the horizon. Plans
    are ranked by the bytes delivered until the end of the horizon: since the measured window began, or before that since the
    decision; in proof timing by the worst window so far or the one that ends with the horizon; for other goals by their outcome.
    The first corner of the best plans is then played.
    """
    K = game.scene.steps_per_rtt
    options = plans(game)
    n = look.width * len(options)
    engine = game.engine(ExternalAdversary(), n)
    moves = np.tile(game.kind, (n, 1))
    prefixes = np.empty((n, game.n_steps, len(game.kind)))
    prefixes[:] = game.kind
    now, later = (np.tile(options[:, part], (look.width, 1)) for part in (0, 1))
    served = np.zeros((game.n_steps + 1, n))  # of each prefix; rows between decisions are filled in proof timing only
    counts = engine.totals()  # of each prefix where counting begins

    def play(values: np.ndarray, steps: int) -> None:
        moves[:, game.open_moves] = values
        engine.advance(steps, moves=moves)
        game.count(engine, steps)

    if game.calm_steps:
        play(game.kind[list(game.open_moves)], game.calm_steps)
    step = game.calm_steps
    served[step] = engine.flow("S")[:, 0]
    while step < game.n_steps:
        end = game.first_row if step < game.first_row else game.n_steps
        steps = min(look.interval_rtts * K, end - step)
        if game.scene.timing == "smt":
            for row in range(step, step + steps):
                play(now, 1)
                served[row + 1] = engine.flow("S")[:, 0]
        else:
            play(now, steps)
            served[step + steps] = engine.flow("S")[:, 0]
        prefixes[:, step : step + steps, game.open_moves] = now[:, None, :]
        after = engine.snapshot()
        reach = min(step + max(steps, look.horizon_rtts * K), game.n_steps)
        if reach > step + steps:
            play(later, reach - step - steps)
        if game.scene.goal == UTILISATION and game.scene.path.n_flows == 1:
            rank = _rank_plans(game, served, engine.flow("S")[:, 0], step, step + steps, reach)
        else:
            rank = game.outcome({name: now_count - counts[name] for name, now_count in engine.totals().items()})
        engine.restore(after)
        survivors = _select_distinct(np.argsort(rank, kind="stable"), prefixes[:, : step + steps, game.open_moves], look.width)
        sources = np.repeat(survivors, len(options))
        fork(engine, sources)
        prefixes, served = prefixes[sources], served[:, sources]
        step += steps
        counts = engine.totals() if step <= game.first_row else {name: array[sources] for name, array in counts.items()}
    finalists = prefixes[:: len(options)]
    outcome = game.play(finalists)
    worst = int(np.argmin(outcome))
    return finalists[worst].copy(), float(outcome[worst])


def _rank_plans(game: Game, served: np.ndarray, at_reach: np.ndarray, step: int, done: int, reach: int) -> np.ndarray:
    """Return the ranks of plans, (n,), in bytes delivered: lower is worse.

    ``served`` (rows, n) are cumulative bytes, known up to row ``done``, the end of the interval of the decision at row ``step``;
    ``at_reach`` (n,) are those at row ``reach``, the end of the horizon.
    """
    first = game.first_row
    if game.scene.timing != "smt" or reach <= first:
        return np.asarray(at_reach - served[first if step >= first else step])
    last = game.scene.claim.samples - 1
    complete = served[first + last : done + 1] - served[first : max(first, done + 1 - last)]
    coming = at_reach - served[max(first, min(done, reach - last))]
    coming = coming * last / max(1, reach - max(first, min(done, reach - last)))  # a window that is not full yet
    return np.asarray(np.minimum(coming, complete.min(axis=0)) if len(complete) else coming)


def _select_distinct(order: np.ndarray, prefixes: np.ndarray, width: int) -> np.ndarray:
    """Return the first ``width`` rows in order whose prefixes differ; the best is repeated if there are fewer."""
    keys: set[bytes] = set()
    rows = []
    for row in order:
        key = prefixes[row].tobytes()
        if key not in keys:
            keys.add(key)
            rows.append(int(row))
            if len(rows) == width:
                break
    return np.array((rows + [rows[0]] * width)[:width])


@dataclass(frozen=True)
class LookAhead:
    """A search that looks ahead, as far as the budget allows: greedy with one prefix, beam with several."""

    name: str
    look: Look
    weight: float

    def least_flow_steps(self, game: Game) -> int:
        """Return the cost of the smallest such search."""
        return self.look.least_flow_steps(game)

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst complete sequence of moves."""
        look = self.look.within(game, budget_flow_steps, self.name)
        return Found(RecordedAdversary(self.name, look_ahead(game, look)[0]), details=asdict(look))


def build_look(name: str, width: int, interval_rtts: int, horizon_rtts: int) -> Look:
    """Return checked parameters. Raises InputError for one out of range."""
    return Look(
        int(number(name, "width", width, low=1, high=256, whole=True)),
        int(number(name, "interval_rtts", interval_rtts, low=1, high=100, whole=True)),
        int(number(name, "horizon_rtts", horizon_rtts, low=1, high=1000, whole=True)),
    )


def search_beam(width: int = 16, interval_rtts: int = 1, horizon_rtts: int = 8) -> LookAhead:
    """Build the search: 1 to 256 prefixes, 1 to 100 Rm per decision, horizons of 1 to 1000 Rm including the interval."""
    return LookAhead("beam", build_look("beam", width, interval_rtts, horizon_rtts), weight=2.0)


def search_greedy(interval_rtts: int = 1, horizon_rtts: int = 8) -> LookAhead:
    """Build the search: 1 to 100 Rm per decision, horizons of 1 to 1000 Rm including the interval."""
    return LookAhead("greedy", build_look("greedy", 1, interval_rtts, horizon_rtts), weight=0.5)
