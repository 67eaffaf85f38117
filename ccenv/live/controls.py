"""Runs that say what a live result is to be compared with."""

from __future__ import annotations

from typing import Any

from ccenv.live.scenario import LiveScenario, read_live_scenario


def controls_of(scenario: LiveScenario) -> list[tuple[str, LiveScenario]]:
    """Return the scenario without jitter, and for two flows with their senders swapped, each with its name."""
    data = scenario.model_dump()
    out = [("without jitter", _changed(data, model="cbr_delay", flows=[{**flow, "jitter": {}} for flow in data["flows"]]))]
    if len(scenario.flows) == 2:
        first, second = data["flows"]
        keys = ("name", "sender")
        swapped = [
            {**first, **{key: second[key] for key in keys}},
            {**second, **{key: first[key] for key in keys}},
        ]
        out.append(("roles swapped", _changed(data, flows=swapped)))
    return out


def _changed(data: dict[str, Any], **new: Any) -> LiveScenario:
    return read_live_scenario({**data, **new}, data["name"])
