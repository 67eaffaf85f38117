"""The tighter belief rules: sound on random legal networks, near to what no rule can beat, refused where they do not apply."""

from __future__ import annotations

import numpy as np
import pytest
import tighter_page

from ccenv.agents import make_sender
from ccenv.agents.sender import ExternalSender
from ccenv.engine.compiled.beliefs import belief_settings
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.path import make_path

ROUND_OFF = 1e-7
RTT_S = 0.04


@pytest.mark.parametrize("model", ["ideal", "cbr_delay", "ccac"])
@pytest.mark.parametrize("K", [1, 4])
def test_the_true_rate_lies_between_the_bounds(model, K):
    """On random legal networks with buffers of 0.1 to 10 BDP and any jitter, whatever is sent."""
    rng = np.random.default_rng(10 * K + len(model))
    n, steps = 48, 40 * K
    C = 6e6 * 10 ** rng.uniform(-1.5, 1.0, n)
    pinned = 0
    for name in ("external", "learned_nominal_u78"):
        paths = PathArrays.simple(
            steps_per_rtt=K, link_rate_Bps=C, rtt_s=np.full(n, RTT_S), mss_bytes=np.full(n, 1500.0),
            jitter_steps=np.zeros(n, int) if model == "ideal" else rng.integers(0, K + 1, n),
            buffer_bytes=C * RTT_S * 10 ** rng.uniform(-1, 1, n),
        )  # fmt: skip
        engine = CurveEngine(
            paths, model=model, senders=[ExternalSender() if name == "external" else make_sender(name)],
            adversary=[RecordedAdversary("random", moves) for moves in tighter_page.random_moves(rng, n, steps)],
            steps_per_rtt=K, loss_detection=str(rng.choice(["acks", "oracle"])), beliefs=belief_settings("tighter"),
        )  # fmt: skip
        for step in range(steps):
            rates = C * 10 ** rng.uniform(-1, 0.6, n) if name == "external" and step % 3 == 0 else np.full(n, np.nan)
            engine.advance(1, actions=rates[:, None])
            lower, upper = (engine.flow(field)[:, 0] for field in ("C_L_Bps", "C_U_Bps"))
            assert (lower <= C * (1 + ROUND_OFF)).all(), (name, step)
            assert (upper >= C * (1 - ROUND_OFF)).all(), (name, step)
            pinned += int(((lower > 0.999 * C) & (upper < 1.001 * C)).sum())
    assert pinned > 0


def test_a_loss_pins_the_link_rate():
    """Two losses without an idle step between: the tighter rules give C itself, the others only within D."""
    bounds = {}
    for preset in ("artefact", "tighter"):
        path = make_path(link_rate_mbps=48, rtt_ms=40, jitter_ms=40, buffer_bdp=0.5)
        engine = CurveEngine([path], model="ccac", senders=[ExternalSender()], steps_per_rtt=4, beliefs=belief_settings(preset))
        for _ in range(9):
            engine.advance(4, actions=np.array([[9e6]]))
        bounds[preset] = engine.flow("C_L_Bps")[0, 0], engine.flow("C_U_Bps")[0, 0]
    assert bounds["tighter"] == pytest.approx((6e6, 6e6))
    assert bounds["artefact"][0] < 5.6e6 and bounds["artefact"][1] > 6.4e6


def test_no_rule_says_more_than_all_that_a_flow_saw():
    """The bounds lie around those rates that explain a history, and the tighter ones between them and the others."""
    found = tighter_page.gap(n=3)
    for row in found:
        assert row["C_L"][0] <= row["C_L"][1] <= 1.0005 and row["C_U"][0] >= row["C_U"][1] >= 0.999
    assert found[0]["C_L"][1] - found[0]["C_L"][0] >= 0.5 * (1 - found[0]["C_L"][0])  # half of the gap at least
