"""Random legal runs: paths, models, senders, adversaries from a trial number."""

from __future__ import annotations

import numpy as np

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.path import FlowPath, Path

PROGRAMS = ("cc_qdel", "cc_probe_drain", "cc_probe_slow", "cc_probe_qdel", "cc_probe_fast")
CLASSIC = ("reno", "cubic", "vegas", "copa", "bbr1")
SCRIPTED = ("kind", "slowest", "uniform", "batch", "periodic", "square", "hoard", "one_packet")
MODELS = ("ideal", "cbr_delay", "ccac", "strong")


def random_setup(trial, *, n_flows=None, senders=PROGRAMS + CLASSIC, models=MODELS, loss_budget=True, late_start=True):
    """Return path and keyword arguments of a run."""
    rng = np.random.default_rng(trial)
    N = n_flows or int(rng.integers(1, 4))
    K = int(rng.choice([1, 4, 8]))
    model = str(rng.choice(models))
    rtt_s, C = 0.04, 6e6 * 10 ** rng.uniform(-1, 1)
    rtts = [rtt_s * int(rng.choice([1, 1, 2])) for _ in range(N)]
    dt_s = min(rtts) / K
    jitter_s = 0.0 if model == "ideal" else int(rng.integers(0, K + 1)) * dt_s
    flows = tuple(
        FlowPath(
            rtt_s=rtt,
            jitter_s=jitter_s,
            start_s=float(rng.choice([0.0, 0.0, 3.3 * rtt_s])) if late_start else 0.0,
            loss_budget=float(rng.choice([0.0, 0.0, 0.02])) if loss_budget else 0.0,
        )
        for rtt in rtts
    )
    path = Path(
        link_rate_Bps=C,
        buffer_bytes=C * rtt_s * 10 ** rng.uniform(-1, 1),
        flows=flows,
        link_rate_min_Bps=C / 2 if model == "strong" else None,
        link_rate_max_Bps=C * 2 if model == "strong" else None,
    )
    if rng.random() < 0.5:
        moves = rng.random((200, 2 + 2 * N))
        corners = rng.random(moves.shape) < 0.3
        moves[corners] = np.round(moves[corners])
        adversary = RecordedAdversary("recorded", moves)
    else:
        adversary = make_adversary(str(rng.choice(SCRIPTED)))
    return path, {
        "model": model,
        "senders": [make_sender(str(rng.choice(senders))) for _ in range(N)],
        "adversary": adversary,
        "K": K,
        "loss_detection": str(rng.choice(["acks", "oracle"])),
    }
