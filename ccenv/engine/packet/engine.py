"""The packet engine: one network, run event by event in a compiled kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ccenv.engine.compiled.calls import address_of
from ccenv.engine.compiled.python_calls import raise_failure
from ccenv.engine.compiled.signals import ACK, ADVERSARY_SLOTS, LOSS, MOVE, STATE_HEADER, STATE_SLOTS, TICK, VIEW, record
from ccenv.engine.packet.beliefs import RATE_HOLDER, STEPS_PER_RTT, Grids
from ccenv.engine.packet.kernel import PacketArrays, advance
from ccenv.engine.packet.layout import (
    AGGREGATIONS,
    BOX_DTYPE,
    CHANGE_TIME,
    DISCIPLINES,
    ERROR_ADVERSARY,
    ERROR_EVENTS,
    ERROR_SENDER,
    EVENT_STRIDE,
    FLOW_DTYPE,
    FLOW_LOG,
    JITTERS,
    LINK_DTYPE,
    LINK_LOG,
    MAX_HOPS,
    PIPE_DTYPE,
    PIPE_STRIDE,
    QUEUE_STRIDE,
    RUN_DTYPE,
    SEGMENT_STRIDE,
    TX_STRIDE,
    WORKLOADS,
)
from ccenv.engine.packet.log import MAX_ROWS, ordered
from ccenv.engine.packet.sources import RATE_CHANGES, sources_of
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.errors import EngineError, InputError, did_you_mean
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.sender import ClassicSender, ContractSender, HeldSender, MlpSender, ProgramSender, Sender, bare

TICK_S = 0.01  # of CCAs and adversaries
RTO_MIN_S = 0.2  # smallest RTO, as in the curve engine; RFC 6298 (2.4) says 1 s, deployed stacks use 0.2 s
SLICE_S = 1.0  # simulated time per call of the kernel, so that a run can be interrupted
DEEPEST_S = 8.0  # queueing delay that the windows of an infinite buffer can build up, at most
MIN_RING, MAX_RING = 1 << 10, 1 << 17
MAX_LOG_ROWS = 20_000_000  # rows times flows
MAX_EVENTS = 2e10  # of a run whose bound was not given: the better part of an hour
EVENTS_PER_PACKET = 8  # a run may take so many events per packet that its links can carry, plus one million

STATE_DTYPE = record(*STATE_HEADER, *(f"w{i}" for i in range(STATE_SLOTS - len(STATE_HEADER))))


class PacketEngine:
    """One run of a network.

    Args:
        network: links and flows.
        senders: one per flow, in their order.
        adversaries: by name, those that the flows' jitter boxes name.
        log_s: interval of the log.
        duration_s: how long the run may become.
        seed: keys all random numbers.
        max_events: a run that takes more is ended with an error; by default far above what the links can carry.
        packet_log: rows that the packet log keeps, at most MAX_ROWS of ``log``; 0: none.

    Raises:
        InputError: for senders that cannot run per packet, or parameters that they do not have.
    """

    def __init__(
        self,
        network: NetworkSpec,
        senders: Sequence[Sender],
        *,
        adversaries: Mapping[str, ScriptedAdversary] | None = None,
        log_s: float = 0.01,
        duration_s: float,
        seed: int = 0,
        max_events: int | None = None,
        packet_log: int = 0,
    ) -> None:
        for name, value in (("log_s", log_s), ("duration_s", duration_s)):
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}; it must be finite and above 0")
        rows = duration_s / log_s * len(network.flows)
        if rows > MAX_LOG_ROWS:
            raise InputError(
                f"a log of {duration_s:g} s every {log_s:g} s for all flows has {rows:.3g} rows; at most {MAX_LOG_ROWS}"
            )
        if not 0 <= seed < 2**53:
            raise InputError(f"seed {seed} is not in [0, 2**53)")
        if not 0 <= packet_log <= MAX_ROWS:
            raise InputError(f"a packet log of {packet_log} rows; it must have 0 to {MAX_ROWS}")
        if len(senders) != len(network.flows):
            raise InputError(f"{len(senders)} senders for {len(network.flows)} flows")
        self.network, self.senders, self.seed = network, list(senders), seed
        self.duration_s, self.log_s = duration_s, log_s
        self._until_s = 0.0
        self._keep: list[np.ndarray] = []  # arrays that records point into
        if max_events is not None and max_events < 1:
            raise InputError(f"max_events is {max_events}; it must be at least 1")
        self._max_events = self._default_events() if max_events is None else max_events
        self._build_links()
        self._build_flows()
        self._build_senders()
        self._build_boxes(adversaries or {})
        self._build_run()
        self._packet_log = np.empty((packet_log, EVENT_STRIDE))  # untouched pages take no memory
        self._run["packet_log_at"], self._run["packet_log_limit"] = self._packet_log.ctypes.data, packet_log

    # --- construction -----------------------------------------------------------------------------------------------

    def _fastest_Bps(self, link: int) -> float:
        spec = self.network.links[link]
        return max(spec.rate_Bps, *(step.rate_Bps for step in spec.rate_steps), 0.0)

    def _default_events(self) -> int:
        packets = (
            sum(self._fastest_Bps(link) for link in range(len(self.network.links))) * self.duration_s / self.network.mss_bytes
        )
        ticks = (len(self.network.flows) + 4) * self.duration_s / min(TICK_S, self.log_s)
        steps = sum(STEPS_PER_RTT * self.duration_s / flow.sender_rtt_s for flow in self.network.flows)
        events = EVENTS_PER_PACKET * packets + 4 * ticks + steps + 1_000_000
        if not events <= MAX_EVENTS:
            raise InputError(
                f"these links can carry {packets:.3g} packets in {self.duration_s:g} s: some {events:.3g} events; at most "
                f"{MAX_EVENTS:g} without max_events"
            )
        return int(events)

    def _ring(self, entries: float, stride: int) -> tuple[int, int]:
        """Allocate a ring; return its address and mask."""
        length = 1 << math.ceil(math.log2(max(2.0, entries)))
        array = np.zeros(length * stride)
        self._keep.append(array)
        return array.ctypes.data, length - 1

    def _window_packets(self, flow: int) -> int:
        """Return how many packets a flow's rings hold: twice what its path can, which is its receive window."""
        spec, network = self.network.flows[flow], self.network
        route = network.route_of(flow)
        mss = network.mss_bytes
        fastest = min(self._fastest_Bps(link) for link in route)
        sender = self.senders[flow]
        held_s = sender.target_s if isinstance(sender, HeldSender) else 0.0
        packets = fastest * (spec.rtt_s + spec.jitter.max_s + spec.receiver.aggregate_s + held_s) / mss
        for link in route:
            packets += min(network.links[link].buffer_bytes, DEEPEST_S * fastest) / mss
        return int(min(MAX_RING, max(MIN_RING, 2 * packets)))

    def _build_links(self) -> None:
        network = self.network
        self._links = np.zeros(len(network.links), LINK_DTYPE)
        for index, spec in enumerate(network.links):
            link = self._links[index]
            users = [f for f in range(len(network.flows)) if index in network.route_of(f)]
            # Rings are powers of two, so twice the windows is enough for what flows can have in the network.
            windows = sum(2 * self._window_packets(f) for f in users) + 1
            capacity = int(min(windows, spec.buffer_bytes / network.mss_bytes + 1e-9)) if users else 1
            link["queue_at"], link["mask"] = self._ring(capacity + 1, QUEUE_STRIDE)
            link["rate_Bps"], link["delay_s"], link["capacity_packets"] = spec.rate_Bps, spec.delay_s, capacity
            link["discipline"], link["ecn"] = DISCIPLINES[spec.discipline], spec.red.ecn
            link["threshold_packets"] = spec.threshold_packets
            link["red_min_packets"], link["red_max_packets"] = spec.red.min_packets, spec.red.max_packets
            link["red_max_probability"], link["red_weight"] = spec.red.max_probability, spec.red.weight
            link["codel_target_s"], link["codel_interval_s"] = spec.codel.target_s, spec.codel.interval_s
            link["index"], link["finish_s"], link["red_count"] = index, np.inf, -1.0
        steps = [(s.time_s, float(i), s.rate_Bps) for i, spec in enumerate(network.links) for s in spec.rate_steps]
        self._changes = np.array(sorted(steps), dtype=np.float64).reshape(-1, 3)

    def _build_flows(self) -> None:
        network = self.network
        self._flows = np.zeros(len(network.flows), FLOW_DTYPE)
        self._route = np.zeros((2, len(network.flows), MAX_HOPS))
        pipes: list[tuple[int, int, int, int, int, int]] = []
        for index, spec in enumerate(network.flows):
            flow = self._flows[index]
            route = network.route_of(index)
            self._route[0, index, : len(route)] = route
            entries = self._window_packets(index)
            for hop in range(len(route)):
                if hop > 0 or spec.access_s > 0:
                    self._route[1, index, hop] = len(pipes)
                    pipes.append((index, hop, *self._ring(entries, PIPE_STRIDE), 0, 0))
            flow["index"], flow["n_hops"] = index, len(route)
            flow["access_s"], flow["return_s"] = spec.access_s, network.return_s(index)
            flow["loss_rate"], flow["start_s"], flow["stop_s"] = spec.loss_rate, spec.start_s, spec.stop_s
            flow["ack_every"], flow["ack_timeout_s"] = spec.receiver.ack_every, spec.receiver.ack_timeout_s
            flow["jitter_kind"], flow["jitter_s"] = JITTERS[spec.jitter.kind], spec.jitter.max_s
            flow["jitter_interval_s"] = spec.jitter.every_s if spec.jitter.kind == "early" else spec.jitter.interval_s
            flow["jitter_at_s"] = spec.jitter.at_s
            if spec.jitter.delays_s:
                table = np.array(spec.jitter.delays_s)
                self._keep.append(table)
                flow["jitter_table_at"], flow["jitter_table_length"] = table.ctypes.data, len(table)
            flow["ack_aggregation"], flow["ack_merge"] = AGGREGATIONS[spec.receiver.aggregation], spec.receiver.merge
            flow["ack_aggregate_s"] = spec.receiver.aggregate_s
            if spec.jitter.kind == "adversary":  # the box is at the end of the last link, before its propagation delay
                flow["return_s"] += network.links[route[-1]].delay_s
            flow["workload"] = WORKLOADS[spec.workload.kind]
            flow["workload_a"], flow["workload_b"] = spec.workload.parameters()
            flow["tx_at"], flow["mask"] = self._ring(entries, TX_STRIDE)
            flow["segment_at"], _ = self._ring(entries, SEGMENT_STRIDE)
            flow["resend_at"], _ = self._ring(entries, 1)
            flow["ack_ring_at"], _ = self._ring(entries, PIPE_STRIDE)
            for name in ("wake_s", "rto_deadline_s", "min_rtt_s", "ack_deadline_s", "finished_s", "app_next_s", "rate_Bps"):
                flow[name] = np.inf
            flow["rto_backoff"], flow["recovery_tx"] = 1.0, -1
        self._n_pipes = len(pipes)
        self._pipes = np.array(pipes, PIPE_DTYPE) if pipes else np.zeros(1, PIPE_DTYPE)

    def _build_senders(self) -> None:
        n = len(self.senders)
        self._calls, self._templates = np.zeros((n, 4), np.int64), np.zeros((n, STATE_SLOTS))
        self._states = np.zeros(n, STATE_DTYPE)
        gridded: list[tuple[int, ProgramSender | MlpSender | ContractSender]] = []
        for row, sender in enumerate(self.senders):
            if isinstance(sender, HeldSender):
                self._hold_acks(row, sender)
            cca = bare(sender)
            if isinstance(cca, (ProgramSender, MlpSender, ContractSender)):
                gridded.append((row, cca))
                cca = RATE_HOLDER
            if not isinstance(cca, ClassicSender):
                raise InputError(f"flow {row}: sender {cca.name!r} cannot run per packet; it has no rule of its own")
            self._calls[row] = [
                address_of(cca.init, cca.state),
                address_of(cca.on_ack, cca.state, ACK),
                address_of(cca.on_loss, cca.state, LOSS),
                address_of(cca.on_tick, cca.state, TICK),
            ]
            names = cca.state.names or ()
            for name, value in cca.parameters.items():
                if name not in names:
                    raise InputError(f"sender {cca.name!r} has no parameter {name!r}.{did_you_mean(name, names)}")
                self._templates[row, names.index(name)] = value
            self._flows[row]["sender_index"] = row
        self._n_grids = len(gridded)
        seen_rtts_s = [
            sender.rtt_s(spec.rtt_s) if isinstance(sender, HeldSender) else spec.sender_rtt_s
            for sender, spec in zip(self.senders, self.network.flows, strict=True)
        ]
        self._grids = Grids(gridded, self.network, self._flows, seen_rtts_s, self.seed)

    def _hold_acks(self, row: int, proxy: HeldSender) -> None:
        flow = self._flows[row]
        flow["hold_s"] = proxy.target_s
        if proxy.mode == "lambda":
            flow["hold_target_s"], flow["hold_window_s"], flow["hold_rtt_min_s"] = proxy.target_s, proxy.window_s, np.inf
            flow["hold_until_s"] = flow["start_s"] + proxy.window_s

    def _build_boxes(self, adversaries: Mapping[str, ScriptedAdversary]) -> None:
        boxed = [i for i, flow in enumerate(self.network.flows) if flow.jitter.kind == "adversary"]
        self._boxes = np.zeros(max(1, len(boxed)), BOX_DTYPE)
        self._n_boxes = len(boxed)
        self._box_words = np.zeros((max(1, len(boxed)), ADVERSARY_SLOTS))
        for row, index in enumerate(boxed):
            spec, box = self.network.flows[index], self._boxes[row]
            player = adversaries.get(spec.jitter.adversary)
            if player is None:
                raise InputError(f"flow {index}: adversary {spec.jitter.adversary!r} was not given")
            names = player.state.names or ()
            for name, value in player.parameters.items():
                self._box_words[row, names.index(name)] = value
            link = self.network.links[self.network.route_of(index)[-1]]
            box["flow"], box["rtt_s"] = index, spec.rtt_s
            box["ring_at"], box["mask"] = self._ring(self._window_packets(index), PIPE_STRIDE)
            box["init_at"] = address_of(player.init, player.state, VIEW)
            box["play_at"] = address_of(player.play, player.state, VIEW, MOVE)
            box["state_at"] = self._box_words[row].ctypes.data
            box["link_rate_Bps"], box["buffer_bytes"] = link.rate_Bps, link.buffer_bytes
            self._flows[index]["box"] = row

    def _build_run(self) -> None:
        n_flows, n_links = len(self._flows), len(self._links)
        self._signals = tuple(np.zeros(1, dtype) for dtype in (ACK, LOSS, TICK, VIEW, MOVE))
        for signal in self._signals[:4]:
            signal["mss_bytes"] = self.network.mss_bytes
        self._signals[2]["dt_s"] = TICK_S
        view = self._signals[3]
        view["n_flows"], view["seed"] = n_flows, self.seed
        rows = math.floor(self.duration_s / self.log_s + 1e-9) + 1
        self.flow_log = np.zeros((rows, n_flows), [(name, "<f8") for name in FLOW_LOG])
        self.link_log = np.zeros((rows, n_links), [(name, "<f8") for name in LINK_LOG])
        sources = sources_of.py_func(n_links, n_flows, self._n_pipes, self._n_boxes, self._n_grids)
        leaves = 1 << math.ceil(math.log2(sources.log + 1))
        self._tree = tree = np.full(4 * leaves, np.inf)
        tree[2 * leaves :] = 0.0
        tree[3 * leaves :] = np.arange(leaves)
        times_s = tree[leaves : 2 * leaves]
        times_s[RATE_CHANGES] = self._changes[0, CHANGE_TIME] if len(self._changes) else np.inf
        times_s[sources.flows : sources.pipes] = self._flows["start_s"]
        times_s[sources.boxes : sources.grids] = 0.0
        times_s[sources.grids : sources.tick] = self._grids.grids["next_s"][: self._n_grids]
        times_s[sources.tick], times_s[sources.log] = TICK_S, 0.0
        for node in range(leaves - 1, 0, -1):
            best = 2 * node if tree[2 * node] <= tree[2 * node + 1] else 2 * node + 1
            tree[node], tree[2 * leaves + node] = tree[best], tree[2 * leaves + best]
        run = self._run = np.zeros(1, RUN_DTYPE)
        run["n_links"], run["n_flows"], run["n_pipes"], run["n_boxes"] = n_links, n_flows, self._n_pipes, self._n_boxes
        run["n_grids"], run["grids_at"] = self._n_grids, self._grids.grids.ctypes.data
        run["mss_bytes"], run["seed"], run["tick_s"], run["log_s"] = self.network.mss_bytes, self.seed, TICK_S, self.log_s
        run["rto_min_s"], run["ticks"] = RTO_MIN_S, 1
        run["tree_at"], run["tree_leaves"] = tree.ctypes.data, leaves
        run["route_at"], run["states_at"] = self._route.ctypes.data, self._states.ctypes.data
        for name, signal in zip(("ack_at", "loss_at", "tick_at", "view_at", "move_at"), self._signals, strict=True):
            run[name] = signal.ctypes.data
        acks, losses, ticks, views, moves = self._signals
        self._arrays = PacketArrays(
            run=run,
            links=self._links,
            flows=self._flows,
            pipes=self._pipes,
            boxes=self._boxes,
            grids=self._grids.grids,
            states=self._states,
            words=self._states.view("<f8").reshape(len(self._states), STATE_SLOTS),
            templates=self._templates,
            sender_calls=self._calls,
            acks=acks,
            losses=losses,
            ticks=ticks,
            views=views,
            moves=moves,
            changes=self._changes,
            flow_log=self.flow_log,
            link_log=self.link_log,
        )

    # --- running ----------------------------------------------------------------------------------------------------

    def advance(self, until_s: float) -> None:
        """Process all events up to and including until_s.

        Raises:
            EngineError: if a CCA or adversary leaves the numbers it may give (names the flow, its sender and the time), or the
                run takes too many events or more rows than its packet log keeps.
        """
        end_s = math.nextafter(until_s, math.inf)
        self._until_s = until_s
        at_s = float(self._run["now_s"][0])
        while at_s < end_s:
            at_s = min(end_s, at_s + SLICE_S)
            advance(self._arrays, at_s, self._max_events)
            self._check()

    def _check(self) -> None:
        run = self._run[0]
        flow, now_s = int(run["error_flow"]), float(run["now_s"])
        if 0 < run["packet_log_limit"] < run["packet_log_rows"]:
            raise EngineError(f"the packet log keeps {run['packet_log_limit']} rows; more happened by {now_s:.6g} s")
        if run["error"] == 0:
            return
        sender = self.senders[flow].name
        if run["error"] == ERROR_SENDER:
            raise_failure(bare(self.senders[flow]), flow, now_s)
            state = self._states[flow]
            raise EngineError(
                f"flow {flow}: sender {sender!r} set cwnd_bytes {state['cwnd_bytes']:g} and pacing_rate_Bps "
                f"{state['pacing_rate_Bps']:g} at {now_s:.6g} s; both must be above 0"
            )
        if run["error"] == ERROR_ADVERSARY:
            raise EngineError(f"flow {flow}: its adversary made a move that is no number at {now_s:.6g} s")
        if run["error"] == ERROR_EVENTS:
            raise EngineError(f"the run passed {self._max_events} events at {now_s:.6g} s of {self.duration_s:g} s")

    def packet_log(self) -> np.ndarray:
        """Return what happened to each packet so far, records of ``log.LOG_DTYPE`` in the order of time."""
        return ordered(self._packet_log[: int(self._run["packet_log_rows"][0])], self._until_s)

    @property
    def events(self) -> int:
        """Events processed so far."""
        return int(self._run["events"][0])

    def flow(self, name: str) -> np.ndarray:
        """Return a copy of a field of FLOW_DTYPE, one entry per flow."""
        return self._flows[name].copy()

    def beliefs(self) -> dict[int, dict[str, float]]:
        """Return C_L_Bps, C_U_Bps, C_L_lambda_Bps and q_U_bytes of the flows with programs or policies, by flow."""
        names = ("C_L_Bps", "C_U_Bps", "C_L_lambda_Bps", "q_U_bytes")
        return {flow: {name: float(record[name][0]) for name in names} for flow, record in self._grids.beliefs.items()}

    def link(self, name: str) -> np.ndarray:
        """Return a copy of a field of LINK_DTYPE, one entry per link."""
        return self._links[name].copy()
