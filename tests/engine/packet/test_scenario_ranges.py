"""Scenarios with ranges: what is read, what is refused, and that all that is drawn is a scenario of the file."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccenv.base.errors import InputError
from ccenv.simulation.ranges import Leaf, load_distribution, read_distribution
from ccenv.simulation.scenario import load_scenario

BASE: dict[str, Any] = {
    "duration_s": 10,
    "links": [{"rate_mbps": 12, "buffer_bdp": 1}],
    "flows": [{"sender": "external", "rtt_ms": 40}, {"sender": "reno", "rtt_ms": 40}],
}


def changed(place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return BASE with a value somewhere."""
    data = copy.deepcopy(BASE)
    part: Any = data
    for key in place[:-1]:
        part = part.setdefault(key, {}) if isinstance(part, dict) else part[key]
    part[place[-1]] = value
    return data


def test_a_scenario_is_a_distribution_of_one() -> None:
    distribution = load_distribution("copa_one_early_packet")
    assert distribution.leaves == ()
    assert distribution.largest == load_scenario("copa_one_early_packet")


@pytest.mark.parametrize("name", ["single", "aurora", "beside", "four", "jittered", "duel"])
def test_shipped_distributions_are_read(name: str) -> None:
    assert load_distribution(name).leaves


def test_ranges_of_all_forms() -> None:
    data = changed(("links", 0, "rate_mbps"), {"range": [1, 100], "log": True})
    data["flows"][0] |= {"rtt_ms": [20, 80], "loss_rate": {"choice": [0, 0.1]}, "receiver": {"ack_every": [1, 3]}}
    data["flows"][1]["sender"] = {"choice": ["reno", "cubic", "bbr1"]}
    distribution = read_distribution(data)
    names = [leaf.name for leaf in distribution.leaves]
    assert names == ["links.0.rate_mbps", "flows.0.rtt_ms", "flows.0.loss_rate", "flows.0.receiver.ack_every", "flows.1.sender"]
    u = np.linspace(0, 1, 1000, endpoint=False)
    rate, rtt, loss, every, sender = (leaf.draw(u) for leaf in distribution.leaves)
    assert rate.min() == 1 and rate.max() > 99 and np.median(rate) == pytest.approx(10, rel=0.01)
    assert rtt.min() == 20 and np.median(rtt) == pytest.approx(50, abs=0.1)
    assert [(loss == k).mean() for k in (0, 1)] == [0.5, 0.5]
    assert {float(x): (every == x).mean() for x in np.unique(every)} == pytest.approx({1: 1 / 3, 2: 1 / 3, 3: 1 / 3}, abs=0.01)
    assert np.unique(sender).tolist() == [0, 1, 2]
    assert distribution.largest.links[0].rate_Bps == 100 * 125_000


@given(st.floats(0.1, 100), st.floats(1, 10), st.booleans(), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_what_is_drawn_lies_in_the_range(low: float, factor: float, log: bool, u: list[float]) -> None:
    leaf = Leaf(("links", 0, "rate_mbps"), low, low * factor, log)
    drawn = leaf.draw(np.array(u))
    assert ((drawn >= low) & (drawn <= low * factor)).all()


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("links", 0, "rate_mbps"), [5, 1], "links.0.rate_mbps: range must be two finite numbers, the lower one first"),
        (("links", 0, "rate_mbps"), {"range": [0, 1], "log": True}, "above 0 with log: true"),
        (("links", 0, "rate_mbps"), {"range": [1, 2, 3]}, "two finite numbers"),
        (("links", 0, "rate_mbps"), {"range": [1, 2], "lg": True}, "Did you mean 'log'"),
        (("links", 0, "rate_mbps"), {"choice": []}, "1 to 256 values"),
        (("links", 0, "rate_mbps"), {"choice": [1], "log": True}, "a choice has 'choice'"),
        (("links", 0, "rate_mbps"), {"choice": ["fast"]}, "choice must hold numbers"),
        (("links", 0, "rate_mbps"), [-1, 1], "rate_mbps"),
        (("links", 0, "buffer_bdp"), [1e-6, 1], "buffer_bdp"),
        (("links", 0, "rate_mpbs"), [1, 2], "Did you mean"),
        (("flows", 0, "access_ms"), [1, 50], "flows.0.access_ms: 50.0 cannot be drawn|flows.0.access_ms"),
        (("flows", 0, "stop_s"), [0, 5], "stop_s"),
        (("flows", 0, "loss_rate"), [0, 1], "loss_rate"),
        (("flows", 0, "receiver", "ack_every"), [1, 2.5], "two whole numbers"),
        (("flows", 1, "sender"), [1, 2], "sender"),
        (("flows", 1, "sender"), {"choice": [1]}, "names of senders"),
        (("duration_s",), {"range": [1, 2]}, "ranges are allowed for numbers of links and flows only"),
        (("duration_s",), [1, 2], "duration_s"),
        (("seed",), {"choice": [1, 2]}, "ranges are allowed for numbers of links and flows only"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(place: tuple[Any, ...], value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as failure:
        read_distribution(changed(place, value), "mine.yaml")
    assert "\n" not in str(failure.value) and str(failure.value).startswith("mine.yaml: ")
