"""Batches of packet networks and their initial states, drawn from a scenario distribution by (seed, environment, episode)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ccenv.agents.python_sender import find_bridge
from ccenv.agents.sender import Sender
from ccenv.base.errors import InputError
from ccenv.engine.compiled.calls import extras_of
from ccenv.engine.packet.batch.batch import PacketBatch, needed_words
from ccenv.engine.packet.batch.form import Form, beginning, trace_fields, trace_names
from ccenv.engine.packet.batch.players import Beginnings, SenderTable, policy_deciders
from ccenv.engine.packet.generators import PEAK, parameter_field
from ccenv.engine.packet.layout import AGGREGATIONS, CHANGE_LINK, CHANGE_RATE, CHANGE_TIME, JITTERS
from ccenv.engine.packet.monitor import Decider
from ccenv.engine.packet.spec import WorkloadSpec
from ccenv.envs.curve.distribution import draw_numbers
from ccenv.envs.curve.settings import EXTERNAL
from ccenv.network.adversary import ScriptedAdversary
from ccenv.simulation.ranges import Leaf, Place, ScenarioDistribution, inside_units
from ccenv.simulation.scenario import Scenario

# Numbers of an episode before those of its ranges.
_KEY, _STAGGER, _START = range(3)
_FIRST_LEAF = 4
# Keys of a scenario -> field of a struct.
_LINK_FIELDS = {
    **{"red.min_packets": "red_min_packets", "red.max_packets": "red_max_packets", "red.weight": "red_weight"},
    **{"red.max_probability": "red_max_probability", "codel.target_s": "codel_target_s"},
    **{"codel.interval_s": "codel_interval_s", "rate_Bps": "rate_Bps", "delay_s": "delay_s", "buffer_bytes": "buffer_bytes"},
    "threshold_packets": "threshold_packets",
    "generator.length_s": "trace_length_s",
}
_KINDS = {"kind": ("jitter_kind", JITTERS), "aggregation": ("ack_aggregation", AGGREGATIONS)}
_FLOW_FIELDS = {
    **{name: name for name in ("access_s", "start_s", "stop_s", "loss_rate", "told_rtt_s")},
    **{"rtt_s": "path_rtt_s", "jitter.max_s": "jitter_s", "jitter.at_s": "jitter_at_s", "jitter.every_s": "jitter_interval_s"},
    **{"jitter.interval_s": "jitter_interval_s", "receiver.ack_every": "ack_every"},
    **{"receiver.ack_timeout_s": "ack_timeout_s", "receiver.aggregate_s": "ack_aggregate_s"},
    **{f"loss_bursts.{name}": f"burst_{name}" for name in ("enter", "leave", "loss", "loss_between")},
    **{f"ack_path.loss_bursts.{name}": f"ack_burst_{name}" for name in ("enter", "leave", "loss", "loss_between")},
    **{"reordering.share": "late_share", "reordering.extra_s": "late_s"},
    **{"ack_path.loss_rate": "ack_loss_rate", "ack_path.ack_bytes": "ack_bytes"},
}


@dataclass(frozen=True)
class Draws:
    """Drawn episodes.

    Attributes:
        beginnings: one row per episode.
        stagger: (n,) in [0, 1): position at which a staggered episode begins.
        values: by place, the value of each range in the units of the file (of a choice its index).
    """

    beginnings: Beginnings
    stagger: np.ndarray
    values: dict[Place, np.ndarray]

    def scenario(self, distribution: ScenarioDistribution, row: int) -> Scenario:
        """Return an episode as a scenario."""
        numbers = {}
        for leaf in distribution.leaves:
            value = self.values[leaf.place][row]
            numbers[leaf.place] = leaf.choices[int(value)] if leaf.choices else float(value)
        return distribution.at(numbers)


class EpisodeSource:
    """Draws the initial states of episodes.

    Args:
        sender_rows: sender's name -> row in the table of senders.
        controlled: flows whose initial rate ``start_share`` sets.
        n_monitors: monitored flows; the controlled ones come first.
        start_share: log-uniform range of a controlled flow's initial rate, as a share of its slowest link's; None: the default.
    """

    def __init__(
        self,
        distribution: ScenarioDistribution,
        sender_rows: dict[str, int],
        controlled: Sequence[int],
        n_monitors: int,
        start_share: tuple[float, float] | None,
    ) -> None:
        self.distribution, self._start_share = distribution, start_share
        if any(flow.arrivals for scenario in distribution.corners for flow in scenario.flows):
            raise InputError(f"{distribution.where}: flows that come and go run in simulations and suites, not in environments")
        self.traces = _traces(distribution)
        self._rows, self._controlled, self._n_monitors = sender_rows, list(controlled), n_monitors
        base = distribution.largest
        self._base = self.one(base)
        self._routes = [base.route_of(flow) for flow in range(len(base.flows))]
        # Rows of rate steps in the table of changes, before it is sorted by time.
        self._steps = [(i, j) for i, link in enumerate(base.links) for j in range(len(link.rate_steps))]
        steps = [base.links[i].rate_steps[j] for i, j in self._steps]
        self._changes = np.array(
            [(s.time_s, float(i), s.rate_Bps) for (i, _), s in zip(self._steps, steps, strict=True)], np.float64
        ).reshape(-1, 3)

    def one(self, scenario: Scenario) -> Beginnings:
        """Return the initial state of a network of this scenario, as one row."""
        rows = [self._rows[flow.sender] for flow in scenario.flows]
        return beginning(scenario, rows, float(scenario.seed), self._n_monitors, self.traces)

    def corners(self) -> Beginnings:
        """Return the initial states of networks at the extremes of the distribution, one row each."""
        parts = [self.one(scenario) for scenario in self.distribution.corners]
        return Beginnings(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def draw(self, seeds: np.ndarray, lanes: np.ndarray, episodes: np.ndarray, within: np.ndarray | None = None) -> Draws:
        """Draw episodes as a function of the three keys (``PathSource.draw``) and the part of the ranges.

        ``within`` (n, leaves, 2) is the part of each range that is drawn from, as ends in [0, 1]; None: all of it.
        """
        n, leaves = len(seeds), self.distribution.leaves
        u = draw_numbers(seeds, lanes, episodes, _FIRST_LEAF + len(leaves))
        if within is not None:
            first, last = within[:, :, 0].T, within[:, :, 1].T
            u[_FIRST_LEAF:] = first + u[_FIRST_LEAF:] * (last - first)
        base = self._base
        links, flows = np.repeat(base.links, n, axis=0), np.repeat(base.flows, n, axis=0)
        changes = np.repeat(self._changes[None], n, axis=0)
        values: dict[Place, np.ndarray] = {}
        numbers_at: dict[Place, np.ndarray] = {}
        for leaf, numbers in zip(leaves, u[_FIRST_LEAF:], strict=True):
            drawn = leaf.draw(numbers)
            if leaf.like is not None:
                of_other = numbers_at.get(leaf.like)
                drawn = drawn * (self.distribution.number_at(leaf.like) if of_other is None else of_other)
            values[leaf.place] = drawn
            chosen = numbers_at[leaf.place] = np.array(leaf.choices)[drawn] if leaf.choices else drawn
            if leaf.place[0] == "links":
                self._put_link(leaf, chosen, links, changes)
            else:
                self._put_flow(leaf, chosen, flows)
        self._finish(leaves, values, links, flows)
        order = np.argsort(changes[:, :, CHANGE_TIME], axis=1, kind="stable")
        changes = np.take_along_axis(changes, order[:, :, None], axis=1)
        starts = np.zeros((n, max(1, self._n_monitors)))
        if self._start_share is not None:
            low, high = self._start_share
            share = low * (high / low) ** u[_START]
            for column, flow in enumerate(self._controlled):
                starts[:, column] = share * links["rate_Bps"][:, self._routes[flow]].min(axis=1)
        mss_bytes = np.full(n, base.mss_bytes[0])
        beginnings = Beginnings(links, flows, changes, mss_bytes, np.floor(u[_KEY] * 2.0**53), starts)
        return Draws(beginnings, u[_STAGGER], values)

    def _put_link(self, leaf: Leaf, numbers: np.ndarray, links: np.ndarray, changes: np.ndarray) -> None:
        index, keys = int(leaf.place[1]), leaf.place[2:]
        name, factor = inside_units(str(keys[-1]))
        if name == "trace":
            for field in trace_fields(self.traces[0], self.traces):
                of_trace = {trace: trace_fields(trace, self.traces)[field] for trace in self.traces}
                links[field][:, index] = [of_trace[trace] for trace in numbers.tolist()]
        elif keys[0] == "generator":
            self._put_generator(leaf, name, numbers * factor, links)
        elif keys[0] == "rate_steps":
            row = self._steps.index((index, int(keys[1])))
            changes[:, row, CHANGE_TIME if name == "time_s" else CHANGE_RATE] = numbers * factor
            changes[:, row, CHANGE_LINK] = index
        elif name not in ("buffer_packets", "buffer_bdp"):  # those two depend on others: ``_finish``
            links[_field(_LINK_FIELDS, (*keys[:-1], name), leaf)][:, index] = numbers * factor

    def _put_generator(self, leaf: Leaf, name: str, numbers: np.ndarray, links: np.ndarray) -> None:
        index = int(leaf.place[1])
        generator = self.distribution.largest.links[index].generator
        field = parameter_field(generator.kind, name) if generator is not None else ""
        if name == "mean_Bps":
            links["generator_mean_Bps"][:, index] = links["rate_Bps"][:, index] = numbers
            links["peak_Bps"][:, index] = PEAK * numbers
        else:
            links[field or _field(_LINK_FIELDS, ("generator", name), leaf)][:, index] = numbers

    def _put_flow(self, leaf: Leaf, numbers: np.ndarray, flows: np.ndarray) -> None:
        index, keys = int(leaf.place[1]), leaf.place[2:]
        name, factor = inside_units(str(keys[-1]))
        if name == "sender":
            flows["sender_index"][:, index] = np.array([self._rows[str(sender)] for sender in numbers.tolist()])
        elif name in _KINDS:
            kind_field, codes = _KINDS[name]
            flows[kind_field][:, index] = [codes[str(kind)] for kind in numbers.tolist()]
        elif keys[0] == "workload":
            field = WorkloadSpec.needed(self.distribution.largest.flows[index].workload.kind).index(name)
            flows[("workload_a", "workload_b")[field]][:, index] = numbers * factor
        else:
            flows[_field(_FLOW_FIELDS, (*keys[:-1], name), leaf)][:, index] = numbers * factor

    def _finish(self, leaves: Sequence[Leaf], values: dict[Place, np.ndarray], links: np.ndarray, flows: np.ndarray) -> None:
        """Set values that depend on others: known Rms, buffers in packets and in BDP."""
        base = self.distribution.largest
        for index, flow in enumerate(base.flows):
            if flow.told_rtt_s is None:
                flows["told_rtt_s"][:, index] = flows["path_rtt_s"][:, index]
        buffers, least = self.distribution.given_buffers(), self.distribution.least_buffers()
        for index in range(len(base.links)):
            unit, fixed = buffers[index]
            place: Place = ("links", index, unit)
            number = np.full(len(links), fixed)
            for leaf in leaves:
                if leaf.place == place:
                    number = np.array(leaf.choices)[values[place]] if leaf.choices else values[place]
            if unit == "buffer_bdp":
                bdp = number * links["rate_Bps"][:, index] * flows["path_rtt_s"].min(axis=1)
                links["buffer_bytes"][:, index] = np.maximum(bdp, least[index] * base.mss_bytes)
            elif unit == "buffer_packets":
                links["buffer_bytes"][:, index] = number * base.mss_bytes


def _traces(distribution: ScenarioDistribution) -> tuple[str, ...]:
    """Return the names of all traces that links of a distribution may have."""
    names = [name for scenario in distribution.corners for name in trace_names(scenario)]
    return tuple(dict.fromkeys(names))


def _field(fields: dict[str, str], keys: Sequence[str | int], leaf: Leaf) -> str:
    name = ".".join(map(str, keys))
    if name not in fields:
        raise InputError(f"{leaf.name}: this number cannot be a range")
    return fields[name]


def build(
    num_envs: int,
    distribution: ScenarioDistribution,
    senders: Mapping[str, Sender],
    deciders: Mapping[int, Decider],
    adversaries: Mapping[str, ScriptedAdversary],
    start_rate_share: tuple[float, float] | None,
    threads: int,
    *,
    packet_log: int,
) -> tuple[EpisodeSource, PacketBatch]:
    """Return the source of episodes and the networks in the engine, with arguments as of ``PacketCore``.

    ``packet_log`` is the number of rows of each network's packet log; 0: none.

    Raises:
        InputError: for senders that batches cannot run, or that cannot be monitored.
    """
    network = distribution.largest
    names = list(senders)
    for name, sender in senders.items():
        if find_bridge(sender) is not None or extras_of([sender]):
            raise InputError(f"sender {name!r} is plain Python: it runs in simulations, not in batches of environments")
    choices: dict[int, tuple[str, ...]] = {
        int(leaf.place[1]): leaf.choices for leaf in distribution.leaves if leaf.place[-1] == "sender"
    }
    policies = policy_deciders([senders[flow.sender] for flow in network.flows], network.flows)
    if both := sorted(set(policies) & set(deciders)):
        raise InputError(f"flow {both[0]}: a policy that sees more than beliefs cannot be watched as well")
    for flow, options in choices.items():
        if flow in policies or any(policy_deciders([senders[name]], network.flows[flow : flow + 1]) for name in options):
            raise InputError(f"flow {flow}: a policy that sees more than beliefs cannot be one of several senders")
    watching: dict[str, Decider] = {network.flows[flow].sender: decider for flow, decider in policies.items()}
    watching[EXTERNAL] = next(iter(deciders.values()))
    table = SenderTable(list(senders.values()), [watching.get(name) for name in names])
    rows = {name: row for row, name in enumerate(names)}
    gridded = [
        index
        for index, flow in enumerate(network.flows)
        if any(table.rows["step_at"][rows[name]] for name in choices.get(index, (flow.sender,)))
    ]
    monitors = len({**policies, **deciders})
    source = EpisodeSource(distribution, rows, sorted(deciders), monitors, start_rate_share)
    form = Form(network, table, {**policies, **deciders}, adversaries, gridded, source.traces)
    needed_words(form, source.corners())  # refuses what cannot be built
    return source, PacketBatch(form, num_envs, 0, threads=threads, packet_log=packet_log)
