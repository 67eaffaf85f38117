"""What moves the cases of kernel-v1 that are outside the bands (docs/live.md, Beside the packet engine).

``python tests/live/kernel_switches.py`` measures docs/data/kernel-switches.json again (minutes; user-mode Linux).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ccenv.base.files import json_bytes, write_atomic
from ccenv.live.scenario import LiveScenario
from ccenv.live.virtual import suite

FILE = Path(__file__).parents[2] / "docs" / "data" / "kernel-switches.json"
MERGED = {"aggregation": "interval", "aggregate_s": 1e-4, "merge": True}


def _quick(scenario: LiveScenario) -> LiveScenario:
    return scenario.model_copy(update={"quick_ack": True})


def _single(scenario: LiveScenario) -> LiveScenario:
    return scenario.model_copy(update={"packets_per_burst": 1})


def _with_receiver(scenario: LiveScenario, receiver: Mapping[str, Any]) -> LiveScenario:
    flows = tuple(
        flow.model_copy(update={"receiver": type(flow.receiver).model_validate({**receiver, "ack_every": 2})})
        for flow in scenario.flows
    )
    return scenario.model_copy(update={"flows": flows})


# Changes of a case, on both sides, by the words of the page.
CHANGES: dict[str, dict[str, Callable[[LiveScenario], LiveScenario]]] = {
    "small/bbr": {"packets_per_burst: 1": _single},
    "deep/vegas": {"packets_per_burst: 1": _single},
    "late/bbr+bbr": {"packets_per_burst: 1": _single},
    "attacked/vegas": {"packets_per_burst: 1": _single},
    "attacked/hybla": {"ACKs of one instant merged": lambda one: _with_receiver(one, MERGED)},
}


def play(case: str, change: Callable[[LiveScenario], LiveScenario], sides: tuple[str, ...] = suite.SIDES) -> dict[str, Any]:
    """Return the means of a case's seeds on these sides, changed."""
    scenarios = suite.load_cases()[case]
    return {side: suite.spread([suite.PLAYS[side](change(one)) for one in scenarios]) for side in sides}


def measured() -> dict[str, Any]:
    """Return the cases as they are, with every packet acknowledged, and with their own changes."""
    runs = suite.FORMAT.read(suite.SHIPPED)["runs"]["kernel"]
    found = {}
    for case, changes in CHANGES.items():
        shipped = suite.spread([runs[f"{case}/{one.seed}"] for one in suite.load_cases()[case]])
        as_is = {"kernel": shipped, **play(case, lambda one: one, ("engine",))}
        found[case] = {
            "": as_is,
            **{words: play(case, change) for words, change in ({"quick_ack: true": _quick} | changes).items()},
        }
        print(json.dumps({case: found[case]}), flush=True)
    return found


if __name__ == "__main__":
    write_atomic(FILE, json_bytes(measured()))
