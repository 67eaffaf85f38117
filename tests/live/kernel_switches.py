"""What moves the cases of kernel-v1 that are outside the bands (docs/live.md, Beside the packet engine).

``python tests/live/kernel_switches.py`` measures docs/data/kernel-switches.json again (minutes; user-mode Linux).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from ccenv.agents.classic.common import UNLIMITED_BYTES, Cca, extend_recovery, in_recovery, initial_window, start_window
from ccenv.base.files import json_bytes, write_atomic
from ccenv.base.kernels.decorator import kernel
from ccenv.live import comparison
from ccenv.live.scenario import LiveScenario
from ccenv.live.virtual import suite
from ccenv.simulation import simulate

FILE = Path(__file__).parents[2] / "docs" / "data" / "kernel-switches.json"
MERGED = {"aggregation": "interval", "aggregate_s": 1e-4, "merge": True}
MODULE = "module"  # not a change of the scenario: vegas with the slow start of tcp_vegas
# Changes of a case, on both sides, by the words of the page.
CHANGES: dict[str, dict[str, Callable[[LiveScenario], LiveScenario] | str]] = {
    "deep/bbr": {"packets_per_burst: 1": lambda one: one.model_copy(update={"packets_per_burst": 1})},
    "small/hybla": {f"buffer_packets: {size}": lambda one, size=size: _with_buffer(one, size) for size in (15, 17, 18)},
    "late/vegas+vegas": {"slow start of tcp_vegas": MODULE},
    "attacked/vegas": {},
    "attacked/hybla": {"ACKs of one instant merged": lambda one: _with_receiver(one, MERGED)},
}


def _quick(scenario: LiveScenario) -> LiveScenario:
    return scenario.model_copy(update={"quick_ack": True})


def _with_buffer(scenario: LiveScenario, packets: int) -> LiveScenario:
    link = scenario.links[0].model_copy(update={"buffer_bytes": packets * scenario.mss_bytes, "buffer_bdp": None})
    return scenario.model_copy(update={"links": (link,)})


def _with_receiver(scenario: LiveScenario, receiver: Mapping[str, Any]) -> LiveScenario:
    flows = tuple(
        flow.model_copy(update={"receiver": type(flow.receiver).model_validate({**receiver, "ack_every": 2})})
        for flow in scenario.flows
    )
    return scenario.model_copy(update={"flows": flows})


vegas_module = Cca(
    "vegas_module",
    __name__,
    parameters=(initial_window(),),
    fields=("ssthresh_bytes", "recover_bytes", "round_min_rtt_s", "samples"),
)


def init(state: Any) -> None:
    start_window(state)


def on_ack(state: Any, ack: Any) -> None:
    """Double in every round until more than one segment waits, as tcp_vegas does; then as ``vegas:linux_module=1``."""
    if in_recovery(state, ack):
        state.samples = 0.0
        return
    state.round_min_rtt_s = ack.rtt_s if state.samples == 0.0 else min(state.round_min_rtt_s, ack.rtt_s)
    state.samples += 1.0
    slow = state.cwnd_bytes < state.ssthresh_bytes
    waiting_mss = -1.0
    if ack.round_start > 0.0:
        if state.samples > 2.0:
            waiting_mss = _end_round(state, ack.min_rtt_s, slow)
        state.samples = 0.0
    if slow and waiting_mss <= 1.0:
        state.cwnd_bytes = min(state.cwnd_bytes + ack.acked_bytes, state.ssthresh_bytes)


@kernel
def _end_round(state: Any, base_s: float, slow: bool) -> float:
    """Return the segments waiting; move the window by one if it does not double."""
    mss_bytes = state.mss_bytes
    window_mss = math.floor(state.cwnd_bytes / mss_bytes)
    waiting_mss = math.floor(window_mss * (state.round_min_rtt_s / base_s - 1.0))
    if slow and waiting_mss > 1.0:
        state.cwnd_bytes = mss_bytes * min(window_mss, math.floor(window_mss * base_s / state.round_min_rtt_s) + 1.0)
    elif not slow and waiting_mss > 4.0:
        state.cwnd_bytes -= mss_bytes
    elif not slow and waiting_mss < 2.0:
        state.cwnd_bytes += mss_bytes
    state.cwnd_bytes = max(state.cwnd_bytes, 2.0 * mss_bytes)
    if waiting_mss > 1.0:
        state.ssthresh_bytes = min(state.ssthresh_bytes, state.cwnd_bytes - mss_bytes)
    state.ssthresh_bytes = max(state.ssthresh_bytes, 0.75 * state.cwnd_bytes)
    return float(waiting_mss)


def on_loss(state: Any, loss: Any) -> None:
    if loss.new_episode > 0.0:
        state.ssthresh_bytes = state.cwnd_bytes = max(0.5 * state.cwnd_bytes, 2.0 * state.mss_bytes)
    if loss.timeout > 0.0:
        state.cwnd_bytes = 2.0 * state.mss_bytes
        state.ssthresh_bytes = UNLIMITED_BYTES
    extend_recovery(state, loss)


def play(case: str, change: Callable[[LiveScenario], LiveScenario] | str, sides: tuple[str, ...] = suite.SIDES) -> dict[str, Any]:
    """Return the means of a case's seeds on these sides, changed."""
    scenarios = suite.load_cases()[case]
    if change == MODULE:
        known = comparison.COUNTERPARTS | {"vegas": "vegas_module"}
        further = partial(simulate, senders={"vegas_module": vegas_module()})
        with mock.patch.multiple(comparison, COUNTERPARTS=known, simulate=further):
            return {"engine": suite.spread([suite.play_engine(one) for one in scenarios])}
    assert callable(change)
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
