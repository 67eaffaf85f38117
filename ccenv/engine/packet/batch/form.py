"""From the description of a network to records: what all networks of a batch share, what one begins with, slots of transfers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.agents.callbacks import ADVERSARY_SLOTS, MOVE, VIEW
from ccenv.agents.sender import ClassicSender, Sender
from ccenv.base.errors import InputError
from ccenv.engine.compiled.calls import address_of
from ccenv.engine.curve.players import initial_words
from ccenv.engine.packet.arrivals import ARRIVAL_WIDTH, COME_S, DONE_S, POOL, SEGMENTS
from ccenv.engine.packet.batch.players import Beginnings, SenderTable, Tables
from ccenv.engine.packet.generators import generator_record
from ccenv.engine.packet.layout import (
    ACK_HOP,
    AGGREGATIONS,
    BOX_DTYPE,
    CODEPOINTS,
    DISCIPLINES,
    FLOW_DTYPE,
    HOPS,
    JITTERS,
    LATE_HOP,
    LINK_DTYPE,
    PIPE_DTYPE,
    RECOVERIES,
    RUN_DTYPE,
    STEADY,
    TRACE_KINDS,
    WORKLOADS,
)
from ccenv.engine.packet.monitor import MONITOR_DTYPE, Decider
from ccenv.engine.packet.sources import sources_of
from ccenv.engine.packet.spec import FlowSpec, LinkSpec, LossBursts, NetworkSpec
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.links import load_trace

MAX_BYTES = 2 << 30  # of the rings of a run with transfers that come and go


@dataclass(frozen=True, eq=False)
class Slots:
    """Transfers of a run and their slots."""

    network: NetworkSpec  # as it runs: every flow with arrivals stands as often as it has slots
    owners: np.ndarray  # (flows of the run,) the flow of the given network that each belongs to
    pooled: np.ndarray  # (flows of the run,) its pool, -1 for others
    # (n, ARRIVAL_WIDTH) in the order of time; the kernel writes into it when each is done; infinite: no slot
    arrivals: np.ndarray
    transfer_bytes: np.ndarray  # (n,) their sizes
    pools: np.ndarray  # begin of each pool in it, then the pools: how many slots are free, and which

    def _rows(self, flow: int) -> np.ndarray:
        pools = sorted({int(pool) for pool in self.pooled[self.owners == flow] if pool >= 0})
        mine: np.ndarray = np.isin(self.arrivals[:, POOL], pools)
        return mine

    def transfers(self, flow: int) -> np.ndarray:
        """Return the transfers of a flow of the given network: (n, 3) bytes, begin and end in seconds; NaN: not done."""
        mine = self._rows(flow)
        ends_s = self.arrivals[mine, DONE_S]
        return np.column_stack(
            [self.transfer_bytes[mine], self.arrivals[mine, COME_S], np.where(np.isinf(ends_s), np.nan, ends_s)]
        )

    def turned_away(self, flow: int) -> int:
        """Return how many transfers of a flow have found no free slot."""
        return int(np.isinf(self.arrivals[self._rows(flow), DONE_S]).sum())

    def summed(self, log: np.ndarray) -> np.ndarray:
        """Return a log of all flows of the run, (rows, flows), as one of the given flows: slots added, of RTTs the largest."""
        first = [int(np.argmax(self.owners == flow)) for flow in range(int(self.owners.max()) + 1)]
        out = log[:, first].copy()
        for flow in sorted({int(owner) for owner in self.owners[self.pooled >= 0]}):
            slot_logs = log[:, self.owners == flow]
            for name in log.dtype.names or ():
                out[name][:, flow] = slot_logs[name].max(axis=1) if name == "rtt_s" else _finite(slot_logs[name]).sum(axis=1)
        return out


def _finite(values: np.ndarray) -> np.ndarray:
    """Return values with 0 for those of slots that have no rate or window."""
    finite: np.ndarray = np.where(np.isfinite(values), values, 0.0)
    return finite


def laid_out(network: NetworkSpec, seed: int) -> Slots:
    """Return the slots of a network with arrivals; the seed keys times and sizes."""
    flows, owners, pooled, parts, sizes = [], [], [], [], []
    begins: list[int] = []
    pools: list[float] = []
    n_pools = sum(flow.arrivals is not None for flow in network.flows)
    for index, flow in enumerate(network.flows):
        arrivals = flow.arrivals
        if arrivals is None:
            flows.append(flow)
            owners.append(index)
            pooled.append(-1)
            continue
        slowest = min(network.links[link].rate_Bps for link in network.route_of(index))
        times_s, size_bytes = arrivals.drawn(seed, index, flow.start_s, slowest)
        rows = np.full((len(times_s), ARRIVAL_WIDTH), np.nan)
        rows[:, COME_S], rows[:, POOL] = times_s, len(begins)
        rows[:, SEGMENTS] = np.maximum(1.0, np.ceil(size_bytes / network.mss_of(index)))
        parts.append(rows)
        sizes.append(size_bytes)
        first = len(flows)
        begins.append(n_pools + len(pools))
        pools += [float(arrivals.slots), *map(float, reversed(range(first, first + arrivals.slots)))]
        flows += [flow.model_copy(update={"arrivals": None})] * arrivals.slots
        owners += [index] * arrivals.slots
        pooled += [len(begins) - 1] * arrivals.slots
    table, transfer_bytes = np.concatenate(parts), np.concatenate(sizes)
    order = np.argsort(table[:, COME_S], kind="stable")
    return Slots(
        network.model_copy(update={"flows": tuple(flows)}),
        np.array(owners),
        np.array(pooled),
        np.ascontiguousarray(table[order]),
        transfer_bytes[order],
        np.array([*map(float, begins), *pools]),
    )


def check_slots(slots: Slots, senders: Sequence[Sender], words: int) -> None:
    """Raise InputError for a sender of transfers that is no plain CCA, or a run beyond memory."""
    for flow in sorted({int(owner) for owner in slots.owners[slots.pooled >= 0]}):
        if not isinstance(senders[flow], ClassicSender):
            raise InputError(f"flow {flow}: transfers that come and go need a classic CCA, not {senders[flow].name!r}")
    if 8 * words > MAX_BYTES:
        count = len(slots.owners)
        raise InputError(
            f"{count} flows at once need {8 * words / 2**30:.3g} GiB; at most {MAX_BYTES / 2**30:g}: take fewer slots, "
            f"{math.floor(count * MAX_BYTES / (8 * words))} at most, or smaller buffers"
        )


class Form:
    """What the networks of a batch have in common: links, flows, routes, who decides, and what plays their jitter boxes.

    ``network`` is one of them; numbers may differ in the others. ``record`` is (1,) RUN_DTYPE.
    """

    def __init__(
        self,
        network: NetworkSpec,
        table: SenderTable,
        deciders: Mapping[int, Decider],
        adversaries: Mapping[str, ScriptedAdversary],
        gridded: Sequence[int],
        traces: Sequence[str] = (),
    ) -> None:
        """Build it from one network. Where a flow of another one has an access delay, that of this one does too.

        ``deciders`` are by flow, ``adversaries`` by the names in jitter boxes; ``gridded`` flows may have beliefs; ``traces`` are
        all that links of the batch may have, those of the network by default.
        """
        # Those that are asked from outside first: their rows are what a caller sees.
        ordered = sorted(deciders.items(), key=lambda item: (item[1].decide_at != 0, item[0]))
        self.network, self.table, self.deciders = network, table, dict(ordered)
        self._keep: list[object] = [decider.keep for decider in deciders.values()]
        n_flows = len(network.flows)
        route = np.zeros((2, n_flows, HOPS))
        pipes: list[Any] = []
        for index, spec in enumerate(network.flows):
            links = network.route_of(index)
            route[0, index, : len(links)] = links
            for hop in range(len(links)):
                if hop > 0 or spec.access_s > 0:
                    route[1, index, hop] = len(pipes)
                    pipes.append((index, hop, 0, 0, 0, 0))
            for hop, link in enumerate(network.back_of(index), ACK_HOP):
                route[:, index, hop] = link, len(pipes)
                pipes.append((index, hop, 0, 0, 0, 0))
            if spec.reordering is not None:
                route[1, index, LATE_HOP] = len(pipes)
                pipes.append((index, LATE_HOP, 0, 0, 0, 0))
        boxes, box_words = self._boxes(adversaries)
        monitors = [decider.monitor(flow) for flow, decider in self.deciders.items()]
        delays = np.zeros(n_flows, np.int64)
        for index, spec in enumerate(network.flows):
            if spec.jitter.delays_s:
                values = np.array(spec.jitter.delays_s)
                self._keep.append(values)
                delays[index] = values.ctypes.data
        self.tables = Tables(
            route=route,
            pipes=np.array(pipes, PIPE_DTYPE) if pipes else np.zeros(1, PIPE_DTYPE),
            boxes=boxes,
            monitors=np.concatenate(monitors) if monitors else np.zeros(1, MONITOR_DTYPE),
            box_words=box_words,
            policies=self._policies(),
            delay_tables=delays,
            traces=self._traces(traces or trace_names(network)),
            grid_flows=np.array(gridded or [0], np.int64),
            senders=table.rows,
            beliefs=table.beliefs,
        )
        run = self.record = np.zeros(1, RUN_DTYPE)
        run["n_links"], run["n_flows"], run["n_pipes"] = len(network.links), n_flows, len(pipes)
        run["n_boxes"] = sum(flow.jitter.kind == "adversary" for flow in network.flows)
        run["n_grids"], run["n_monitors"] = len(gridded), len(monitors)
        self._set_leaves("log")

    def _set_leaves(self, last_source: str) -> None:
        counts = [int(self.record[f"n_{name}"][0]) for name in ("links", "flows", "pipes", "boxes", "grids", "monitors")]
        last = getattr(sources_of.py_func(*counts), last_source)
        self.record["tree_leaves"] = 1 << math.ceil(math.log2(last + 1))

    def admit(self, slots: Slots) -> None:
        """Let transfers come and go in slots, which are flows of the network."""
        self._keep.append(slots)
        run = self.record
        run["n_arrivals"], run["arrivals_at"] = len(slots.arrivals), slots.arrivals.ctypes.data
        run["pools_at"] = slots.pools.ctypes.data
        self._set_leaves("arrivals")

    def _traces(self, names: Sequence[str]) -> np.ndarray:
        kept = [load_trace(name) for name in names]
        self._keep.append(kept)
        return np.array([(t.rows.ctypes.data, len(t.rows)) for t in kept] or [(0, 0)], np.int64)

    def _boxes(self, adversaries: Mapping[str, ScriptedAdversary]) -> tuple[np.ndarray, np.ndarray]:
        boxed = [i for i, flow in enumerate(self.network.flows) if flow.jitter.kind == "adversary"]
        boxes = np.zeros(max(1, len(boxed)), BOX_DTYPE)
        words = np.zeros((max(1, len(boxed)), ADVERSARY_SLOTS))
        for row, index in enumerate(boxed):
            spec = self.network.flows[index]
            player = adversaries.get(spec.jitter.adversary)
            if player is None:
                raise InputError(f"flow {index}: adversary {spec.jitter.adversary!r} was not given")
            words[row] = initial_words(player, ADVERSARY_SLOTS, "adversary")
            boxes[row]["flow"] = index
            boxes[row]["init_at"] = address_of(player.init, player.state, VIEW)
            boxes[row]["play_at"] = address_of(player.play, player.state, VIEW, MOVE)
        return boxes, words

    def _policies(self) -> np.ndarray:
        """Return the records of the policies as bytes, (max(1, monitors), longest)."""
        records = [decider.record for decider in self.deciders.values()]
        longest = max([8, *(record.nbytes for record in records if record is not None)])
        policies = np.zeros((max(1, len(records)), -(-longest // 8) * 8), np.uint8)
        for row, record in zip(policies, records, strict=False):
            if record is not None:
                row[: record.nbytes] = record.view(np.uint8)
        return policies


def trace_names(network: NetworkSpec) -> tuple[str, ...]:
    """Return the names of the traces of a network's links, each once."""
    return tuple(dict.fromkeys(link.trace for link in network.links if link.trace))


