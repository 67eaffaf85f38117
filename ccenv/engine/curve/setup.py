"""What a batch of the curve engine starts from: lengths of rings, records of fresh environments, checks of arguments, errors."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from ccenv.agents.sender import Sender, bare
from ccenv.base.errors import EngineError, InputError, did_you_mean, shown
from ccenv.engine.compiled.beliefs import RECIPROCALS, BeliefSettings, require_segment_per_rtt
from ccenv.engine.compiled.calls import raise_failure
from ccenv.engine.compiled.holds import Holds
from ccenv.engine.curve.layout import CHOOSER_CODES, ENV_DTYPE, FLOW_DTYPE, SENDER_KINDS, ring_length
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.engine.curve.players import AdversaryTable, SenderTable
from ccenv.engine.curve.transport import ERROR_ADVERSARY, ERROR_SENDER
from ccenv.network.adversary import Adversary
from ccenv.network.path import Model, Path

DEEP_BUFFER_RTTS = 24  # queue that an infinite buffer can show: the receive window keeps it within the rings
_ENV_FROM_PATH = (
    *("dt_s", "buffer_bytes", "mss_bytes", "link_rate_Bps", "link_rate_min_Bps", "link_rate_max_Bps", "n_rate_changes"),
    *("red_min_bytes", "red_max_bytes", "red_max_probability", "red_weight", "has_red"),
)
_FLOW_FROM_PATH = ("jitter_steps", "start_step", "stop_step", "loss_budget", "workload", "workload_a", "workload_b")


def reset_envs(env: np.ndarray, which: np.ndarray, p: PathArrays, players: AdversaryTable, seed: int, keys: np.ndarray) -> None:
    """Write the records, (B,) ENV_DTYPE, of the environments ``which``; ``keys`` are what their random numbers depend on."""
    env[which] = np.zeros(1, ENV_DTYPE)
    for name in _ENV_FROM_PATH:
        env[name][which] = getattr(p, name)[which]
    env["jitter_steps"][which] = p.jitter_steps[which, 0]
    env["link_rate_now_Bps"][which] = p.link_rate_Bps[which]
    env["adversary_kind"][which] = players.kind[which]
    env["adversary_index"][which] = players.index[which]
    env["seed"][which] = seed
    env["env_key"][which] = keys


def reset_flows(
    flow: np.ndarray, which: np.ndarray, p: PathArrays, senders: SenderTable, seed_C_L_Bps: np.ndarray, ring_length: int
) -> np.ndarray:
    """Write the records, (B * N,) FLOW_DTYPE, of all flows of the environments ``which``; return their rows.

    ``seed_C_L_Bps`` is (B, N). The receive window keeps what is in flight within the rings.
    """
    N = p.rtt_steps.shape[1]
    rows: np.ndarray = (which[:, None] * N + np.arange(N)).ravel()
    flow[rows] = np.zeros(1, FLOW_DTYPE)
    for name in _FLOW_FROM_PATH:
        flow[name][rows] = getattr(p, name)[which].ravel()
    dt_s = np.repeat(p.dt_s[which], N)
    holds = Holds.of(p.rtt_steps[which], p.dt_s[which], senders.hold_s[which], senders.hold_window_s[which])
    for name in ("rtt_steps", "lag_steps", "hold_steps"):
        flow[name][rows] = getattr(holds, name).ravel()
    for name in ("target_steps", "window_steps"):
        flow[f"hold_{name}"][rows] = getattr(holds, name).ravel()
    flow["hold_until_step"][rows] = flow["start_step"][rows] + flow["hold_window_steps"][rows]
    flow["hold_rtt_min_steps"][rows] = np.inf
    flow["rtt_s"][rows] = flow["rtt_steps"][rows] * dt_s
    flow["jitter_s"][rows] = flow["jitter_steps"][rows] * dt_s
    span = ring_length - holds.lag_steps.max(axis=1) * 2 - p.jitter_steps[which].max(axis=1) - 3
    window = p.slowest_rate_Bps()[which] * p.dt_s[which] * span / N
    flow["receive_window_bytes"][rows] = np.repeat(window, N)
    flow["sender_kind"][rows] = senders.kind[which].ravel()
    flow["sender_index"][rows] = senders.index[which].ravel()
    for name in ("chooser", "chooser_index", "position"):
        flow[name][rows] = getattr(senders, name)[which].ravel()
    flow["cwnd_bytes"][rows] = np.inf
    flow["recovery_step"][rows] = -1
    flow["unfound_loss_step"][rows] = -1
    flow["rtt_min_steps"][rows] = np.inf
    flow["rtt_now_steps"][rows] = flow["rtt_steps"][rows]
    flow["probe_window_steps"][rows] = senders.probe_rtts[which].ravel() * flow["rtt_steps"][rows]
    flow["initial_C_L_Bps"][rows] = seed_C_L_Bps[which].ravel()
    # The same as the kernel's reset_beliefs, so that a freshly reset environment can be observed.
    floor = np.repeat(p.mss_bytes[which], N) / flow["rtt_s"][rows]
    seeded = np.maximum(flow["initial_C_L_Bps"][rows], floor)
    for name in ("C_L_Bps", "period_C_L_Bps", "C_L_lambda_Bps", "rate_Bps"):
        flow[name][rows] = seeded
    for name in ("C_U_Bps", "period_C_U_Bps"):
        flow[name][rows] = np.inf
    return rows


def reset_views(views: np.ndarray, which: np.ndarray, p: PathArrays, seed: int, keys: np.ndarray) -> None:
    """Write what does not change of what scripted adversaries see in the environments ``which``, (B,) VIEW."""
    views["dt_s"][which] = p.dt_s[which]
    views["steps_per_rtt"] = p.steps_per_rtt
    views["n_flows"] = p.rtt_steps.shape[1]
    views["buffer_bytes"][which] = p.buffer_bytes[which]
    views["mss_bytes"][which] = p.mss_bytes[which]
    views["seed"] = seed
    views["env"][which] = keys


def needed_ring(p: PathArrays, senders: SenderTable, window_rtts: int, history_rtts: float | None) -> int:
    """Return the length of the rings, a power of two, at least of ``history_rtts`` longest Rm, or what buffers need.

    Raises InputError if they were too long for the tables of the beliefs.
    """
    length = _ring_for(p, senders, window_rtts, history_rtts)
    if 4 * length > RECIPROCALS:
        raise InputError(
            f"paths need rings of {length} steps; at most {RECIPROCALS // 4}: use fewer steps_per_rtt or shorter delays"
        )
    return length


def _ring_for(p: PathArrays, senders: SenderTable, window_rtts: int, history_rtts: float | None) -> int:
    """Return how many steps the rings should hold, as a power of two; arguments as of ``needed_ring``."""
    rtt = _longest_lag_steps(p, senders)
    need = max(window_rtts * rtt + rtt, _reach_steps(p, senders))
    if history_rtts is not None:
        return ring_length(max(need, math.ceil(history_rtts * rtt)))
    slowest = p.slowest_rate_Bps()
    queue_s = np.minimum(p.buffer_bytes, DEEP_BUFFER_RTTS * p.link_rate_Bps * p.dt_s * rtt) / slowest
    queue_steps = math.ceil(float((queue_s / p.dt_s).max()))
    return ring_length(max(need, min(queue_steps, 4 * DEEP_BUFFER_RTTS * rtt) + 4 * rtt + 2 * int(p.jitter_steps.max()) + 3))


def least_ring(p: PathArrays, senders: SenderTable) -> int:
    """Return the length below which the rings of a built engine cannot hold other paths."""
    return max(2 * (2 * _longest_lag_steps(p, senders) + int(p.jitter_steps.max()) + 2), _reach_steps(p, senders))


def _reach_steps(p: PathArrays, senders: SenderTable) -> int:
    """Return how many steps back a step on some paths reads, queues and belief windows aside: those fit the rings."""
    probe = int(senders.probe_rtts.max()) * _longest_lag_steps(p, senders)
    return 2 * _longest_lag_steps(p, senders) + int(p.jitter_steps.max()) + probe + 2


def _longest_lag_steps(p: PathArrays, senders: SenderTable) -> int:
    """Return the longest time from delivery to feedback that the senders can have on some paths."""
    return int((p.rtt_steps.max(axis=1) + np.ceil(senders.hold_s.max() / p.dt_s)).max())


_LIST = (list, tuple)
TIMINGS = ("engine", "smt")
LOSS_DETECTIONS = ("acks", "oracle")


def require_players(paths: Any, senders: Any, adversary: Any, threads: Any) -> None:
    """Raise InputError for paths, senders and adversaries that are none, with what to write instead, and for threads below 1."""
    require_count("threads", threads, 1)
    if isinstance(paths, Path):
        raise InputError("paths is one path; give a list, one path per environment: CurveEngine([path], senders=[...])")
    if not isinstance(paths, PathArrays):
        _require_list("paths", paths, "[make_path(link_rate_mbps=10, rtt_ms=40)]")
        for place, path in enumerate(paths):
            if not isinstance(path, Path):
                raise InputError(f"paths[{place}] is {shown(path)}, no path: build it with make_path(...)")
    if senders is None:
        raise InputError("senders is missing; give one per flow: senders=[make_sender('reno')]")
    _require_list("senders", senders, "[make_sender('reno')]")
    if not senders:
        raise InputError("senders is empty; give one per flow: senders=[make_sender('reno')]")
    for row in senders if isinstance(senders[0], _LIST) else [senders]:
        for place, sender in enumerate(row if isinstance(row, _LIST) else [row]):
            _require_player(f"senders[{place}]", sender, get_args(Sender), "make_sender")
    if adversary is not None:
        for one in adversary if isinstance(adversary, _LIST) else [adversary]:
            _require_player("adversary", one, get_args(Adversary), "make_adversary")


def require_modes(timing: str, loss_detection: str, steps_per_rtt: int, seed: int) -> None:
    """Raise InputError for modes and seeds that there are not."""
    require_choice("timing", timing, TIMINGS)
    require_choice("loss_detection", loss_detection, LOSS_DETECTIONS)
    if timing == "smt" and steps_per_rtt != 1:
        raise InputError(f"timing 'smt' needs steps_per_rtt 1, not {steps_per_rtt}")
    require_seed(seed)


def require_count(what: str, value: Any, low: int) -> None:
    """Raise InputError unless a value is a whole number of at least low."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        raise InputError(f"{what} is {shown(value)}; it must be a whole number of at least {low}")


