"""Players of delay elements: the batch against single runs, legality, searches."""

from typing import Any

import numpy as np
import pytest
from box_scenarios import ASKS, FLOW, ONE, RTTS
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.agents import make_sender
from ccenv.agents.callbacks import record
from ccenv.attacks.boxes.game import BoxGame
from ccenv.attacks.boxes.players import (
    INPUTS,
    KIND,
    PATTERN_VALUES,
    PHASE_VALUES,
    BoxPlayer,
    BoxPolicy,
    Pattern,
    Stored,
    TwoPhases,
)
from ccenv.attacks.boxes.run import senders_of
from ccenv.attacks.boxes.searches import SEARCHES
from ccenv.attacks.goals import PACKET_GOALS
from ccenv.engine.packet.engine import PacketEngine
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.laws import check_trace
from ccenv.network.metrics.table import METRICS
from ccenv.simulation.packet_trace import packet_slack_bytes
from ccenv.simulation.ranges import read_distribution
from ccenv.simulation.run import Stage

MIXED = {**ONE, "flows": [FLOW, {"sender": "cubic", "rtt_ms": 20, "jitter": {**FLOW["jitter"], "adversary": "slowest"}}]}
STATE = record("turns")


def init(state: Any, view: Any) -> None:
    """Begin with the first turn."""


def play(state: Any, view: Any, move: Any) -> None:
    """Let everything go in every third tick, and half of it in the next one."""
    turn = int(view.step) % 3
    move.service = 1.0 if turn == 0 else (0.5 if turn == 1 else 0.0)


def all_of_it(state: Any, view: Any, move: Any) -> None:
    move.service = 1.0


def nothing_of_it(state: Any, view: Any, move: Any) -> None:
    """Hold everything as long as the box may."""
    move.service = 0.0


def game(data: dict[str, Any] = ONE, sender: str = "copa", goal: str = "utilisation") -> BoxGame:
    scenario = read_distribution(data).largest
    senders, attacked = senders_of(scenario, make_sender(sender))
    others = {"slowest": ScriptedAdversary("third", STATE, init, play)}
    return BoxGame(scenario, senders, attacked, adversaries=others, goal=goal, **RTTS)


@pytest.mark.parametrize("data", [ONE, MIXED])
@pytest.mark.parametrize("sender", ["copa", "bbr1", "cc_probe_drain"])
def test_a_pattern_is_what_a_scripted_adversary_of_the_same_moves_is(data: dict[str, Any], sender: str) -> None:
    played = game(data, sender)
    found = played.play([KIND, Pattern((1.0, 0.5, 0.0)), Pattern((0.0,))])
    third = ScriptedAdversary("third", STATE, init, play)
    scenario = played.scenario
    senders, _ = senders_of(scenario, make_sender(sender))
    engine = PacketEngine(scenario, senders, adversaries={"external": third, "slowest": third}, duration_s=scenario.duration_s)
    delivered = []
    for at_s in (0.5 * scenario.duration_s, scenario.duration_s):
        engine.advance(np.nextafter(at_s, 0.0))
        delivered.append(engine.flow("delivered_bytes")[0])
    capacity = scenario.links[0].rate_Bps * 0.5 * scenario.duration_s
    assert found[1] == (delivered[1] - delivered[0]) / capacity
    assert len(set(found)) > 1 and played.flow_steps == 3 * played.run_flow_steps
    assert played.play([Stored(third)])[0] == found[1]


