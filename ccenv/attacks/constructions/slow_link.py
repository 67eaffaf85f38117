"""Theorem 2 of [Starvation] (s.6.1): to a sender a fast link with a delay element looks like a slow link.

If the delay that a deterministic sender causes on an ideal link of rate C never exceeds D, a link of any rate C' > C can show it
exactly the same deliveries: the queue of the fast link is (nearly) empty, and the delay element holds every byte as long as the
slow link's queue would. The sender then sends at the rate of the slow link, and the utilisation is about C/C'.

The emulated link may also become slower and slower: a sender that overshoots D on a slow link at its start, or in a step down,
can be led there by small steps (not part of the theorem; its condition is the same: no delay above D). :func:`emulate` computes
the moves for a given delivery curve, and its distance from legal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.attacks.game import KIND, SERVICE, Found, Game
from ccenv.base.registry import number
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.path import Path, RateChange

BYTES_TIE = 1e-9  # relative to the bytes at stake: round-off


def departures(entered: np.ndarray, per_step_bytes: float, tokens_before: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the departures (steps, ...) P(1), P(2), ... of a link without stock: G(k) = min(G(k-1) + C*dt, E(k)).

    ``entered`` (steps, ...) are cumulative bytes E(1), E(2), ...; ``per_step_bytes`` is C*dt and ``tokens_before`` G(0).
    """
    out = np.empty_like(entered)
    G = np.broadcast_to(np.asarray(tokens_before, dtype=np.float64), entered.shape[1:]).copy()
    for k in range(len(entered)):
        G = np.minimum(G + per_step_bytes, entered[k])
        out[k] = G
    return out


@dataclass(frozen=True)
class Emulation:
    """The moves of a delay element that turn departures into a given delivery curve."""

    service: np.ndarray  # (steps,) the moves, in [0, 1]; clipped where the curve is not legal
    early_bytes: float  # most by which the curve is ahead of the departures; above round-off it cannot be emulated
    jitter_steps: float  # longest time that a byte is held: the smallest D, in steps, that suffices


def emulate(departed: np.ndarray, wanted: np.ndarray, jitter_steps: int) -> Emulation:
    """Return the moves that deliver ``wanted``.

    Args:
        departed: (steps + 1,) P of the flow from row 0 on; row 0 is the initial state.
        wanted: (steps + 1,) S of the emulated flow; row 0 is the initial state.
        jitter_steps: D. Rows before 0 are assumed not to bind.
    """
    steps = len(wanted) - 1
    high = departed[1:]
    low = wanted[:-1].copy()
    bound = steps - jitter_steps
    if bound >= 0:
        held = slice(max(jitter_steps - 1, 0), None)
        low[held] = np.maximum(low[held], departed[: bound + 1] if jitter_steps > 0 else departed[1:])
    room = high - low
    tie = BYTES_TIE * max(1.0, float(np.abs(high[-1])))
    free = room > tie
    service = np.where(free, np.clip((wanted[1:] - low) / np.where(free, room, 1.0), 0.0, 1.0), 1.0)
    return Emulation(service, float(np.max(wanted - departed)), _longest_hold(departed, wanted, tie))


def _longest_hold(departed: np.ndarray, wanted: np.ndarray, tie: float) -> float:
    """Return the most rows between a byte's departure and its delivery.

    At row k all bytes up to wanted(k) are delivered; the next byte left in the first row whose P is above that.
    """
    rows = np.arange(len(wanted))
    departure_rows = np.searchsorted(departed, wanted + tie, side="right")  # first row with P(row) > wanted(k)
    waiting = departure_rows <= rows
    return float(np.max(np.where(waiting, rows - departure_rows, -1)) + 1)


STAY_SHARES = (1.0, 0.98, 0.95, 0.9)  # of the emulated rate that remains after each Rm
KIND_MOVES = RecordedAdversary("kind", np.array([KIND]))


