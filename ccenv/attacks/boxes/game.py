"""Attacks by delay elements: many copies of one scenario at once, each with its own pattern or policy.

Every 10 ms (``TICK_S``) a player (``boxes.players``), such as a pattern or a policy, sets the share of its packets that a delay
element releases. Any choice is legal by construction: no packet is held longer than allowed, and none overtakes another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ccenv.agents.python_sender import find_bridge
from ccenv.agents.sender import Sender
from ccenv.attacks.boxes.players import PATTERN, PHASES, POLICY, BoxPlayer
from ccenv.attacks.goals import PACKET_GOALS, UTILISATION, Counts, goal_of, utilisation
from ccenv.base.errors import EngineError, InputError
from ccenv.engine.packet.batch.batch import PacketBatch, needed_words
from ccenv.engine.packet.batch.form import Form, beginning
from ccenv.engine.packet.batch.players import Beginnings, SenderTable, policy_deciders
from ccenv.engine.packet.engine import whole_segments
from ccenv.engine.packet.layout import DEFAULT_ROWS, TICK_S, ordered
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.trace import Trace
from ccenv.simulation.packet_trace import packet_trace
from ccenv.simulation.run import BEFORE_TICK_S, Stage, with_applications
from ccenv.simulation.scenario import Scenario

COUNTED = {
    "delivered": "delivered_bytes",
    "sent": "sent_bytes",
    "lost": "found_lost_bytes",
    "rtt_sum": "rtt_sum_s",
    "delay_weight": "rtt_samples",
}
"""Counts of attacked flows, and the engine's fields whose growth they are."""
EXTERNAL = "external"
SIZE = 64  # networks at once
MAX_EVENTS = 10**12  # of a run: its length is bounded
SLICE_S = 10.0  # simulated time per call of the kernel, so that a run can be interrupted


def pattern_rows(scenario: Scenario) -> np.ndarray:
    """Return the indices (int64) of a scenario's ``external`` delay elements among those with an adversary."""
    named = [flow.jitter.adversary for flow in scenario.flows if flow.jitter.kind == "adversary"]
    return np.array([row for row, name in enumerate(named) if name == EXTERNAL], np.int64)


