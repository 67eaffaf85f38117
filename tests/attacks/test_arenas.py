"""What holds in every arena: findings are replayed, legal, deterministic, within the budget, and serve the goal."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from box_scenarios import ASKS, ONE, RTTS, TWO

from ccenv.agents import make_sender
from ccenv.attacks.boxes.run import PacketArena, attack_boxes
from ccenv.attacks.boxes.searches import SEARCHES
from ccenv.attacks.catalog import PANEL
from ccenv.attacks.game import Scene
from ccenv.attacks.goals import GOALS, PACKET_GOALS
from ccenv.attacks.run import Arena, AttackResult, CurveArena, Finding, attack
from ccenv.base.errors import InputError
from ccenv.network.path import make_path
from ccenv.simulation.ranges import load_distribution, read_distribution

PATH = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=2)
TWO_PATH = PATH.model_copy(update={"flows": PATH.flows * 2})
Attack = Callable[..., AttackResult[Any]]


def on_curves(sender: str = "cc_probe_drain", **more: Any) -> AttackResult[Any]:
    return attack(sender, **{"path": PATH, "steps_per_rtt": 4, "budget_flow_steps": 200_000, **RTTS, **more})


def per_packet(sender: str = "copa", data: dict[str, Any] = ONE, **more: Any) -> AttackResult[Any]:
    return attack_boxes(sender, read_distribution(data), **{"budget_flow_steps": 40_000, **RTTS, **more})


def curve_arena() -> CurveArena:
    return CurveArena(Scene(make_sender("copa"), PATH, "ccac", steps_per_rtt=4, warmup_rtts=20, window_rtts=20))


def packet_arena() -> PacketArena:
    return PacketArena(read_distribution(ONE).largest, make_sender("copa"), 20, 20, "utilisation")


ARENAS: dict[str, tuple[Attack, Callable[[], Arena[Any]], tuple[str, ...]]] = {
    "curves": (on_curves, curve_arena, PANEL),
    "packets": (per_packet, packet_arena, tuple(SEARCHES)),
}
in_each_arena = pytest.mark.parametrize("name", ARENAS)


@in_each_arena
def test_findings_are_replayed_legal_and_within_the_budget(name: str) -> None:
    play, make_arena, panel = ARENAS[name]
    told: list[tuple[int, int]] = []
    finished: list[Finding] = []
    result = play("copa", seed=3, report=lambda *given: told.append(given), finished=finished.append)
    assert set(result.by_adversary) == set(panel) == {finding.adversary for finding in finished}
    assert result.legal and result.budget_flow_steps == told[0][1]
    spent = result.to_dict()["flow_steps"]
    assert 0.5 * result.budget_flow_steps < spent <= result.budget_flow_steps
    assert [done for done, _ in told] == sorted(done for done, _ in told) and told[-1][0] <= spent
    assert result.worst_utilisation == min(finding.worst_utilisation for finding in result.by_adversary.values())
    assert result.trace is result.by_adversary[result.worst_adversary].trace
    assert result.worst_utilisation < play("copa", adversaries=["benign"]).worst_utilisation

    arena = make_arena()
    for finding in result.by_adversary.values():
        assert finding.legal and not finding.violations
        found = arena.restore(finding)
        assert (found is None) == (finding.moves is None)
        if found is not None:
            again = arena.replay(found)
            assert again.worst_utilisation == finding.worst_utilisation
            np.testing.assert_array_equal(again.trace.S, finding.trace.S)
            assert not arena.check(again.trace)

    again_of_seed = play("copa", seed=3, known={name: result.by_adversary[name] for name in panel[:1]})
    for adversary, finding in result.by_adversary.items():
        assert again_of_seed.by_adversary[adversary].worst_utilisation == finding.worst_utilisation
        np.testing.assert_array_equal(again_of_seed.by_adversary[adversary].trace.S, finding.trace.S)
    assert play("copa", seed=4, adversaries=["cem"]).worst_utilisation != result.by_adversary["cem"].worst_utilisation


@in_each_arena
def test_the_least_total_budget_is_told_and_is_enough(name: str) -> None:
    play = partial(ARENAS[name][0], adversaries=["corners", "cem", "benign"])
    with pytest.raises(InputError, match=r"take at least \d+ in all: raise the budget") as refusal:
        play(budget_flow_steps=1)
    least = int(str(refusal.value).split("at least ")[1].split()[0])
    with pytest.raises(InputError, match=f"at least {least} in all"):
        play(budget_flow_steps=least - 1)
    assert play(budget_flow_steps=least).to_dict()["flow_steps"] <= least


@pytest.mark.parametrize(
    ("play", "more", "said"),
    [*((play, {"adversaries": ["cme"]}, "unknown adversary 'cme'.*cem") for play in (on_curves,)),
     *((play, {"adversaries": ["hord"]}, "unknown adversary 'hord'.*hoard") for play in (on_curves, per_packet)),
     *((play, {"adversaries": ["cem", "cem"]}, "named twice") for play in (on_curves, per_packet)),
     *((play, {"adversaries": "cem"}, "a list with at least one name") for play in (on_curves, per_packet)),
     *((play, {"budget_flow_steps": 10}, "raise the budget") for play in (on_curves, per_packet)),
     *((play, {"budget_flow_steps": 10**13}, "must be 1 to 1000000000000") for play in (on_curves, per_packet)),
     *((play, {"goal": "farness"}, "unknown goal 'farness'.*fairness") for play in (on_curves, per_packet)),
     *((play, {"goal": "starvation"}, "needs at least 2 flows; .* has 1") for play in (on_curves, per_packet)),
     (on_curves, {"goal": "qoe"}, "unknown goal 'qoe'"), (on_curves, {"path": "shalow"}, "shallow"),
     (on_curves, {"model": "ideal"}, "no choice"), (on_curves, {"budget_flow_steps": 0}, "must be 1 to 1000000000000"),
     (on_curves, {"path": TWO_PATH, "timing": "smt", "steps_per_rtt": 1}, "one flow and the goal 'utilisation'"),
     (on_curves, {"path": TWO_PATH, "adversaries": ["evolution"]}, "attacks the utilisation of one flow"),
     (per_packet, {"data": {**ONE, "flows": [{"sender": "external", "rtt_ms": 30}]}}, "nothing to attack with"),
     (per_packet, {"goal": "qoe"}, "goal 'qoe' is about a video"),
     (per_packet, {"data": ASKS["video"], "goal": "page_load"}, "goal 'page_load' is about a page"),
     (per_packet, {"adversaries": ["network_drain"]}, "is not scripted"),
     (per_packet, {"data": {**ONE, "links": [{**ONE["links"][0], "discipline": "codel"}]}}, "one drop-tail link")],
)  # fmt: skip
def test_what_cannot_be_attacked(play: Attack, more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        play(**more)


@pytest.mark.parametrize(("name", "goal"), [*(("curves", goal) for goal in GOALS), *(("packets", goal) for goal in PACKET_GOALS)])
def test_searches_serve_their_goal(name: str, goal: str) -> None:
    if name == "curves":
        play = partial(on_curves, "reno", path=TWO_PATH, model="cbr_delay", adversaries=["cem", "two_phase"], goal=goal)
    else:
        play = partial(per_packet, "reno", ASKS.get(PACKET_GOALS[goal].application or "", TWO), goal=goal)
    found, benign = play(adversaries=["corners", "cem"]), play(adversaries=["benign"])
    worst, harmless = (found.goal.badness(one.value_of(one.worst)) for one in (found, benign))
    assert found.legal and worst < harmless
    told = found.to_dict()
    assert told.get("goal", "utilisation") == goal and told.get("worst_value") == found.worst.value
    assert told["worst_utilisation"] == found.worst.worst_utilisation
    if name == "packets":
        assert told["kind_utilisation"] == benign.worst_utilisation


def test_ranges_draw_by_the_seed_and_the_scenario_names_the_sender() -> None:
    settings: dict[str, Any] = {"adversaries": ["benign"], "budget_flow_steps": 10_000, **RTTS}
    drawn = [attack_boxes("reno", load_distribution("jittered"), seed=seed, **settings).scene for seed in (0, 0, 1)]
    rates = [scenario.links[0].rate_Bps for scenario in drawn]
    assert rates[0] == rates[1] != rates[2] and "reno" in {flow.sender for flow in drawn[0].flows}


def test_per_packet_scripted_adversaries_of_one_name_have_one_finding_each() -> None:
    result = per_packet(adversaries=["square:duty=0.2", "square:duty=0.8"])
    assert len({finding.worst_utilisation for finding in result.by_adversary.values()}) == 2
    assert all("pattern" not in finding for finding in result.to_dict()["by_adversary"].values())
