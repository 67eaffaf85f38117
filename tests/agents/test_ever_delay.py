"""ever_delay against docs/fairness.md: its map, its speeds, the age while no ACK comes; a start on a quiet link."""

import math
from fractions import Fraction

import pytest
from packet_link import run_link
from signals_play import LINK, RTT_S, Steady, tick

from ccenv.agents import make_sender
from ccenv.agents.classic import ever_delay as rules
from ccenv.agents.classic.ever_delay import DESIGNS, REPAIRING, RULE, SETTLE_GAIN, SETTLING, START_GAIN, STARTING, rest_of
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.path import make_path
from ccenv.proofs.certificates.fairness.reading import read_fair, shipped_fair


def test_designs_are_those_of_the_certificates():
    shipped = {}
    for file in shipped_fair().values():
        certificate = read_fair(file)
        design, rule = certificate.design, certificate.rule
        asked = tuple(float(Fraction(value)) for value in (design.fairness, design.jitter_rtts, design.shares))
        numbers = (rule.slope, rule.gain, rule.offset, rule.start, rule.relief, design.freedom)
        shipped[asked] = tuple(float(Fraction(value)) for value in numbers)
    assert shipped == DESIGNS


def started(spec="ever_delay:start_share_mbps=12"):
    flow = Steady(make_sender(spec), pieces=20)
    flow.rounds(1)
    return flow


@pytest.mark.parametrize(("off", "gain"), [(0.5, None), (-0.5, None), (1.0, SETTLE_GAIN), (-1.0, SETTLE_GAIN)])
def test_v_follows_the_map_slowly_and_where_the_link_has_become_another_quickly(off, gain):
    """One Rm at X = 2: off = 1 is just beyond the distance that the invariant allows, else off is the distance itself."""
    flow = started()
    flow.rounds(3, rtt_s=2 * RTT_S)
    state = flow.state
    here = state.target - state.slope * (2.0 - 1.0)
    far = state.start if off > 0 else state.relief
    distance = off if gain is None else math.copysign(far + 0.2, off)
    state.v = before = here - distance
    flow.rounds(1, rtt_s=2 * RTT_S)
    assert state.v - before == pytest.approx((gain or state.gain) * distance, rel=0.05)
    assert state.phase == (RULE if gain is None else SETTLING)
    assert state.pacing_rate_Bps == pytest.approx(math.exp(state.v) / math.sqrt(2.0), rel=0.02)


def test_a_start_meets_the_map_settles_and_is_over():
    """v grows by 1/10 per Rm, over X - D beyond 1, until it meets the map; then the rule is quick for a while."""
    flow = started("ever_delay")
    state = flow.state
    for x, speed in ((2.0, START_GAIN), (4.0, START_GAIN / 3.0)):
        state.v = state.target - 20.0
        flow.rounds(5, rtt_s=x * RTT_S)
        state.v = before = state.target - state.slope * (x - 1.0) - 0.5
        flow.rounds(1, rtt_s=x * RTT_S)
        assert state.v - before == pytest.approx(speed, rel=0.05)
    state.v = state.target
    for rounds, phase, gain in ((1, SETTLING, SETTLE_GAIN), (int(rules.SETTLE_RTTS) + 2, RULE, state.gain)):
        flow.rounds(rounds, rtt_s=4.0 * RTT_S)
        state.v = before = state.target - state.slope * 3.0 - 0.5
        flow.rounds(1, rtt_s=4.0 * RTT_S)
        assert state.v - before == pytest.approx(0.5 * gain, rel=0.05) and state.phase == phase


@pytest.mark.parametrize("flows", [1, 2, 8])
@pytest.mark.parametrize("spec", ["ever_delay:rm_ms=40", "ever_delay:rm_ms=40,fairness=1.97,jitter_rtts=0.125,shares=164"])
@pytest.mark.parametrize("share_mbps", [5.0, 30.0, 400.0])
def test_an_empty_link_is_full_and_fair_within_a_hundred_rtts(spec, flows, share_mbps):
    path = make_path(link_rate_mbps=flows * share_mbps, rtt_ms=40, jitter_ms=0, n_flows=flows, buffer_bdp=20)
    engine = CurveEngine([path], model="cbr_delay", senders=[make_sender(spec)] * flows, steps_per_rtt=8, seed=0)
    engine.advance(8 * 100)
    before = engine.totals()["S"][0].copy()
    engine.advance(8 * 100)
    shares = (engine.totals()["S"][0] - before) / (100 * 0.04 * flows * share_mbps * 125e3)
    assert shares.sum() > 0.98 and shares.sum() ** 2 / (flows * (shares**2).sum()) > 0.999


@pytest.mark.parametrize(("inflight_bytes", "x"), [(1.0, 3.0), (0.0, 1.0)])
def test_age_grows_while_no_ack_comes_unless_nothing_is_in_flight(inflight_bytes, x):
    """Else a rate too low for a packet would fall for ever: no packet, no ACK, a larger X."""
    flow = started()
    for step in range(1, 201):
        now_s = flow.now_s + 0.01 * RTT_S * step
        flow.on_tick(flow.state, tick(now_s=now_s, dt_s=0.01 * RTT_S, min_rtt_s=RTT_S, inflight_bytes=inflight_bytes))
    assert flow.state.pacing_rate_Bps == pytest.approx(math.exp(flow.state.v) / math.sqrt(x), rel=1e-6)