class BoxGame:
    """Runs of one scenario, each against its own player of the delay elements.

    Raises UnknownNameError for an unknown goal; InputError without a delay element to attack with, if a goal needs more flows, or
    a sender cannot run in batches.

    Args:
        scenario: without ranges; delay elements whose adversary is ``external`` attack.
        senders: of its flows.
        attacked: flows whose throughput counts.
        warmup_rtts: propagation RTTs of the slowest attacked flow before the measured window; the attack has already begun.
        window_rtts: RTTs measured.
        adversaries: of the other delay elements, by name.
        goal: a name of ``ccenv.attacks.goals.PACKET_GOALS``.
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
        goal: str = UTILISATION,
    ) -> None:
        self.goal = goal_of(goal, PACKET_GOALS)
        if len(scenario.flows) < self.goal.least_flows:
            raise InputError(
                f"goal {goal!r} needs at least {self.goal.least_flows} flows; {scenario.name} has {len(scenario.flows)}"
            )
        if not any(flow.jitter.adversary == EXTERNAL for flow in scenario.flows):
            raise InputError(
                f"{scenario.name}: there is nothing to attack with: give a flow 'jitter: {{kind: adversary, adversary: external, "
                "max_ms: ...}'"
            )
        kinds = {application.kind for application in scenario.applications}
        if self.goal.application is not None and self.goal.application not in kinds:
            raise InputError(f"goal {goal!r} is about a {self.goal.application}; {scenario.name} has none under applications")
        for sender in senders:
            if find_bridge(sender) is not None:
                raise InputError(f"sender {sender.name!r} is plain Python: it runs in simulations, not in batches of networks")
        first_s = max(scenario.flows[flow].start_s for flow in attacked)
        rtt_s = max(scenario.flows[flow].rtt_s for flow in attacked)
        self._begin_s = first_s + warmup_rtts * rtt_s
        self.end_s = self._begin_s + window_rtts * rtt_s  # length of a run
        self.scenario = with_applications(scenario.model_copy(update={"duration_s": self.end_s}))  # with the length of a run
        self._stages: list[Stage] = []
        self.flow_steps = 0  # cost of the runs so far
        self.report: Callable[[int], None] | None = None
        self._senders, self._attacked = list(senders), list(attacked)
        self._others = dict(adversaries or {})
        self._link = min(scenario.route_of(attacked[0]), key=lambda link: scenario.links[link].rate_Bps)
        self._set_up(PATTERN)

    def _set_up(self, adversary: ScriptedAdversary) -> None:
        """Build the network in which an adversary plays the delay elements that attack."""
        scenario, n = self.scenario, len(self.scenario.flows)
        deciders = policy_deciders(self._senders, scenario.flows)
        table = SenderTable(self._senders, [deciders.get(flow) for flow in range(n)])
        gridded = [flow for flow in range(n) if table.rows["step_at"][flow]]
        self._form = Form(scenario, table, deciders, {EXTERNAL: adversary, **self._others}, gridded)
        self._begins = beginning(scenario, range(n), float(scenario.seed), len(deciders))
        self._words = needed_words(self._form, self._begins)
        self._plays = adversary
        self._rows = pattern_rows(scenario)[: None if adversary in (PATTERN, PHASES, POLICY) else 0]
        self._batch: PacketBatch | None = None

    @property
    def ticks_of_run(self) -> int:
        """Ticks of 10 ms of one run."""
        return max(1, math.ceil(self.end_s / TICK_S))

    @property
    def run_flow_steps(self) -> int:
        """Cost of one run: ticks of 10 ms times flows."""
        return self.ticks_of_run * len(self.scenario.flows)

    @property
    def ticks_of_rtt(self) -> int:
        """Ticks of the propagation RTT of the slowest attacked flow, at least 1."""
        return max(1, round(max(self.scenario.flows[flow].rtt_s for flow in self._attacked) / TICK_S))

    def play(self, players: Sequence[BoxPlayer]) -> np.ndarray:
        """Return the goal's outcome under each player of one adversary, lower is worse for the sender.

        All networks draw the same random numbers. Raises EngineError if a sender leaves the positive numbers.
        """
        return self.goal.outcome(self._counts(players))

    def measure(self, player: BoxPlayer) -> tuple[float, float]:
        """Return the utilisation under a player, and the goal's own value."""
        counts = self._counts([player])
        return float(utilisation(counts)[0]), float(self.goal.value(counts)[0])

    def _counts(self, players: Sequence[BoxPlayer]) -> Counts:
        if self._plays is not players[0].adversary:
            self._set_up(players[0].adversary)
        words = np.array([player.words() for player in players])
        parts = [self._play(words[first : first + SIZE]) for first in range(0, len(words), SIZE)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _play(self, words: np.ndarray) -> dict[str, np.ndarray]:
        if self._batch is None:
            self._batch = PacketBatch(self._form, SIZE, self._words)
        batch, networks = self._batch, np.arange(len(words))
        self._run(batch, networks, words, self._begin_s)
        before = self._totals(batch, networks, self._begin_s)
        self._run(batch, networks, None, self.end_s)
        self.flow_steps += len(words) * self.run_flow_steps
        if self.report is not None:
            self.report(self.flow_steps)
        after = self._totals(batch, networks, self.end_s)
        counts = {name: after[name] - before[name] for name in after}
        path_rtt_s = batch.arrays.flows["path_rtt_s"][networks][:, self._attacked]
        counts["delay_sum"] = counts.pop("rtt_sum") - path_rtt_s * counts["delay_weight"]
        if self.goal.application is None:
            return counts
        return counts | {self.goal.metric: np.array([stage.worth(self.goal.metric, self.end_s) for stage in self._stages])}

    def _run(self, batch: PacketBatch, networks: np.ndarray, words: np.ndarray | None, until_s: float) -> None:
        if words is not None:
            batch.begin(networks, Beginnings(*(np.repeat(column, len(networks), axis=0) for column in self._begins)))
            batch.box_words[np.ix_(networks, self._rows)] = words[:, None]
            self._stages = [Stage(self.scenario) for _ in networks]
        at_s = 0.0 if words is not None else self._begin_s
        while at_s < until_s:
            at_s = min(until_s, at_s + SLICE_S)
            self._play_applications(batch, networks, at_s)
            batch.advance(np.full(batch.size, at_s), MAX_EVENTS, networks)
        wrong = np.flatnonzero(batch.arrays.run["error"][networks, 0])
        if len(wrong):
            run = batch.arrays.run[wrong[0], 0]
            raise EngineError(f"flow {run['error_flow']} or its adversary left the finite numbers at {run['now_s']:.6g} s")

    def _play_applications(self, batch: PacketBatch, networks: np.ndarray, until_s: float) -> None:
        """Advance tick by tick up to a time, each network with the requests of its applications."""
        flows = batch.arrays.flows
        for now_s in self._stages[0].ticks(until_s):
            batch.advance(np.full(batch.size, now_s - BEFORE_TICK_S), MAX_EVENTS, networks)
            delivered_bytes = flows["goodput_bytes"][networks]
            for network, stage, delivered in zip(networks, self._stages, delivered_bytes, strict=True):
                for flow, more_bytes in stage.step(now_s, delivered):
                    segments = whole_segments(more_bytes, self.scenario.mss_of(flow))
                    flows["app_segments"][network, flow] += segments

    def _totals(self, batch: PacketBatch, networks: np.ndarray, now_s: float) -> dict[str, np.ndarray]:
        flows = batch.arrays.flows
        counts = {name: flows[field][networks][:, self._attacked].copy() for name, field in COUNTED.items()}
        return counts | {
            "all_delivered": flows["delivered_bytes"][networks].copy(),
            "capacity": self._capacity(batch, networks, now_s),
        }

    def _capacity(self, batch: PacketBatch, networks: np.ndarray, now_s: float) -> np.ndarray:
        links = batch.arrays.links[networks, self._link]
        capacity_bytes: np.ndarray = links["capacity_bytes"] + links["rate_Bps"] * (now_s - links["capacity_s"])
        return capacity_bytes

    def trace(self, player: BoxPlayer) -> Trace:
        """Return the trace of a run against a player, which is not counted. Needs one drop-tail link."""
        if self._plays is not player.adversary:
            self._set_up(player.adversary)
        batch = PacketBatch(self._form, 1, self._words, packet_log=DEFAULT_ROWS)
        self._run(batch, np.zeros(1, np.int64), player.words()[None], self.end_s)
        return packet_trace(self.scenario, ordered(batch.packet_log(0), self.end_s))
