"""Advice on added delay: [Delta] s.5.2's two cases, and what it refuses."""

from __future__ import annotations

import math

import pytest

from ccenv.benchmarks.compare.added_delay import SMALL_DELTA, advise_lambda


def test_bulk_flows_of_bbr_are_equalised_and_a_short_flow_is_left_alone() -> None:
    bulk = advise_lambda([0.074, 0.01, 0.01], "bbr1")
    assert bulk.lambda_s == pytest.approx(0.08)  # a whole number of 10 ms
    assert bulk.alone <= SMALL_DELTA < bulk.held < bulk.contested
    short = advise_lambda([0.01, 0.08], "cubic", size_bytes=300_000, duration_s=10)
    assert short.lambda_s == 0.0 and short.alone > SMALL_DELTA and math.isnan(short.held)


def test_a_sender_that_shares_alike_at_any_delay_needs_none() -> None:
    """Constant rates below a half of the link do not meet: their delta is 0 without the proxy, and no less with it."""
    advice = advise_lambda([0.01, 0.08], "constant:rate_mbps=10", duration_s=10)
    assert advice.lambda_s == 0.0 and advice.contested == advice.held == pytest.approx(0.0, abs=0.01)
    assert "in company" in advice.reason
