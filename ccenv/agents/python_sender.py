"""CCAs in plain Python: one object per flow; slow, but with all of Python."""

from __future__ import annotations

import copy
import math
import traceback
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import numpy as np

from ccenv.agents.sender import ClassicSender
from ccenv.base.errors import did_you_mean
from ccenv.base.user import limits

STATE_FIELD = "instance"
_ENGINE_NAMES = ("cwnd_bytes", "pacing_rate_Bps", "mss_bytes")
_NEAR = 0.8  # similarity from which a name counts as a typo


class Ack(NamedTuple):
    """Argument of ``on_ack``: ``ccenv.agents.callbacks.ACK`` as plain numbers, explained by ``ccenv list signals``."""

    now_s: float
    acked_bytes: float
    delivered_bytes: float
    rtt_s: float
    min_rtt_s: float
    delivery_rate_Bps: float
    inflight_bytes: float
    round_start: float
    app_limited: float
    ecn_fraction: float
    mss_bytes: float
    prior_delivered_bytes: float
    tx_inflight_bytes: float
    lost_since_bytes: float
    recovering: float
    handshake_s: float
    held_s: float


class Loss(NamedTuple):
    """Argument of ``on_loss``: ``ccenv.agents.callbacks.LOSS`` as plain numbers."""

    now_s: float
    lost_bytes: float
    inflight_bytes: float
    delivered_bytes: float
    timeout: float
    new_episode: float
    mss_bytes: float
    tx_inflight_bytes: float
    lost_since_bytes: float
    app_limited: float
    contiguous: float


class Tick(NamedTuple):
    """Argument of ``on_tick``: ``ccenv.agents.callbacks.TICK`` as plain numbers."""

    now_s: float
    dt_s: float
    inflight_bytes: float
    delivered_bytes: float
    min_rtt_s: float
    mss_bytes: float


_SIGNALS: dict[str, Any] = {"on_ack": Ack, "on_loss": Loss, "on_tick": Tick}


class _Refused(Exception):
    """A method left a window or rate that is not above 0, or an attribute that nothing reads; ``where``: its file and line."""

    def __init__(self, flow: PythonSender, method: str, message: str) -> None:
        super().__init__(f"{method} {message}")
        code = getattr(getattr(type(flow), method), "__code__", None)
        self.where = None if code is None else (code.co_filename, code.co_firstlineno)


class PythonSender:
    """Base class of a CCA in plain Python. Override the callbacks that it needs.

    Both engines make one object per flow and call its methods. The engine reads ``cwnd_bytes`` and ``pacing_rate_Bps`` after
    every call. Keyword parameters of ``__init__`` are the parameters of the sender.

    Attributes:
        cwnd_bytes: congestion window in bytes, > 0; ten segments at the start (RFC 6928 s.2).
        pacing_rate_Bps: pacing rate in bytes/s, > 0; infinite: not paced.
        mss_bytes: segment size in bytes, set before ``on_start``.
        random: generator of this flow, seeded by the run, set before ``on_start``.
        per_packet: on_loss is called for each lost packet in turn, not once for all that an ACK or the RTO shows.

    State is set in the class, in ``__init__`` or in ``on_start``; attributes that first appear later are refused, and so are
    those that resemble one that the engine reads, such as ``cwnd``.
    """

    cwnd_bytes: float
    pacing_rate_Bps: float = math.inf
    mss_bytes: float
    random: np.random.Generator
    per_packet: bool = False

    def __repr__(self) -> str:
        cwnd_bytes = getattr(self, "cwnd_bytes", None)
        window = "not started" if cwnd_bytes is None else f"cwnd_bytes {cwnd_bytes:g}"
        return f"{type(self).__name__}({window}, pacing_rate_Bps {self.pacing_rate_Bps:g})"

    def on_start(self) -> None:
        """Set the state at the start of the flow."""

    def on_ack(self, ack: Ack) -> None:
        """React to newly acknowledged bytes (now_s, acked_bytes, rtt_s, min_rtt_s, delivery_rate_Bps, ...)."""

    def on_loss(self, loss: Loss) -> None:
        """React to newly found losses (now_s, lost_bytes, timeout, new_episode, ...)."""

    def on_tick(self, tick: Tick) -> None:
        """React to the passing of time (now_s, dt_s, inflight_bytes, ...)."""


