"""Checks of the curve engine's arguments before a kernel runs, and the error of one that stopped."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from ccenv.engine.compiled.beliefs import BeliefSettings, require_segment_per_rtt
from ccenv.engine.compiled.python_calls import raise_failure
from ccenv.engine.curve.layout import CHOOSER_CODES, SENDER_KINDS
from ccenv.engine.curve.network import ERROR_ADVERSARY, ERROR_SENDER
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.base.errors import EngineError, InputError, did_you_mean, shown
from ccenv.network.adversary import Adversary
from ccenv.network.model import Model
from ccenv.network.path import Path
from ccenv.agents.sender import Sender, bare

_LIST = (list, tuple)
TIMINGS = ("engine", "smt")
LOSS_DETECTIONS = ("acks", "oracle")


def require_players(paths: Any, senders: Any, adversary: Any, threads: Any) -> None:
    """Refuse paths, senders and adversaries that are none, with what to write instead, and a number of threads below 1.

    Raises:
        InputError: one line.
    """
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
    """Refuse modes and seeds that there are not.

    Raises:
        InputError: one line, with suggestions.
    """
    require_choice("timing", timing, TIMINGS)
    require_choice("loss_detection", loss_detection, LOSS_DETECTIONS)
    if timing == "smt" and steps_per_rtt != 1:
        raise InputError(f"timing 'smt' needs steps_per_rtt 1, not {steps_per_rtt}")
    require_seed(seed)


def require_count(what: str, given: Any, low: int) -> None:
    """Raise InputError unless a value is a whole number of at least low."""
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < low:
        raise InputError(f"{what} is {shown(given)}; it must be a whole number of at least {low}")


def require_place(what: str, given: int, count: int) -> None:
    """Raise InputError unless a number is a place in a list of so many."""
    if not 0 <= given < count:
        raise InputError(f"{what} is {given}; it must be 0 to {count - 1}")


def _require_player(what: str, given: Any, kinds: tuple[type, ...], build: str) -> None:
    if isinstance(given, kinds):
        return
    if isinstance(given, str):
        raise InputError(f"{what} is {shown(given)}, a name: build it with ccenv.{build}({given[:40]!r})")
    if inspect.isclass(given):
        raise InputError(f"{what} is the class {given.__name__}: give it to ccenv.compare, or name its file with ccenv.{build}")
    raise InputError(f"{what} is {shown(given)}; build it with ccenv.{build}(...)")


def _require_list(what: str, given: Any, example: str) -> None:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise InputError(f"{what} is {shown(given)}; a list is needed: {what}={example}")


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
    """Write the actions of a call into the flows' records.

    Args:
        flow: (B * N,) FLOW_DTYPE.
        actions: (B, N) rates in bytes/s of external senders (NaN: leave as is), positions of contracts with an external chooser.
        shape: (B, N).

    Raises:
        InputError: for another shape, or a rate that is not positive.
    """
    if actions.shape != shape:
        raise InputError(f"actions of shape {actions.shape}; {shape} is needed")
    given, kind = actions.ravel(), flow["sender_kind"]
    driven = (kind == SENDER_KINDS["external"]) & ~np.isnan(given)
    if not (given[driven] > 0).all():
        raise InputError("an action (sending rate in bytes/s) is not positive")
    flow["rate_Bps"][driven] = given[driven]
    inside = (kind == SENDER_KINDS["contract"]) & (flow["chooser"] == CHOOSER_CODES["external"])
    flow["position"][inside] = given[inside]


def engine_error(env: np.ndarray, senders: Sequence[Sequence[Sender]], adversaries: Sequence[Adversary], H: int) -> EngineError:
    """Return the error of the first environment that has one.

    Args:
        env: (B,) ENV_DTYPE.
        senders: one row of N per environment.
        adversaries: one per environment.
        H: length of the rings in steps.
    """
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
