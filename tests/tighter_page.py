"""The record docs/data/tighter-beliefs.json: ``python tests/tighter_page.py`` measures the tighter belief rules again."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from oracles.beliefs import ReferenceBeliefs
from oracles.exact_beliefs import exact_bounds

from ccenv.agents import make_sender
from ccenv.agents.sender import ExternalSender
from ccenv.base.files import json_bytes, write_atomic
from ccenv.engine.compiled.beliefs import BeliefSettings
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.network.adversary import RecordedAdversary
from ccenv.training.evaluation import evaluate_sender

RECORD = Path(__file__).parents[1] / "docs" / "data" / "tighter-beliefs.json"
RTT_S, RTTS, PATHS = 0.04, 10, 60
RATES = np.concatenate([np.geomspace(1e-4, 1, 2401), np.linspace(1, 8, 701)[1:]])  # in units of the true C; 1 is one of them
WATCHED = ("external", "cc_qdel", "cc_probe_drain", "learned_nominal_u78")
SCORED = (
    *("cc_qdel", "cc_probe_drain", "cc_probe_fast", "cc_probe_qdel"),
    *("learned_nominal_u54", "learned_nominal_u70", "learned_nominal_u78"),
    *("learned_shield_u80", "learned_shield_u77_timeouts", "learned_nominal"),
)


def random_moves(rng: np.random.Generator, n: int, steps: int) -> np.ndarray:
    moves, style = rng.random((n, steps, 4)), rng.integers(0, 4, n)
    moves[style == 1] = np.round(moves[style == 1])
    moves[style == 2] = np.repeat(moves[style == 2][:, ::16], 16, axis=1)[:, :steps]
    moves[style == 3] = (moves[style == 3] < 0.1).astype(float)
    return moves


def histories(sender: str, n: int, steps_per_rtt: int, seed: int) -> list[dict[str, Any]]:
    """Return what a flow sees in the last RTTS round trips of random legal runs on CCAC, in units of C dt."""
    rng = np.random.default_rng(seed)
    C = 6e6 * 10 ** rng.uniform(-1.5, 1.0, n)
    buffers = C * RTT_S * 10 ** rng.uniform(-1, 1, n)
    paths = PathArrays.simple(
        steps_per_rtt=steps_per_rtt, link_rate_Bps=C, rtt_s=np.full(n, RTT_S), jitter_steps=np.full(n, steps_per_rtt),
        buffer_bytes=buffers, mss_bytes=np.full(n, 1500.0),
    )  # fmt: skip
    steps = RTTS * steps_per_rtt
    played = [2 * RTTS, 4 * RTTS][rng.integers(2)] * steps_per_rtt
    engine = CurveEngine(
        paths, model="ccac", senders=[ExternalSender() if sender == "external" else make_sender(sender)],
        adversary=[RecordedAdversary("random", moves) for moves in random_moves(rng, n, played)],
        steps_per_rtt=steps_per_rtt, loss_detection="oracle", record=True,
    )  # fmt: skip
    for step in range(played):
        rates = C * 10 ** rng.uniform(-1, 0.6, n) if sender == "external" and step % 3 == 0 else np.full(n, np.nan)
        engine.advance(1, actions=rates[:, None])
    found = []
    for b in range(n):
        trace, unit = engine.trace(b), C[b] * RTT_S / steps_per_rtt
        lost = trace.L[-steps - 2 :, 0] / unit
        E, S = ((curve[-steps - 1 :, 0] - trace.S[-steps - 1, 0]) / unit for curve in (trace.A - trace.L, trace.S))
        found.append({"E": E, "S": S, "L": lost, "lossy": np.diff(lost) > 1e-9, "buffer": buffers[b] / unit})
    return found


def bounds_of(history: Mapping[str, Any], steps_per_rtt: int, tighter: bool) -> tuple[float, float]:
    """Return C_L and C_U of a history by the plain reference, in units of the true C."""
    settings = BeliefSettings(period_rtts=np.inf, tighter=tighter)
    beliefs = ReferenceBeliefs(
        rtt_steps=steps_per_rtt, jitter_steps=steps_per_rtt, dt_s=1.0, mss_bytes=1e-6, settings=settings,
        probe_window_steps=steps_per_rtt, window_steps=RTTS * steps_per_rtt, tie_bytes=1e-9,
    )  # fmt: skip
    E, S, L = (list(history[name]) for name in "ESL")
    beliefs.start_step = -1
    for n in range(1, len(S)):
        lower, upper, _ = beliefs.update(E, L[1:], S[: n + 1])
    return lower, upper


def gap(n: int = PATHS, steps_per_rtt: int = 1, seed: int = 11) -> list[dict[str, Any]]:
    """Return how far the bounds are from the exact ones, with and without the tighter rules: one row per kind of history."""
    rows = []
    for k, sender in enumerate(WATCHED):
        for history in histories(sender, n, steps_per_rtt, seed + k):
            exact = exact_bounds(RATES, *(history[key] for key in ("buffer", "E", "S", "lossy")), steps_per_rtt)
            rows.append(
                (
                    history["lossy"].any(),
                    *exact,
                    *bounds_of(history, steps_per_rtt, False),
                    *bounds_of(history, steps_per_rtt, True),
                )
            )
    table = np.array(rows, float)
    found = []
    for name, chosen in (("with losses", table[:, 0] > 0), ("without losses", table[:, 0] == 0), ("all", table[:, 0] >= 0)):
        part = table[chosen & (table[:, 1] > RATES[0])]
        upper = part[part[:, 2] < RATES[-1]]
        capped = np.minimum(upper[:, [4, 6]], RATES[-1])
        found.append(
            {
                "histories": name,
                "number": len(part),
                "C_L": [round(float((part[:, column] / part[:, 1]).mean()), 3) for column in (3, 5)],
                "C_L_worst": [round(float((part[:, column] / part[:, 1]).min()), 3) for column in (3, 5)],
                "with_upper_bound": len(upper),
                "C_U": [round(float(x), 3) for x in (capped / upper[:, [2]]).mean(axis=0)],
            }
        )
    return found


def scores(n_paths: int = 1024) -> list[dict[str, Any]]:
    """Return each sender's score in the common world, with the rules of ``artefact`` and with the tighter ones."""
    keys = ("score", "utilisation", "queue_bdp", "loss")
    found = []
    for name in SCORED:
        for preset in ("artefact", "tighter"):
            result = evaluate_sender(make_sender(name), n_paths=n_paths, beliefs=preset)
            found.append({"sender": name, "beliefs": preset} | {key: round(float(getattr(result, key)), 4) for key in keys})
    return found


if __name__ == "__main__":
    made = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    for part in sys.argv[1:] or ("gap", "scores"):
        made[part] = {"gap": gap, "scores": scores}[part]()
        write_atomic(RECORD, json_bytes(made))
