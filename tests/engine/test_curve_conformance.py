"""Every sender of the registry against every scripted adversary: finite state, legal trace (per packet: tests/packet).

Learned adversaries see one number of flows only; tests/adversaries plays them.
"""

from __future__ import annotations

import numpy as np
import pytest

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.laws import check_trace
from ccenv.network.path import make_path

PLAYERS = sorted(ADVERSARIES.names("scripted"))


@pytest.mark.parametrize("name", sorted(AGENTS.names()))
def test_every_sender_is_finite_and_its_network_legal(name: str) -> None:
    path = make_path(link_rate_mbps=12, rtt_ms=40.0, jitter_ms=40.0, buffer_bdp=1, n_flows=2)
    for model in ("cbr_delay", "ccac"):
        engine = CurveEngine(
            [path] * len(PLAYERS),
            model=model,
            senders=[make_sender(name)] * 2,
            adversary=[make_adversary(player) for player in PLAYERS],
            steps_per_rtt=4,
            record=True,
        )
        engine.advance(240)
        for field in ("A", "L", "S", "C_L_Bps", "q_U_bytes", "acked_bytes"):
            assert np.isfinite(engine.flow(field)).all(), (model, field)
        assert (engine.flow("S") > 0).any(), model
        for env, player in enumerate(PLAYERS):
            assert check_trace(engine.trace(env)) == [], (model, player)
