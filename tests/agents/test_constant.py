"""The constant rate, and the plain link that the other tests stand on."""

import math

import pytest
from packet_link import run_link
from steady_flow import LINK, MSS, RTT_S, RATE_Bps

from ccenv.agents import make_sender


def test_constant_rate():
    run = run_link(make_sender("constant:rate_mbps=6"), 3, **LINK)
    assert run.rate_Bps(1, 3) == pytest.approx(0.75e6, rel=2e-3)


def test_link_itself_is_what_the_numbers_assume():
    """Overload: the link carries C; the last packet of a full buffer waits buffer/C."""
    run = run_link(make_sender("constant:rate_mbps=24"), 3, buffer_packets=50, **LINK)
    assert run.rate_Bps(1, 3) == pytest.approx(RATE_Bps, rel=2e-3)
    assert run.column("rtt_s").max() == pytest.approx(RTT_S + 51 * MSS / RATE_Bps, abs=2 * MSS / RATE_Bps)
    assert math.isclose(run.column("rtt_s").min(), RTT_S + MSS / RATE_Bps, rel_tol=1e-9)