class Bridge:
    """Passes an engine's calls, whose arguments are structs, to one PythonSender object per flow; ``build`` makes it."""

    def __init__(self, build: Callable[[], PythonSender], source: str) -> None:
        self._build = build
        self._source = source
        self._flows: list[PythonSender] = []
        self._names: list[frozenset[str]] = []  # attributes of each flow when it has begun
        self.failure: BaseException | None = None

    def init(self, state: Any) -> None:
        def start() -> PythonSender:
            with limits.limited("on_start", limits.CALL_LIMIT_S):
                flow = self._build()
                flow.mss_bytes = float(state.mss_bytes)
                flow.cwnd_bytes = 10.0 * flow.mss_bytes
                flow.random = np.random.default_rng([int(state.seed), int(state.env), int(state.flow)])
                flow.on_start()
            _require_positive(flow, "on_start")
            _require_known_names(flow, "on_start", sorted(vars(flow)))
            self._flows.append(flow)
            self._names.append(frozenset(vars(flow)))
            return flow

        state[STATE_FIELD] = len(self._flows)
        self._call(state, start)

    def on_ack(self, state: Any, ack: Any) -> None:
        self._pass(state, "on_ack", ack)

    def on_loss(self, state: Any, loss: Any) -> None:
        self._pass(state, "on_loss", loss)

    def on_tick(self, state: Any, tick: Any) -> None:
        self._pass(state, "on_tick", tick)

    def copy(self, instance: int) -> int:
        """Copy an object and return the number of the copy. A flow that has not started has none yet."""
        if instance >= len(self._flows):
            return instance
        self._flows.append(copy.deepcopy(self._flows[instance]))
        self._names.append(self._names[instance])
        return len(self._flows) - 1

    def what_failed(self) -> str:
        """Return file, line and message of the exception that a method raised; empty: none did."""
        if self.failure is None:
            return ""
        if isinstance(self.failure, _Refused):
            file, number = self.failure.where or ("", 0)
            return f"{FilePath(self._source).name}{f':{number}' if file == self._source else ''}: {self.failure}"
        frames = [frame for frame in traceback.extract_tb(self.failure.__traceback__) if frame.filename == self._source]
        line = f":{frames[-1].lineno}" if frames else ""
        return f"{FilePath(self._source).name}{line}: {type(self.failure).__name__}: {self.failure}"

    def _pass(self, state: Any, method: str, signal: Any) -> None:
        def react() -> PythonSender:
            number = int(state[STATE_FIELD])
            flow = self._flows[number]
            if getattr(type(flow), method) is not getattr(PythonSender, method):
                values = _SIGNALS[method]._make(signal.item())
                with limits.limited(method, limits.CALL_LIMIT_S):
                    getattr(flow, method)(values)
                _require_positive(flow, method)
                if len(vars(flow)) > len(self._names[number]):
                    _require_known_names(flow, method, sorted(vars(flow).keys() - self._names[number]), later=True)
                    self._names[number] = frozenset(vars(flow))
            return flow

        self._call(state, react)

    def _call(self, state: Any, act: Callable[[], PythonSender]) -> None:
        """Act for a flow and copy its window and rate; an exception stops the engine through a NaN window."""
        if self.failure is not None:
            state["cwnd_bytes"] = math.nan
            return
        try:
            flow = act()
            state["cwnd_bytes"], state["pacing_rate_Bps"] = float(flow.cwnd_bytes), float(flow.pacing_rate_Bps)
        except BaseException as failure:  # an exception cannot pass through compiled code; the engine raises it again
            self.failure = failure
            state["cwnd_bytes"] = math.nan


def _require_positive(flow: PythonSender, method: str) -> None:
    if not (float(flow.cwnd_bytes) > 0 and float(flow.pacing_rate_Bps) > 0):
        wrong = "pacing_rate_Bps" if float(flow.cwnd_bytes) > 0 else "cwnd_bytes"
        raise _Refused(flow, method, f"left {wrong} at {getattr(flow, wrong)!r}; it must be above 0")


def _require_known_names(flow: PythonSender, method: str, names: Sequence[str], later: bool = False) -> None:
    """Refuse attributes that resemble those that the engine reads, and with ``later`` all that were not set at the start."""
    for name in (name for name in names if name not in _ENGINE_NAMES):
        for meant in _ENGINE_NAMES:
            if meant.startswith(f"{name}_") or SequenceMatcher(None, name.lower(), meant.lower()).ratio() >= _NEAR:
                raise _Refused(flow, method, f"set {name!r}, which no engine reads. Did you mean {meant!r}?")
        if later and not hasattr(type(flow), name) and name not in type(flow).__annotations__:
            nearest = did_you_mean(name, vars(flow).keys() - {name})
            raise _Refused(flow, method, f"set {name!r}, which the class, __init__ and on_start do not set.{nearest}")


def find_bridge(sender: object) -> Bridge | None:
    """Return the bridge of a plain Python sender; None for all others."""
    owner = getattr(sender.init, "__self__", None) if isinstance(sender, ClassicSender) else None
    return owner if isinstance(owner, Bridge) else None
