"""Kernels are compiled once: whatever a batch holds, its arrays have the same types."""

from __future__ import annotations

import numpy as np
import pytest
from numba import typeof

from ccenv.agents import make_sender
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import Adversary, RecordedAdversary
from ccenv.network.path import make_path

PATH = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=2)


def recorded(order: str, writable: bool) -> RecordedAdversary:
    moves = np.full((20, 4), 0.5, order=order)  # type: ignore[call-overload]
    moves.flags.writeable = writable
    return RecordedAdversary("recorded", moves)


@pytest.mark.parametrize("player", [recorded("C", True), recorded("C", False), recorded("F", False)])
def test_recorded_moves_of_any_kind_have_the_types_of_none(player: Adversary) -> None:
    def types(adversary: Adversary | None) -> object:
        engine = CurveEngine([PATH], model="ccac", senders=[make_sender("reno")], adversary=adversary, steps_per_rtt=4)
        return typeof(engine.kernel_arrays)

    assert types(player) == types(None)