def require_place(what: str, value: int, count: int) -> None:
    """Raise InputError unless a number is a place in a list of so many."""
    if not 0 <= value < count:
        raise InputError(f"{what} is {value}; it must be 0 to {count - 1}")


def _require_player(what: str, value: Any, kinds: tuple[type, ...], build: str) -> None:
    if isinstance(value, kinds):
        return
    if isinstance(value, str):
        raise InputError(f"{what} is {shown(value)}, a name: build it with ccenv.{build}({value[:40]!r})")
    if inspect.isclass(value):
        raise InputError(f"{what} is the class {value.__name__}: give it to ccenv.compare, or name its file with ccenv.{build}")
    raise InputError(f"{what} is {shown(value)}; build it with ccenv.{build}(...)")


def _require_list(what: str, value: Any, example: str) -> None:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InputError(f"{what} is {shown(value)}; a list is needed: {what}={example}")


def one_density(steps_per_rtt: int | Sequence[int]) -> int:
    """Return K, one for the whole batch. Raises InputError for a batch that mixes step sizes."""
    if isinstance(steps_per_rtt, str):
        raise InputError(f"steps_per_rtt is {steps_per_rtt[:40]!r}; it must be a whole number of at least 1")
    values = {int(steps_per_rtt)} if isinstance(steps_per_rtt, (int, np.integer)) else {int(k) for k in steps_per_rtt}
    if len(values) != 1:
        raise InputError(f"a batch cannot mix step sizes: steps_per_rtt {sorted(values)}")
    density = values.pop()
    if density < 1:
        raise InputError(f"steps_per_rtt is {density}; it must be at least 1")
    return density


