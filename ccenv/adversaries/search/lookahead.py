"""Looking ahead on copies of the engine's state: what greedy and beam search share."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from ccenv.adversaries.search.game import KIND, N_MOVES, Game
from ccenv.adversary import ExternalAdversary
from ccenv.engine.curve import CurveEngine, Snapshot
from ccenv.errors import InputError


def fork(engine: CurveEngine, sources: np.ndarray) -> None:
    """Let environment b of an engine go on from where environment sources[b] is."""
    state = engine.snapshot()
    arrays = dict(state.arrays)
    for name, array in state.arrays.items():
        if len(array) % engine.n_envs == 0:  # else no environment uses it
            rows = array.reshape(engine.n_envs, len(array) // engine.n_envs, *array.shape[1:])
            arrays[name] = rows[sources].reshape(array.shape)
    engine.restore(Snapshot(arrays))


def plans(game: Game) -> np.ndarray:
    """Return what is tried at each decision: a corner for now and a corner for later, (n, 2, open moves)."""
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=len(game.open_moves))))
    return np.array([(now, later) for now in corners for later in corners])


@dataclass(frozen=True)
class Look:
    """How a search looks ahead.

    Attributes:
        width: prefixes kept: 1 is greedy.
        interval_rtts: Rm per decision.
        horizon_rtts: Rm looked ahead, interval included.
    """

    width: int
    interval_rtts: int
    horizon_rtts: int

    def flow_steps(self, game: Game) -> int:
        """Return what it costs, at most."""
        rtts = (game.n_steps - game.calm_steps) / game.scene.steps_per_rtt
        decisions = math.ceil(rtts / self.interval_rtts) + 1  # one more where the window begins
        played = decisions * (self.interval_rtts + self.horizon_rtts) * game.scene.steps_per_rtt
        return self.width * len(plans(game)) * (game.calm_steps + played)

    def within(self, game: Game, budget_flow_steps: int, name: str) -> Look:
        """Return the same search or one that a budget pays for: fewer prefixes, then rarer decisions.

        Raises:
            InputError: if even the smallest is too much.
        """
        look = self
        while look.flow_steps(game) > budget_flow_steps:
            if look.width > 1:
                look = replace(look, width=look.width // 2)
            elif look.interval_rtts < game.n_steps // game.scene.steps_per_rtt:
                look = replace(
                    look, interval_rtts=2 * look.interval_rtts, horizon_rtts=max(look.horizon_rtts, 2 * look.interval_rtts)
                )
            else:
                raise InputError(
                    f"adversary {name!r} has a budget of {budget_flow_steps} flow-steps; at least {look.flow_steps(game)} are "
                    "needed: raise the budget"
                )
        return look


def look_ahead(game: Game, look: Look) -> np.ndarray:
    """Build moves decision by decision; keep the worst prefixes.

    At each decision every prefix is tried with every plan: one corner for the interval, one for the rest of the horizon. Plans
    are ranked by what is delivered until the end of the horizon: since the measured window began, or before that since the
    decision. The first corner of the best plans is then played.

    Args:
        game: the game; its flow-steps are counted.
        look: width, interval and horizon.

    Returns:
        (n_steps, N_MOVES): the worst complete sequence.
    """
    K = game.scene.steps_per_rtt
    width = look.width
    options = plans(game)
    n = width * len(options)
    engine = game.engine(ExternalAdversary(), n)
    moves = np.tile(KIND, (n, 1))
    prefixes = np.empty((n, game.n_steps, N_MOVES))
    prefixes[:] = KIND
    now, later = (np.tile(options[:, part], (width, 1)) for part in (0, 1))

    def play(values: np.ndarray, steps: int) -> None:
        moves[:, game.open_moves] = values
        engine.advance(steps, moves=moves)
        game.count(engine, steps)

    if game.calm_steps:
        play(np.array(KIND)[list(game.open_moves)], game.calm_steps)
    step, since = game.calm_steps, np.zeros(n)
    while step < game.n_steps:
        if step <= game.first_row:  # a decision falls on the start of the window
            since = engine.flow("S")[:, 0]
        end = game.first_row if step < game.first_row else game.n_steps
        steps = min(look.interval_rtts * K, end - step)
        play(now, steps)
        prefixes[:, step : step + steps, game.open_moves] = now[:, None, :]
        after = engine.snapshot()
        ahead = min(look.horizon_rtts * K, game.n_steps - step) - steps
        if ahead > 0:
            play(later, ahead)
        delivered = engine.flow("S")[:, 0] - since
        engine.restore(after)
        kept = _distinct(np.argsort(delivered, kind="stable"), prefixes[:, : step + steps, game.open_moves], width)
        sources = np.repeat(kept, len(options))
        fork(engine, sources)
        prefixes, since = prefixes[sources], since[sources]
        step += steps
    return np.asarray(prefixes[0])


def _distinct(order: np.ndarray, prefixes: np.ndarray, width: int) -> np.ndarray:
    """Return the first ``width`` rows in order whose prefixes differ; the best is repeated where there are fewer."""
    seen: set[bytes] = set()
    kept = []
    for row in order:
        key = prefixes[row].tobytes()
        if key not in seen:
            seen.add(key)
            kept.append(int(row))
            if len(kept) == width:
                break
    return np.array((kept + [kept[0]] * width)[:width])
