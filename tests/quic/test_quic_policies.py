"""Learned policies inside aioquic: they reach what the packet engine says, repeat, and are refused where none can play."""

from __future__ import annotations

import pytest
from test_quic_runs import needs_aioquic

from ccenv.live.export.bpf import ExportError
from ccenv.quic.run import QuicError, compile_sender, make_run
from ccenv.quic.stacks import STACKS
from ccenv.simulation import read_scenario, simulate

NAME = "learned_everywhere"


@needs_aioquic
def test_a_policy_reaches_in_aioquic_what_the_packet_engine_says() -> None:
    """One flow on 12 Mbit/s and 40 ms with two BDP, measured in the second half of 8 s; a second run is the same run."""
    runs = [make_run("aioquic", [NAME], rate_mbps=12, rtt_s=0.04, buffer="2bdp", duration_s=8.0) for _ in range(2)]
    scenario = {
        **{"duration_s": 8.0, "warmup_s": 4.0, "links": [{"rate_mbps": 12, "buffer_bdp": 2}]},
        "flows": [{"sender": NAME, "rtt_ms": 40}],
    }
    simulated = simulate(read_scenario(scenario)).summary()["links"][0]["utilisation"]
    assert not runs[0].violations and runs[0].hash == runs[1].hash
    assert runs[0].utilisation == pytest.approx(simulated, abs=0.05)


@pytest.mark.parametrize("stack", ["picoquic", "quinn"])
def test_a_stack_that_python_does_not_reach_plays_no_policy(stack: str) -> None:
    with pytest.raises(QuicError, match="plays no policies that set a window, such as learned_everywhere; aioquic does"):
        compile_sender(STACKS[stack], NAME, None, 0.005)  # type: ignore[arg-type]  (refused before the path is read)


def test_a_policy_on_beliefs_is_no_window_and_stays_refused() -> None:
    """learned_nominal sets a rate from beliefs; only exported programs bring those into a stack."""
    with pytest.raises(ExportError, match="is no belief program"):
        compile_sender(STACKS["aioquic"], "learned_nominal", None, 0.005)  # type: ignore[arg-type]