def trace_fields(name: str, names: Sequence[str]) -> dict[str, float]:
    """Return what the record of a link with a trace holds of it, by field; ``names`` are all traces of the batch."""
    trace = load_trace(name)
    return {
        "trace_index": names.index(name),
        "trace_kind": TRACE_KINDS[trace.kind],
        "trace_length_s": trace.length_s,
        "trace_bytes": trace.total_bytes,
        "rate_Bps": trace.mean_Bps,
        "peak_Bps": trace.peak_Bps,
    }


def link_record(spec: LinkSpec, index: int, traces: Sequence[str] = ()) -> np.ndarray:
    """Return a link as it begins: (1,) LINK_DTYPE; ``traces`` are the names of all traces of the batch, if it has one."""
    link = np.zeros(1, LINK_DTYPE)
    link["rate_Bps"], link["delay_s"], link["buffer_bytes"] = spec.rate_Bps, spec.delay_s, spec.buffer_bytes
    link["discipline"] = DISCIPLINES[spec.discipline]
    link["ecn"] = {"red": spec.red.ecn, "codel": spec.codel.ecn, "fq_codel": spec.fq_codel.ecn, "pie": spec.pie.ecn}.get(
        spec.discipline, False
    )
    link["threshold_packets"] = spec.threshold_packets
    link["red_min_packets"], link["red_max_packets"] = spec.red.min_packets, spec.red.max_packets
    link["red_max_probability"], link["red_weight"] = spec.red.max_probability, spec.red.weight
    codel = spec.fq_codel if spec.discipline == "fq_codel" else spec.codel
    link["codel_target_s"], link["codel_interval_s"] = codel.target_s, codel.interval_s
    link["quantum_bytes"], link["isolates_only"] = spec.fq_codel.quantum_bytes, not spec.fq_codel.codel
    controller = spec.dualpi2 if spec.discipline == "dualpi2" else spec.pie
    for name in ("target_s", "update_s", "alpha", "beta"):
        link[name] = getattr(controller, name)
    link["next_update_s"] = controller.update_s
    link["burst_s"] = link["burst_left_s"] = spec.pie.burst_s
    for name in ("coupling", "ramp_start_s", "ramp_s", "classic_share", "overload"):
        link[name] = getattr(spec.dualpi2, name)
    if spec.policer is not None:
        link["policer_Bps"] = spec.policer.rate_Bps
        link["policer_bytes"] = link["tokens_bytes"] = spec.policer.burst_bytes
    link["index"], link["finish_s"], link["red_count"] = index, np.inf, -1.0
    link["trace_index"] = -1
    if spec.trace:
        for field, value in trace_fields(spec.trace, traces).items():
            link[field] = value
    if spec.generator is not None:
        generator_record(spec.generator, link)
    return link