def test_loss_beyond_a_fiftieth_is_repaired():
    """v falls by a cut, once per round trip, and the rate grows by a packet per round trip until v is back on the map."""
    flow = started("ever_delay")
    state = flow.state
    in_flight = state.pacing_rate_Bps * RTT_S
    spare, before = state.spare_bytes, state.v
    assert 0.0 < spare <= 0.021 * in_flight + state.mss_bytes
    flow.lose(0.5 * spare)
    assert (state.v, state.phase) == (before, STARTING)
    for _ in range(3):
        flow.lose(spare)
        assert (state.v, state.phase) == (before - rules.CUT, REPAIRING)
    flow.rounds(1)
    grown_Bps = math.exp(state.v) / math.sqrt(state.x) - math.exp(before - rules.CUT)
    assert grown_Bps * RTT_S == pytest.approx(1.1 * state.mss_bytes, rel=0.15)
    flow.lose(1e9)
    assert state.v < before - rules.CUT
    state.v = state.target
    flow.rounds(1)
    assert state.phase == SETTLING


def test_a_first_ack_that_shows_a_queue_leads_to_the_map_of_that_queue():
    """Jitter alone makes X = 1 + D at most; a queue beyond it was there before: the map there is the others' v."""
    for x, entry in ((2.4, rules.NO_QUEUE), (4.0, 4.0)):
        flow = Steady(make_sender("ever_delay:rm_ms=40"), pieces=20)
        flow.rounds(1, rtt_s=x * RTT_S)
        assert flow.state.entry_x == pytest.approx(entry, rel=0.01)
        state = flow.state
        state.v = state.target - 20.0
        flow.rounds(8, rtt_s=8.0 * RTT_S)
        state.v = state.target - state.slope * (4.0 - 1.0) - 0.5
        flow.rounds(1, rtt_s=8.0 * RTT_S)
        assert state.phase == (STARTING if entry == 4.0 else SETTLING)


@pytest.mark.parametrize(("flows", "gap"), [(2, 300), (4, 300), (8, 25)])
def test_late_starts_end_at_equal_rates(flows, gap):
    """Flows that come one after the other, quiet, Rm known; the rates 1000 Rm after the last."""
    path = make_path(link_rate_mbps=12 * flows, rtt_ms=40, jitter_ms=0, n_flows=flows, buffer_bdp=40)
    starts = (flow.model_copy(update={"start_s": index * gap * 0.04}) for index, flow in enumerate(path.flows))
    path = path.model_copy(update={"flows": tuple(starts)})
    engine = CurveEngine([path], model="cbr_delay", senders=[make_sender("ever_delay:rm_ms=40")] * flows, steps_per_rtt=8, seed=0)
    engine.advance(8 * (flows * gap + 900))
    before = engine.totals()["S"][0].copy()
    engine.advance(8 * 100)
    shares = (engine.totals()["S"][0] - before) / (100 * 0.04 * 12 * flows * 125e3)
    assert shares.sum() > 0.99 and shares.sum() ** 2 / (flows * (shares**2).sum()) > 0.99


def test_one_flow_rests_at_the_equilibrium_where_the_rate_is_the_share():
    """On 12 Mbit/s from the equilibrium of that share: the link is full and the delay is what the map says."""
    target, slope = 16.0, 0.6
    v = rest_of(1e6, target, slope)
    x = 1.0 + (target - v) / slope
    assert math.exp(v) / math.sqrt(x) == pytest.approx(1e6, rel=1e-6)
    sender = make_sender("ever_delay:fairness=1.97,jitter_rtts=0.125,shares=164,max_share_mbps=100,start_share_mbps=12")
    run = run_link(sender, 20.0, **LINK)
    rtt = run.column("rtt_s")[-50:].mean() / RTT_S
    values = sender.parameters
    assert rtt == pytest.approx(1 + (values["target"] - values["v"]) / values["slope"], rel=0.05) and not run.losses


SHIELD = "ever_delay:fairness=2.5,jitter_rtts=0.125,shares=10,start_share_mbps=100"


@pytest.mark.parametrize(("set_to", "kept"), [(1.05, 1.05), (3.0, 1.1), (0.2, 1 / 1.1)])
def test_a_shield_keeps_what_was_set_within_its_freedom(set_to, kept):
    """What an action sets holds as a factor of the rule's rate, clipped; without a shield the rule's rate is back at once."""
    for spec, factor in ((SHIELD, kept), ("ever_delay:start_share_mbps=100", 1.0)):
        flow = started(spec)
        flow.state.pacing_rate_Bps = set_to * flow.state.ruled_Bps
        flow.rounds(1)
        assert flow.state.pacing_rate_Bps / flow.state.ruled_Bps == pytest.approx(factor if factor == 1.0 else kept, rel=1e-12)


def test_at_a_start_v_follows_what_was_set_up_to_the_map():
    flow = started(SHIELD)
    state, before = flow.state, flow.state.v
    state.target += state.start + 3.0
    state.phase = STARTING
    short = state.target - before  # X is 1
    state.pacing_rate_Bps = math.e * state.ruled_Bps
    flow.rounds(1)
    assert before + 1.0 <= state.v <= before + 1.2
    state.pacing_rate_Bps = 1e9 * state.ruled_Bps
    flow.rounds(1)
    assert short - (state.v - before) == pytest.approx(0.0, abs=0.2)
