"""Random legal runs from a trial number: paths, models, senders, adversaries, and flows that are silent for a number of rings."""

import numpy as np

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.engine.compiled.beliefs import BeliefSettings
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.path import FlowPath, Path, Workload

PROGRAMS = ("cc_qdel", "cc_probe_drain", "cc_probe_slow", "cc_probe_qdel", "cc_probe_fast")
CLASSIC = ("reno", "cubic", "vegas", "copa", "bbr1")
SCRIPTED = ("kind", "slowest", "uniform", "batch", "periodic", "square", "hoard", "one_packet")
MODELS = ("ideal", "cbr_delay", "ccac", "strong")


def random_adversary(rng, n_flows):
    if rng.random() >= 0.5:
        return make_adversary(str(rng.choice(SCRIPTED)))
    moves = rng.random((200, 2 + 2 * n_flows))
    corners = rng.random(moves.shape) < 0.3
    moves[corners] = np.round(moves[corners])
    return RecordedAdversary("recorded", moves)


def random_setup(trial, *, n_flows=None, senders=PROGRAMS + CLASSIC, models=MODELS, loss_budget=True, late_start=True):
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
        link_rate_Bps=C, buffer_bytes=C * rtt_s * 10 ** rng.uniform(-1, 1), flows=flows,
        link_rate_min_Bps=C / 2 if model == "strong" else None, link_rate_max_Bps=C * 2 if model == "strong" else None,
    )  # fmt: skip
    adversary = random_adversary(rng, N)
    return path, {
        "model": model, "senders": [make_sender(str(rng.choice(senders))) for _ in range(N)], "adversary": adversary, "K": K,
        "loss_detection": str(rng.choice(["acks", "oracle"])),
    }  # fmt: skip


SILENCES = ("late_start", "late_start_of_one", "on_off", "on_off_of_one", "finite_then_late", "stop_then_late")
SHORT_WINDOWS = BeliefSettings(window_rtts=2)  # short rings: many of them in a run that the plain reference can follow
PLAYED_RTTS = 10  # before and after the silence


def silent_setup(rng, kind, rings, *, model, K, sender):
    """Return path, keyword arguments of a run, the number of its steps, and the length of the rings.

    Args:
        rng: chooses the path and the network's player.
        kind: of SILENCES.
        rings: length of the silence in lengths of the rings.
        model: of the network.
        K: steps per Rm.
        sender: name of the sender of all flows.
    """
    rtt_s = float(rng.choice([0.005, 0.04]))  # a time-out of 0.2 s is longer than the rings, or shorter
    dt_s = rtt_s / K
    C = 6e6 * 10 ** rng.uniform(-0.5, 1) * 0.04 / rtt_s
    jitter_s = 0.0 if model == "ideal" else int(rng.integers(0, K + 1)) * dt_s
    buffer_bytes = C * rtt_s * 10 ** rng.uniform(-0.7, 0.4)

    def as_path(silence_s):
        later = PLAYED_RTTS * rtt_s + silence_s
        off = Workload(kind="on_off", on_s=0.6 * PLAYED_RTTS * rtt_s, off_s=max(dt_s, silence_s))
        finite = Workload(kind="finite", size_bytes=C * rtt_s * float(rng.uniform(0.5, 2)))
        flows = {
            "late_start": [{"start_s": silence_s}],
            "late_start_of_one": [{}, {"start_s": silence_s}],
            "on_off": [{"workload": off}],
            "on_off_of_one": [{}, {"workload": off}],
            "finite_then_late": [{"workload": finite}, {"start_s": later}],
            "stop_then_late": [{"stop_s": PLAYED_RTTS * rtt_s / 2}, {"start_s": later}],
        }[kind]
        return Path(
            link_rate_Bps=C,
            buffer_bytes=buffer_bytes,
            flows=tuple(FlowPath(rtt_s=rtt_s, jitter_s=jitter_s, **flow) for flow in flows),
            link_rate_min_Bps=C / 2 if model == "strong" else None,
            link_rate_max_Bps=C * 2 if model == "strong" else None,
        )

    n_flows = as_path(0.0).n_flows
    senders = [make_sender(sender) for _ in range(n_flows)]
    probe = CurveEngine([as_path(0.0)], model=model, senders=senders, steps_per_rtt=K, beliefs=SHORT_WINDOWS)
    ring_steps = probe._H
    silent_steps = round(rings * ring_steps)
    adversary = random_adversary(rng, n_flows)
    run = {
        "model": model, "senders": senders, "adversary": adversary, "loss_detection": str(rng.choice(["acks", "acks", "oracle"])),
        "beliefs": SHORT_WINDOWS,
    }  # fmt: skip
    return as_path(silent_steps * dt_s), run, silent_steps + 2 * PLAYED_RTTS * K, ring_steps