def flow_record(spec: FlowSpec, index: int, hops: int, sender: int) -> np.ndarray:
    """Return a flow as it begins: (1,) FLOW_DTYPE; ``sender`` is the row of its sender."""
    flow = np.zeros(1, FLOW_DTYPE)
    flow["index"], flow["n_hops"], flow["sender_index"] = index, hops, sender
    flow["path_rtt_s"], flow["told_rtt_s"], flow["rtt_known"] = spec.rtt_s, spec.sender_rtt_s, spec.rtt_known
    flow["access_s"], flow["loss_rate"], flow["burst_s"] = spec.access_s, spec.loss_rate, spec.burst_s
    flow["handshake_s"], flow["duplicates_hold"] = spec.rtt_s if spec.handshake else 0.0, spec.duplicate_acks == "hold"
    flow["start_s"], flow["stop_s"], flow["ecn"] = spec.start_s, spec.stop_s, CODEPOINTS[spec.codepoint]
    flow["ack_every"], flow["ack_timeout_s"] = spec.receiver.ack_every, spec.receiver.ack_timeout_s
    flow["quick_acks"] = spec.receiver.quick_acks
    flow["jitter_kind"], flow["jitter_s"] = JITTERS[spec.jitter.kind], spec.jitter.max_s
    flow["jitter_interval_s"] = spec.jitter.every_s if spec.jitter.kind == "early" else spec.jitter.interval_s
    flow["jitter_at_s"], flow["jitter_table_length"] = spec.jitter.at_s, len(spec.jitter.delays_s)
    flow["ack_aggregation"], flow["ack_merge"] = AGGREGATIONS[spec.receiver.aggregation], spec.receiver.merge
    flow["ack_aggregate_s"] = spec.receiver.aggregate_s
    flow["workload"] = WORKLOADS[spec.workload.kind]
    flow["offers"] = spec.workload.kind not in STEADY
    flow["workload_a"], flow["workload_b"] = spec.workload.parameters()
    for name in ("wake_s", "rto_deadline_s", "min_rtt_s", "ack_deadline_s", "finished_s", "app_next_s", "rate_Bps"):
        flow[name] = np.inf
    flow["rto_backoff"], flow["recovery_tx"], flow["monitor"], flow["grid"] = 1.0, -1, -1, -1
    flow["pool"], flow["rack"] = -1, RECOVERIES[spec.recovery]
    _put_path(spec, flow)
    flow["newest_lost_tx"] = -2  # not just before the first
    return flow