def require_choice(what: str, value: str, valid: Sequence[str]) -> None:
    """Raise InputError with suggestions unless a value is one of those allowed."""
    if value not in valid:
        raise InputError(f"unknown {what} {value!r}.{did_you_mean(value, valid)}")


def require_seed(seed: int) -> None:
    """Raise InputError unless a seed can key the random numbers."""
    if isinstance(seed, str) or not 0 <= seed < 2**53:
        raise InputError(f"seed {seed} is not in [0, 2**53)")


def flow_matrix(values: float | np.ndarray, n_envs: int) -> np.ndarray:
    """Return seeds of C_L in a shape that broadcasts to (B, N). Raises InputError unless finite and not negative."""
    array = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise InputError("initial_C_L_Bps must be finite and not negative")
    return array.reshape(n_envs, 1) if array.ndim == 1 else array


def require_believable(paths: PathArrays, model: Model, beliefs: BeliefSettings | None) -> None:
    """Refuse paths on which no belief bound is claimed to hold; where C may vary none is claimed at all."""
    if beliefs is not None and not model.varies_rate:
        rtt_s = paths.rtt_steps * paths.dt_s[:, None]
        require_segment_per_rtt(paths.slowest_rate_Bps(), rtt_s, paths.mss_bytes, "compute no beliefs (beliefs=None)")


