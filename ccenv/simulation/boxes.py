"""Jitter boxes that play periodic patterns: one scenario many times at once, each time against another pattern.

A pattern says how much of what it holds a box lets go, every 10 ms (``TICK_S``): a few values, each held for some ticks, over and
over. Any pattern is legal by construction: no packet is held longer than the box may, and none overtakes another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.engine.compiled.signals import ADVERSARY_SLOTS
from ccenv.engine.packet.batch.arrays import Beginnings
from ccenv.engine.packet.batch.batch import PacketBatch, needed_words
from ccenv.engine.packet.batch.form import Form, beginning
from ccenv.engine.packet.batch.policies import policy_deciders
from ccenv.engine.packet.batch.senders import SenderTable
from ccenv.engine.packet.layout import TICK_S
from ccenv.engine.packet.log import DEFAULT_ROWS, ordered
from ccenv.errors import EngineError, InputError
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.python_sender import bridge_of
from ccenv.network.sender import Sender
from ccenv.network.trace import Trace
from ccenv.simulation.packets import packet_trace
from ccenv.simulation.scenario import Scenario

EXTERNAL = "external"
PATTERN_VALUES = ADVERSARY_SLOTS - 2
PATTERN_STATE = np.dtype([("values", "<f8", (PATTERN_VALUES,)), ("length", "<f8"), ("hold_ticks", "<f8")])
SIZE = 64  # networks at once
MAX_EVENTS = 10**12  # of a run: its length is bounded
SLICE_S = 10.0  # simulated time per call of the kernel, so that a run can be interrupted


def init(state: Any, view: Any) -> None:
    """Keep the pattern."""


def play(state: Any, view: Any, move: Any) -> None:
    """Let go what the pattern says for this tick."""
    move.service = state.values[np.int64(view.step / state.hold_ticks) % np.int64(state.length)]


PATTERN = ScriptedAdversary("pattern", PATTERN_STATE, init, play)


@dataclass(frozen=True)
class Pattern:
    """A pattern of one box, or the same for all boxes of a network.

    Attributes:
        values: in [0, 1], at most PATTERN_VALUES.
        hold_ticks: ticks that each of them holds.
    """

    values: tuple[float, ...]
    hold_ticks: int = 1

    def words(self) -> np.ndarray:
        """Return the state of a box that plays it, (ADVERSARY_SLOTS,)."""
        out = np.zeros(ADVERSARY_SLOTS)
        out[: len(self.values)] = self.values
        out[PATTERN_VALUES:] = len(self.values), self.hold_ticks
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {"values": [round(value, 6) for value in self.values], "hold_s": self.hold_ticks * TICK_S}


KIND = Pattern((1.0,))
"""Everything goes at once."""


def pattern_rows(scenario: Scenario) -> list[int]:
    """Return which of a scenario's boxes with an adversary are ``external``."""
    named = [flow.jitter.adversary for flow in scenario.flows if flow.jitter.kind == "adversary"]
    return [row for row, name in enumerate(named) if name == EXTERNAL]


