"""A rehearsal of a user's compiled sender in plain Python: compiled code cannot say in which line it failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.callbacks import ACK, LOSS, STATE_HEADER, STATE_SLOTS, TICK
from ccenv.base.errors import InputError, shown
from ccenv.agents.sender import ClassicSender
from ccenv.base.user import limits
from ccenv.base.user.python_file import line_of, place, require_arguments, said

MSS_BYTES = 1500.0
RTT_S = 0.04
ROUNDS = 40
LOSS_EVERY = 8  # rounds
TIMEOUT_AT = 25  # round
SILENCE_AT = 30  # round, of one second


def rehearse_sender(sender: ClassicSender, path: FilePath) -> None:
    """Play some round trips with ACKs, losses, a time-out and a silence to functions over records.

    Args:
        sender: whose functions are Python functions, not compiled yet.
        path: their file, for messages.

    Raises:
        InputError: with file and line, if a function has the wrong arguments, raises, does not come back, or sets a window or
            rate that is not above 0.
    """
    names = sender.state.names if isinstance(sender.state, np.dtype) else None
    if names is None or names[: len(STATE_HEADER)] != STATE_HEADER or len(names) > STATE_SLOTS:
        raise InputError(f"{path.name}: STATE is {shown(sender.state)}; make it with state_record(...) of ccenv")
    functions = {
        "init": (sender.init, 1),
        "on_ack": (sender.on_ack, 2),
        "on_loss": (sender.on_loss, 2),
        "on_tick": (sender.on_tick, 2),
    }
    for name, (function, count) in functions.items():
        require_arguments(function, ("state", name.removeprefix("on_"))[:count], str(path), name)
    with np.errstate(all="ignore"):
        _play(sender, path)


def _play(sender: ClassicSender, path: FilePath) -> None:
    state = _record(sender.state)
    for name, value in sender.parameters.items():
        state[name] = value
    state.mss_bytes, state.seed = MSS_BYTES, 1.0

    def turn(name: str, function: Callable[..., None], *signal: Any) -> None:
        try:
            with limits.limited(name, limits.CALL_LIMIT_S):
                function(state, *signal)
        except Exception as error:
            raise InputError(f"{place(path, error)}: {said(error)}") from error
        for field in ("cwnd_bytes", "pacing_rate_Bps"):
            if not state[field] > 0:
                after = f"after {name}, {field} is {state[field]:g}; it must be above 0"
                raise InputError(f"{line_of(function, str(path))}: {after}")

    turn("init", sender.init)
    now_s, delivered = 0.0, 0.0
    for k in range(ROUNDS):
        now_s += RTT_S if k != SILENCE_AT else 1.0
        window = float(min(max(state.cwnd_bytes, MSS_BYTES), 100 * MSS_BYTES))
        parts = min(4, int(window // MSS_BYTES))
        for part in range(parts):
            acked = window / parts
            delivered += acked
            rtt_s = RTT_S * (1.0 + 0.1 * (k % 5))
            values = (
                now_s,
                acked,
                delivered,
                rtt_s,
                RTT_S,
                window / rtt_s,
                window - acked,
                float(part == 0),
                0.0,
                0.0,
                MSS_BYTES,
            )
            turn("on_ack", sender.on_ack, _record(ACK, *values))
        if k % LOSS_EVERY == LOSS_EVERY - 1 or k == TIMEOUT_AT:
            lost = (now_s, MSS_BYTES, window / 2, delivered, float(k == TIMEOUT_AT), 1.0, MSS_BYTES)
            turn("on_loss", sender.on_loss, _record(LOSS, *lost))
        turn("on_tick", sender.on_tick, _record(TICK, now_s, 0.01, window / 2, delivered, RTT_S, MSS_BYTES))


def _record(dtype: np.dtype, *values: float) -> Any:
    made = np.zeros(1, dtype).view(np.recarray)[0]
    for name, value in zip(dtype.names or (), values, strict=False):
        made[name] = value
    return made