def take_actions(flow: np.ndarray, actions: np.ndarray, shape: tuple[int, int]) -> None:
    """Write the actions of a call, (B, N), into the flows' records (``CurveEngine.advance``).

    Raises InputError for another shape, or a rate that is not positive.
    """
    if actions.shape != shape:
        raise InputError(f"actions of shape {actions.shape}; {shape} is needed")
    values, sender_kinds = actions.ravel(), flow["sender_kind"]
    driven = (sender_kinds == SENDER_KINDS["external"]) & ~np.isnan(values)
    if not (values[driven] > 0).all():
        raise InputError("an action (sending rate in bytes/s) is not positive")
    flow["rate_Bps"][driven] = values[driven]
    inside = (sender_kinds == SENDER_KINDS["shield"]) & (flow["chooser"] == CHOOSER_CODES["external"])
    flow["position"][inside] = values[inside]


def engine_error(env: np.ndarray, senders: Sequence[Sequence[Sender]], adversaries: Sequence[Adversary], H: int) -> EngineError:
    """Return the error of the first environment that has one; ``H`` is the length of the rings in steps."""
    b = int(np.flatnonzero(env["error"])[0])
    ev = env[b]
    flow, time_s = int(ev["error_flow"]), float(ev["error_step"] * ev["dt_s"])
    if ev["error"] == ERROR_SENDER:
        raise_failure(bare(senders[b][flow]), flow, time_s)
        what = f"sender {senders[b][flow].name!r} set a window or rate that is not a positive number"
    elif ev["error"] == ERROR_ADVERSARY:
        what = f"adversary {adversaries[b].name!r} made a move that is not a number >= 0"
    else:
        what = f"bytes were in flight for longer than the rings' {H} steps reach; a larger history_rtts is needed"
    which = "" if flow < 0 else f"flow {flow}, "
    return EngineError(f"{what} (environment {b}, {which}at {time_s:.6g} s)")
