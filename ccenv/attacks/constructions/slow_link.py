"""Theorem 2 of [Starvation] (s.6.1): a fast link and a jitter box look like a slow link to a sender.

If the delay that a deterministic sender causes on an ideal link of rate C never exceeds D, a link of any rate C' > C can show it
exactly the same deliveries: the queue of the fast link is (nearly) empty and the jitter box holds every byte as long as the slow
link's queue would. The sender then sends at the rate of the slow link, and the utilisation is about C/C'.

The emulated link may also become slower and slower: a sender that overshoots D on a slow link at its start, or in a step down,
can be led there by small steps (not part of the theorem; its condition is the same: no delay above D).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.attacks.constructions.jitter import BYTES_TIE, departures, emulate
from ccenv.attacks.game import KIND, SERVICE, Found, Game
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.path import Path, RateChange
from ccenv.base.parameters import number

STAY_SHARES = (1.0, 0.98, 0.95, 0.9)  # of the emulated rate that is left after each Rm
KIND_MOVES = RecordedAdversary("kind", np.array([KIND]))


@dataclass(frozen=True)
class SlowLink:
    """Emulate slow links of many rates and keep the one that hurts most.

    Attributes:
        slowest_share: smallest C / C' tried.
        rates: how many rates between that and 1/1.2, evenly spaced in the logarithm, each with every one of STAY_SHARES.
    """

    slowest_share: float
    rates: int
    weight: float = 0.0

    def least_flow_steps(self, game: Game) -> int:
        """Return what it takes: every emulated link alone, then its emulation."""
        able = game.model.has_jitter and game.scene.path.flows[0].jitter_s > 0 and game.scene.path.n_flows == 1
        return self.rates * len(STAY_SHARES) * (2 * game.n_steps - game.calm_steps) if able else 0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst emulation; where the delay on the slow link exceeds D it is only approximate, yet legal.

        Without jitter there is nothing to emulate with, and the theorem is about one flow: the kind network is then played, and
        the precondition says so.
        """
        if not game.model.has_jitter or game.scene.path.flows[0].jitter_s == 0:
            return Found(RecordedAdversary("kind", game.kind[None]), preconditions={"has_jitter": False})
        if game.scene.path.n_flows > 1:
            return Found(RecordedAdversary("kind", game.kind[None]), preconditions={"one_flow": False})
        path = game.scene.path
        floor = max(self.slowest_share, min(0.5, path.mss_bytes / path.bdp_bytes))
        shares = np.geomspace(floor, 1 / 1.2, self.rates)
        slow = [_slower(game, share, stay, floor) for share in shares for stay in STAY_SHARES]
        engine = game.engine(KIND_MOVES, len(slow), record=True, paths=PathArrays.from_paths(slow, game.scene.steps_per_rtt))
        engine.advance(game.n_steps - game.calm_steps)
        game.count(engine, game.n_steps - game.calm_steps)
        jitter_steps = int(engine.env("jitter_steps")[0])
        per_step = path.link_rate_Bps * float(engine.env("dt_s")[0])
        moves = np.empty((len(slow), game.n_steps, len(KIND)))
        moves[:] = KIND
        holds = []
        for b in range(len(slow)):
            solo = engine.trace(b)
            entered, wanted = solo.E[:, 0], solo.S[:, 0]
            left = np.concatenate(([0.0], departures(entered[1:], per_step)))
            emulation = emulate(left, wanted, jitter_steps)
            moves[b, game.calm_steps :, SERVICE] = emulation.service
            holds.append((emulation, wanted))
        utilisation = game.play(moves)
        worst = int(np.argmin(utilisation))
        emulation, wanted = holds[worst]
        adversary = RecordedAdversary("slow_link", moves[worst])
        found = Found(adversary, trace=game.trace(adversary))
        exact = [i for i, (one, _) in enumerate(holds) if one.jitter_steps <= jitter_steps]
        found.details = {
            "emulated_rate_share": float(shares[worst // len(STAY_SHARES)]),
            "left_after_each_rtt": STAY_SHARES[worst % len(STAY_SHARES)],
            "longest_delay_rtts": emulation.jitter_steps / game.scene.steps_per_rtt,
            "worst_with_delay_within_D": float(utilisation[exact].min()) if exact else None,
        }
        found.preconditions = _preconditions(game, found, emulation.jitter_steps <= jitter_steps, wanted)
        return found


def _slower(game: Game, share: float, stay: float, floor: float) -> Path:
    """Return the emulated path: a share of the link's rate, of which a part stays after each Rm, with no end to its buffer."""
    path = game.scene.path
    rtts = (game.n_steps - game.calm_steps) // game.scene.steps_per_rtt
    rates = [path.link_rate_Bps * max(floor, share * stay**n) for n in range(rtts)]
    changes = tuple(
        RateChange(time_s=n * path.flows[0].rtt_s, link_rate_Bps=rate)
        for n, rate in enumerate(rates)
        if n > 0 and rate != rates[n - 1]
    )
    return path.model_copy(update={"link_rate_Bps": rates[0], "buffer_bytes": np.inf, "rate_changes": changes})


def _preconditions(game: Game, found: Found, within: bool, wanted: np.ndarray) -> dict[str, Any]:
    """Say which conditions of the theorem held in the run."""
    if found.trace is None or game.calm_steps:
        return {"delay_within_D": within}
    difference = float(np.abs(found.trace.S[:, 0] - wanted).max())
    return {
        "delay_within_D": within,
        "emulation_exact": difference <= 1e3 * BYTES_TIE * max(1.0, float(wanted[-1])),
        "largest_difference_bytes": difference,
    }


def search(slowest_share: float = 1 / 256, rates: int = 24) -> SlowLink:
    """Build the construction.

    Args:
        slowest_share: smallest ratio of the emulated to the real link rate, in (0, 0.5]; one segment per Rm at least.
        rates: how many rates are tried, 2 to 256.
    """
    return SlowLink(
        number("slow_link", "slowest_share", slowest_share, above=0, high=0.5),
        int(number("slow_link", "rates", rates, low=2, high=256, whole=True)),
    )