@pytest.mark.parametrize(("kind", "goal"), [("video", "qoe"), ("page", "page_load")])
def test_applications_are_worth_what_they_are_in_a_single_run(kind: str, goal: str) -> None:
    played = game(ASKS[kind], "cubic", goal=goal)
    patterns = [KIND, Pattern((0.0,)), Pattern((0.2, 1.0), 3)]
    sign = METRICS[PACKET_GOALS[goal].metric].sign
    found = played.play(patterns) * sign
    scenario = played.scenario
    for moves, value in zip((all_of_it, nothing_of_it), found, strict=False):
        box = ScriptedAdversary("constant", STATE, init, moves)
        senders, _ = senders_of(scenario, make_sender("cubic"))
        engine = PacketEngine(scenario, senders, adversaries={"external": box}, duration_s=scenario.duration_s)
        stage = Stage(scenario)
        stage.play(engine, scenario.duration_s)
        assert value == stage.worth(PACKET_GOALS[goal].metric, scenario.duration_s)
    assert [played.measure(pattern)[1] for pattern in patterns] == list(found)


def test_runs_do_not_depend_on_their_place() -> None:
    rng = np.random.Generator(np.random.Philox(1))
    patterns = [Pattern(tuple(rng.random(n)), int(rng.integers(1, 5))) for n in range(1, PATTERN_VALUES + 1) for _ in range(6)]
    one = game()
    together = one.play(patterns)
    np.testing.assert_array_equal(together[70:75], one.play(patterns[70:75]))
    np.testing.assert_array_equal(together, game().play(patterns))


@settings(max_examples=15, deadline=None)
@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=PATTERN_VALUES), hold=st.integers(1, 9))
def test_any_pattern_is_legal(values: list[float], hold: int) -> None:
    trace = game().trace(Pattern(tuple(values), hold))
    assert trace.S[-1, 0] > 0 and check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []


def constant(share: float) -> BoxPolicy:
    return BoxPolicy((share, *[0.0] * (len(INPUTS) - 1)), 1, 1.2)


def test_phases_and_policies_without_a_choice_are_patterns() -> None:
    one = game()
    patterns = [Pattern((0.2, 0.9), 2), Pattern((0.1,), 2)]
    found = one.play(patterns)
    first, second = ((0.2, 0.9), (0.1,))
    switched = one.play([TwoPhases(first, second, 2, switch) for switch in (one.ticks_of_run, 0, 60)])
    np.testing.assert_array_equal(switched[:2], found)
    assert switched[2] not in found
    np.testing.assert_array_equal(one.play([constant(0.1), constant(3.0)]), one.play([Pattern((0.1,)), KIND]))


@pytest.mark.parametrize("place", range(1, len(INPUTS)))
def test_a_policy_answers_each_thing_that_it_sees(place: int) -> None:
    weights = [0.3, *[0.0] * (len(INPUTS) - 1)]
    plain = BoxPolicy(tuple(weights), 1, 1.2)
    weights[place] = 0.4
    outcome = game(sender="reno").play([plain, BoxPolicy(tuple(weights), 1, 1.2)])
    assert outcome[0] != outcome[1]


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_phases_and_policies_are_legal(data: st.DataObject) -> None:
    values = st.lists(st.floats(0, 1), min_size=1, max_size=PHASE_VALUES).map(tuple)
    first, second = data.draw(values), data.draw(values)
    phases = TwoPhases(first, second, data.draw(st.integers(1, 9)), data.draw(st.integers(0, 200)))
    weights = data.draw(st.lists(st.floats(-3, 3), min_size=len(INPUTS), max_size=len(INPUTS)))
    player: BoxPlayer = phases if data.draw(st.booleans()) else BoxPolicy(tuple(weights), 2, 1.2)
    trace = game().trace(player)
    assert trace.S[-1, 0] > 0 and check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []


def test_every_search_of_the_panel_finds_something_worse_than_nothing_by_the_seed_alone() -> None:
    one = game()
    kind = one.measure(KIND)[0]
    worst = {name: search.worst(one, 150, 0) for name, search in SEARCHES.items()}
    assert all(one.play([player])[0] < 0.8 * kind for player in worst.values()) and one.play([worst["cem"]])[0] < 0.5 * kind
    assert SEARCHES["cem"].worst(game(), 150, 0) == worst["cem"] != SEARCHES["cem"].worst(game(), 150, 1)