def _put_path(spec: FlowSpec, flow: np.ndarray) -> None:
    """Write what a flow's path does beside queueing."""
    flow["mss_bytes"] = spec.mss_bytes or 0.0
    _put_bursts(spec.loss_bursts, flow, "")
    if spec.reordering is not None:
        flow["reorders"], flow["late_share"], flow["late_s"] = 1, spec.reordering.share, spec.reordering.extra_s
    if spec.ack_path is not None:
        flow["ack_path"], flow["ack_hops"] = 1, len(spec.ack_path.route)
        flow["ack_bytes"], flow["ack_loss_rate"] = spec.ack_path.ack_bytes, spec.ack_path.loss_rate
        _put_bursts(spec.ack_path.loss_bursts, flow, "ack_")


def _put_bursts(bursts: LossBursts | None, flow: np.ndarray, of: str) -> None:
    if bursts is not None:
        flow[f"{of}bursts"] = 1
        for name in ("enter", "leave", "loss", "loss_between"):
            flow[f"{of}burst_{name}"] = getattr(bursts, name)


def beginning(
    network: NetworkSpec, sender_rows: Sequence[int], key: float, n_monitors: int, traces: Sequence[str] = ()
) -> Beginnings:
    """Return what a network begins with, as one row; ``key`` is what its random numbers depend on.

    ``traces`` are the names of all traces of the batch; those of the network by default.
    """
    traces = traces or trace_names(network)
    links = [link_record(spec, index, traces) for index, spec in enumerate(network.links)]
    flows = [
        flow_record(spec, index, len(network.route_of(index)), row)
        for index, (spec, row) in enumerate(zip(network.flows, sender_rows, strict=True))
    ]
    steps = [(step.time_s, float(i), step.rate_Bps) for i, spec in enumerate(network.links) for step in spec.rate_steps]
    return Beginnings(
        links=np.concatenate(links)[None],
        flows=np.concatenate(flows)[None],
        changes=np.array(sorted(steps), dtype=np.float64).reshape(1, -1, 3),
        mss_bytes=np.array([network.mss_bytes]),
        keys=np.array([float(key)]),
        start_rates_Bps=np.zeros((1, max(1, n_monitors))),
    )
