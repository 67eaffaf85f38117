"""The constructive proofs of [Starvation]: what they play is legal, and the senders cannot tell the difference."""

import numpy as np
import pytest

from ccenv.attacks.constructions.slow_link import departures, emulate
from ccenv.attacks.run import attack
from ccenv.base.errors import InputError
from ccenv.network.laws import check_trace
from ccenv.network.path import make_path

SHORT = {"warmup_rtts": 20, "window_rtts": 40}


@pytest.mark.parametrize("sender", ["vegas", "copa"])
def test_theorem_1_starves_one_of_two_flows(sender):
    finding = attack(sender, adversaries=["starvation:ratio=20"], **SHORT).by_adversary["starvation"]
    assert finding.legal
    assert all(finding.preconditions.values()), finding.preconditions
    assert finding.details["ratio"] >= 20
    trace = finding.trace
    assert trace.n_flows == 2
    got = trace.S[-1] - trace.S[160]
    assert got[1] / got[0] == pytest.approx(finding.details["ratio"])
    # The shared link is C1 + C2, but where the proof's second case needs a faster one.
    assert finding.details["shared_link_mbps"] >= finding.details["C1_mbps"] + finding.details["C2_mbps"] - 1e-6


def test_theorem_1_needs_the_jitter():
    """The same two flows with the same states, but a benign network: the starved one recovers."""
    from dataclasses import replace

    from ccenv.agents import make_sender
    from ccenv.attacks.constructions import starvation
    from ccenv.attacks.game import Game, Scene
    from ccenv.attacks.scenes import attack_path

    played = {}
    original = starvation._play

    def without_jitter(game, state, start, link):
        played["with"] = original(game, state, start, link)
        played["without"] = original(game, state, start, replace(link, service=np.ones_like(link.service)))
        return played["with"]

    game = Game(Scene(make_sender("vegas"), attack_path("deep"), "cbr_delay", warmup_rtts=100, window_rtts=300))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starvation, "_play", without_jitter)
        starvation.search(ratio=20).run(game, 0, 0)
    ratios = {name: (trace.S[-1] - trace.S[game.first_row]) for name, trace in played.items()}
    ratios = {name: float(got[1] / got[0]) for name, got in ratios.items()}
    assert not check_trace(played["without"]) and ratios["without"] < 0.7 * ratios["with"]


def test_theorem_1_reports_what_does_not_hold_and_refuses_what_it_cannot_start_from():
    """cc_qdel's delay range is wider than D/2: the theorem does not apply, and the emulation is not exact."""
    finding = attack("cc_qdel", adversaries=["starvation:ratio=20,converge_rtts=400"], **SHORT).by_adversary["starvation"]
    assert finding.legal and not finding.preconditions["ranges_within_half_D"]
    assert not finding.preconditions["emulation_legal"]
    with pytest.raises(InputError, match="times apart"):
        attack("constant:rate_mbps=1", adversaries=["starvation"], **SHORT)
    with pytest.raises(InputError, match="D > 0"):
        attack("vegas", path=make_path(link_rate_mbps=10), model="strong", adversaries=["starvation"], **SHORT)


def test_theorem_2_is_exact_where_the_delay_stays_within_D():
    path = make_path(link_rate_mbps=48, rtt_ms=40, jitter_ms=80)
    result = attack("bbr1", path=path, model="cbr_delay", adversaries=["slow_link:slowest_share=0.24"], **SHORT)
    details = result.by_adversary["slow_link"].details
    assert result.legal and details["worst_with_delay_within_D"] < 0.5
    assert result.worst_utilisation <= details["worst_with_delay_within_D"]


def test_theorem_3_needs_no_initial_state_and_says_where_it_does_not_apply():
    finding = attack("copa", adversaries=["strong_starvation:ratio=20,rtts=100"], **SHORT).by_adversary["strong_starvation"]
    assert finding.legal
    assert all(finding.preconditions.values()), finding.preconditions
    assert finding.details["ratio"] >= 20 and finding.trace.header.model == "strong"
    assert finding.trace.header.history == "empty"
    result = attack("reno", adversaries=["strong_starvation:rtts=200"], **SHORT)
    assert result.by_adversary["strong_starvation"].preconditions == {"delay_bounding": False} and result.legal


def test_departures_of_a_link_without_stock():
    entered = np.array([3.0, 3.0, 3.0, 10.0])
    np.testing.assert_array_equal(departures(entered, 2.0), [2.0, 3.0, 3.0, 5.0])


def test_emulate_finds_the_moves_of_a_delayed_curve():
    """A curve held for exactly two rows needs D = 2; D = 1 is too little, and nothing can come early."""
    left = np.array([0.0, 1.0, 3.0, 4.0, 6.0, 7.0])
    late = np.array([0.0, 0.0, 0.0, 1.0, 3.0, 4.0])
    exact = emulate(left, late, 2)
    assert exact.jitter_steps == 2 and exact.early_bytes == 0
    served = [0.0]
    for k in range(1, 6):
        low = max(served[-1], left[k - 2] if k >= 2 else 0.0)
        served.append(low + exact.service[k - 1] * (left[k] - low))
    np.testing.assert_allclose(served, late)
    assert emulate(late, left, 2).early_bytes == 3
