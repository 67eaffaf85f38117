"""Plain Python behind an address: what ``calls`` does for functions that are compiled, for methods of a Bridge."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ccenv.agents.callbacks import STATE_HEADER
from ccenv.base.errors import EngineError
from ccenv.agents.interface.user import ExtraSignals
from ccenv.agents.python_sender import Bridge, bridge_of
from ccenv.agents.sender import PolicySender

_INSTANCE = len(STATE_HEADER)  # place of STATE_FIELD in a state, also in one with other names


def callback_address(function: Callable[..., None], *records: np.dtype) -> int:
    """Return an address that calls a method of a Bridge, with numba's own calling convention (``calls.address_of``).

    The bridge keeps the callback, so the address is valid as long as the sender is.
    """
    bridge: Bridge = function.__self__  # type: ignore[attr-defined]
    kept: dict[str, Any] = bridge.__dict__.setdefault("_callbacks", {})
    if function.__name__ not in kept:

        def views_of(record: np.dtype) -> Callable[[int], Any]:
            @cache
            def view(address: int) -> Any:
                buffer = memoryview((ctypes.c_char * record.itemsize).from_address(address))
                return np.frombuffer(buffer, record).view(np.recarray)[0]

            return view

        views = [views_of(record) for record in records]

        def call(_value: int, _error: int, *addresses: int) -> int:
            function(*[view(address) for view, address in zip(views, addresses, strict=True)])
            return 0

        kept[function.__name__] = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * (2 + len(records)))(call)
    address = ctypes.cast(kept[function.__name__], ctypes.c_void_p).value
    return int(address or 0)


def extra_address(extra: ExtraSignals) -> int:
    """Return an address that computes what functions of a user add to an observation, with numba's own calling convention.

    Called with the addresses of history * signals and of the n elements, float64 both. What fails is kept for
    ``extra.raise_failure``; until then the elements are 0 and nothing is called any more. ``extra`` keeps the callback.
    """
    kept: dict[str, Any] = extra.__dict__.setdefault("_callbacks", {})
    if "call" not in kept:
        n_in, n_out = extra.n_seen, len(extra.elements)

        def call(_value: int, _error: int, seen_at: int, out_at: int) -> int:
            out = np.ctypeslib.as_array((ctypes.c_double * n_out).from_address(out_at))
            out[:] = 0.0
            if extra.failure is None:
                try:
                    out[:] = extra.values(np.ctypeslib.as_array((ctypes.c_double * n_in).from_address(seen_at)))
                except BaseException as failure:  # an exception cannot pass through compiled code; the engine raises it again
                    extra.failure = failure
            return 0

        kept["call"] = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)(call)
    return int(ctypes.cast(kept["call"], ctypes.c_void_p).value or 0)


def extras_of(senders: Iterable[object]) -> tuple[ExtraSignals, ...]:
    """Return what functions of users add to the observations of senders, one entry for each policy with some."""
    policies = [getattr(sender, "policy", None) or sender for sender in senders]
    found = [policy.interface.extra for policy in policies if isinstance(policy, PolicySender)]
    return tuple({id(extra): extra for extra in found if extra is not None}.values())


def copy_python_flows(states: np.ndarray, bridges: Sequence[Bridge | None], rows: Iterable[int]) -> None:
    """Give flows in plain Python objects of their own: copies of those that their states name.

    Args:
        states: (n,) states of CCAs.
        bridges: of each state; empty where no sender is plain Python.
        rows: which states.
    """
    for row in rows if bridges else ():
        bridge = bridges[row]
        if bridge is not None:
            states[row][_INSTANCE] = bridge.copy(int(states[row][_INSTANCE]))


def raise_failure(sender: object, flow: int, time_s: float) -> None:
    """Raise what a sender in plain Python raised, if it did; Ctrl-C as itself.

    Raises:
        EngineError: naming the file and the line.
    """
    bridge = bridge_of(sender)
    if bridge is None or bridge.failure is None:
        return
    failure, said = bridge.failure, bridge.what_failed()
    bridge.failure = None
    if not isinstance(failure, Exception):
        raise failure
    raise EngineError(f"flow {flow}: {said} (at {time_s:.6g} s)") from failure