@dataclass(frozen=True)
class SlowLink:
    """Emulates slow links of many rates and keeps the one that hurts most."""

    slowest_share: float  # smallest C / C' tried
    rates: int  # number of rates between that and 1/1.2, evenly spaced in the logarithm, each with all of STAY_SHARES
    weight: float = 0.0

    def least_flow_steps(self, game: Game) -> int:
        """Return the cost: every emulated link alone, then its emulation."""
        applies = game.model.has_jitter and game.scene.path.flows[0].jitter_s > 0 and game.scene.path.n_flows == 1
        return self.rates * len(STAY_SHARES) * (2 * game.n_steps - game.calm_steps) if applies else 0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst emulation; if the delay on the slow link exceeds D it is only approximate, yet legal.

        Without jitter, or with several flows, the theorem does not apply: the benign network is played, and a precondition is
        reported as failed.
        """
        if not game.model.has_jitter or game.scene.path.flows[0].jitter_s == 0:
            return Found(RecordedAdversary("kind", game.kind[None]), preconditions={"has_jitter": False})
        if game.scene.path.n_flows > 1:
            return Found(RecordedAdversary("kind", game.kind[None]), preconditions={"one_flow": False})
        path = game.scene.path
        floor = max(self.slowest_share, min(0.5, path.mss_bytes / path.bdp_bytes))
        shares = np.geomspace(floor, 1 / 1.2, self.rates)
        slow = [_make_slow_path(game, share, stay, floor) for share in shares for stay in STAY_SHARES]
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
            entered, solo_served = solo.E[:, 0], solo.S[:, 0]
            departed = np.concatenate(([0.0], departures(entered[1:], per_step)))
            emulation = emulate(departed, solo_served, jitter_steps)
            moves[b, game.calm_steps :, SERVICE] = emulation.service
            holds.append((emulation, solo_served))
        utilisation = game.play(moves)
        worst = int(np.argmin(utilisation))
        emulation, solo_served = holds[worst]
        adversary = RecordedAdversary("slow_link", moves[worst])
        result = Found(adversary, trace=game.trace(adversary))
        exact = [i for i, (one, _) in enumerate(holds) if one.jitter_steps <= jitter_steps]
        result.details = {
            "emulated_rate_share": float(shares[worst // len(STAY_SHARES)]),
            "left_after_each_rtt": STAY_SHARES[worst % len(STAY_SHARES)],
            "longest_delay_rtts": emulation.jitter_steps / game.scene.steps_per_rtt,
            "worst_with_delay_within_D": float(utilisation[exact].min()) if exact else None,
        }
        result.preconditions = _check_preconditions(game, result, emulation.jitter_steps <= jitter_steps, solo_served)
        return result


def _make_slow_path(game: Game, share: float, stay: float, floor: float) -> Path:
    """Return the emulated path: a share of the link's rate, of which a part remains after each Rm, with an infinite buffer."""
    path = game.scene.path
    rtts = (game.n_steps - game.calm_steps) // game.scene.steps_per_rtt
    rates = [path.link_rate_Bps * max(floor, share * stay**n) for n in range(rtts)]
    changes = tuple(
        RateChange(time_s=n * path.flows[0].rtt_s, link_rate_Bps=rate)
        for n, rate in enumerate(rates)
        if n > 0 and rate != rates[n - 1]
    )
    return path.model_copy(update={"link_rate_Bps": rates[0], "buffer_bytes": np.inf, "rate_changes": changes})


def _check_preconditions(game: Game, found: Found, within: bool, wanted: np.ndarray) -> dict[str, Any]:
    """Return which conditions of the theorem held in the run."""
    if found.trace is None or game.calm_steps:
        return {"delay_within_D": within}
    difference = float(np.abs(found.trace.S[:, 0] - wanted).max())
    return {
        "delay_within_D": within,
        "emulation_exact": difference <= 1e3 * BYTES_TIE * max(1.0, float(wanted[-1])),
        "largest_difference_bytes": difference,
    }


def search(slowest_share: float = 1 / 256, rates: int = 24) -> SlowLink:
    """Build the construction: smallest ratio of the emulated to the real link rate, in (0, 0.5], and 2 to 256 rates.

    At least one segment per Rm is emulated.
    """
    return SlowLink(
        number("slow_link", "slowest_share", slowest_share, above=0, high=0.5),
        int(number("slow_link", "rates", rates, low=2, high=256, whole=True)),
    )