class BoxGame:
    """Runs of one scenario, each against its own pattern.

    Args:
        scenario: without ranges; boxes whose adversary is ``external`` play patterns.
        senders: of its flows.
        attacked: flows whose throughput counts.
        warmup_rtts: propagation RTTs of the slowest attacked flow before the measured window; the boxes play already.
        window_rtts: RTTs measured.
        adversaries: of the other boxes, by name; one named ``external`` plays in place of patterns.

    Attributes:
        scenario: as it is played: with the length of a run.
        runs: that were played.

    Raises:
        InputError: where there is no box to play, or a sender cannot run in batches.
    """

    def __init__(
        self,
        scenario: Scenario,
        senders: Sequence[Sender],
        attacked: Sequence[int],
        *,
        warmup_rtts: int = 60,
        window_rtts: int = 60,
        adversaries: Mapping[str, ScriptedAdversary] | None = None,
    ) -> None:
        if not any(flow.jitter.adversary == EXTERNAL for flow in scenario.flows):
            raise InputError(
                f"{scenario.name}: there is nothing to attack with: give a flow 'jitter: {{kind: adversary, adversary: external, "
                "max_ms: ...}'"
            )
        for sender in senders:
            if bridge_of(sender) is not None:
                raise InputError(f"sender {sender.name!r} is plain Python: it runs in simulations, not in batches of networks")
        first_s = max(scenario.flows[flow].start_s for flow in attacked)
        rtt_s = max(scenario.flows[flow].rtt_s for flow in attacked)
        self._begin_s = first_s + warmup_rtts * rtt_s
        self._end_s = self._begin_s + window_rtts * rtt_s
        self.scenario = scenario.model_copy(update={"duration_s": self._end_s})
        self._senders, self._attacked, self.runs = list(senders), list(attacked), 0
        self._adversaries = {EXTERNAL: PATTERN, **(adversaries or {})}
        self._rows = pattern_rows(scenario) if self._adversaries[EXTERNAL] is PATTERN else []
        self._link = min(scenario.route_of(attacked[0]), key=lambda link: scenario.links[link].rate_Bps)
        self._form, self._begins = self._network()
        self._words = needed_words(self._form, self._begins)
        self._batch: PacketBatch | None = None

    def _network(self) -> tuple[Form, Beginnings]:
        scenario, n = self.scenario, len(self.scenario.flows)
        deciders = policy_deciders(self._senders, scenario.flows)
        table = SenderTable(self._senders, [deciders.get(flow) for flow in range(n)])
        form = Form(scenario, table, deciders, self._adversaries, [flow for flow in range(n) if table.rows["step_at"][flow]])
        return form, beginning(scenario, range(n), float(scenario.seed), len(deciders))

    @property
    def steps_of_run(self) -> int:
        """Ticks of 10 ms times flows of one run: what it costs."""
        return max(1, math.ceil(self._end_s / TICK_S)) * len(self.scenario.flows)

    @property
    def ticks_of_rtt(self) -> int:
        """Ticks of the propagation RTT of the slowest attacked flow, at least 1."""
        return max(1, round(max(self.scenario.flows[flow].rtt_s for flow in self._attacked) / TICK_S))

    def play(self, patterns: Sequence[Pattern]) -> np.ndarray:
        """Return the utilisation under each pattern: what the attacked flows got acknowledged in the window, as a share.

        All networks draw the same random numbers.

        Raises:
            EngineError: if a sender leaves the positive numbers.
        """
        words = np.array([pattern.words() for pattern in patterns])
        return np.concatenate([self._play(words[first : first + SIZE]) for first in range(0, len(words), SIZE)])

    def _play(self, words: np.ndarray) -> np.ndarray:
        if self._batch is None:
            self._batch = PacketBatch(self._form, SIZE, self._words)
        batch, which = self._batch, np.arange(len(words))
        self._run(batch, which, words, self._begin_s)
        before, could = self._delivered(batch, which), self._capacity(batch, which, self._begin_s)
        self._run(batch, which, None, self._end_s)
        self.runs += len(words)
        capacity = self._capacity(batch, which, self._end_s) - could
        share: np.ndarray = (self._delivered(batch, which) - before) / capacity
        return share

    def _run(self, batch: PacketBatch, which: np.ndarray, words: np.ndarray | None, until_s: float) -> None:
        if words is not None:
            batch.begin(which, Beginnings(*(np.repeat(column, len(which), axis=0) for column in self._begins)))
            batch.box_words[np.ix_(which, self._rows)] = words[:, None]
        at_s = 0.0 if words is not None else self._begin_s
        while at_s < until_s:
            at_s = min(until_s, at_s + SLICE_S)
            batch.advance(np.full(batch.size, at_s), MAX_EVENTS, which)
        wrong = np.flatnonzero(batch.arrays.run["error"][which, 0])
        if len(wrong):
            run = batch.arrays.run[wrong[0], 0]
            raise EngineError(f"flow {run['error_flow']} or its adversary left the finite numbers at {run['now_s']:.6g} s")

    def _delivered(self, batch: PacketBatch, which: np.ndarray) -> np.ndarray:
        found: np.ndarray = batch.arrays.flows["delivered_bytes"][which][:, self._attacked].sum(axis=1)
        return found

    def _capacity(self, batch: PacketBatch, which: np.ndarray, now_s: float) -> np.ndarray:
        links = batch.arrays.links[which, self._link]
        found: np.ndarray = links["capacity_bytes"] + links["rate_Bps"] * (now_s - links["capacity_s"])
        return found

    def trace(self, pattern: Pattern) -> Trace:
        """Return the trace of a run against a pattern; not counted. Needs one drop-tail link."""
        batch = PacketBatch(self._form, 1, self._words, packet_log=DEFAULT_ROWS)
        self._run(batch, np.zeros(1, np.int64), pattern.words()[None], self._end_s)
        return packet_trace(self.scenario, ordered(batch.packet_log(0), self._end_s))
