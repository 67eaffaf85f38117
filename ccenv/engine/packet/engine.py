"""The packet engine: one network, run event by event in a compiled kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ccenv.agents.sender import Sender, bare
from ccenv.base.errors import EngineError, InputError
from ccenv.engine.compiled.calls import extras_of, raise_failure
from ccenv.engine.packet.batch.batch import PacketBatch, needed_words
from ccenv.engine.packet.batch.form import Form, beginning, check_slots, laid_out
from ccenv.engine.packet.batch.players import SenderTable, policy_deciders
from ccenv.engine.packet.beliefs import STEPS_PER_RTT
from ccenv.engine.packet.layout import (
    ERROR_ADVERSARY,
    ERROR_EVENTS,
    ERROR_SENDER,
    MAX_ROWS,
    RTO_MIN_S,
    STATE_DTYPE,
    TICK_S,
    ordered,
)
from ccenv.engine.packet.monitor import Decider
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.network.adversary import ScriptedAdversary

__all__ = ["RTO_MIN_S", "STATE_DTYPE", "TICK_S", "PacketEngine"]

SLICE_S = 1.0  # simulated time per call of the kernel, so that a run can be interrupted
MAX_LOG_ROWS = 20_000_000  # rows times flows
MAX_EVENTS = 2e10  # of a run whose bound was not given: the better part of an hour
EVENTS_PER_PACKET = 8  # a run may take so many events per packet that its links can carry, plus one million


def whole_segments(more_bytes: float, mss_bytes: float) -> int:
    """Return how many whole segments hold so many bytes."""
    return math.ceil(more_bytes / mss_bytes - 1e-9)


class PacketEngine:
    """One run of a network.

    Raises InputError for senders that cannot run per packet, or parameters that they do not have.

    Args:
        network: links and flows.
        senders: one per flow, in their order.
        adversaries: by name, those that the flows' jitter boxes name.
        log_s: interval of the log.
        duration_s: how long the run may become.
        seed: keys all random numbers.
        max_events: a run that takes more is ended with an error; by default far above what the links can carry.
        packet_log: rows that the packet log keeps, at most MAX_ROWS of ``log``; 0: none.
        deciders: by flow, of those that are monitored; the flows of external senders need one that decides in the kernel.
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
        deciders: Mapping[int, Decider] | None = None,
    ) -> None:
        for name, value in (("log_s", log_s), ("duration_s", duration_s)):
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}; it must be finite and above 0")
        slots = sum(flow.arrivals.slots if flow.arrivals else 1 for flow in network.flows)
        rows = duration_s / log_s * slots
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
        self._slots = laid_out(network, seed) if any(flow.arrivals for flow in network.flows) else None
        flow_senders = senders
        if self._slots is not None:
            if deciders:
                raise InputError("flows that come and go cannot be monitored")
            network, senders = self._slots.network, [senders[owner] for owner in self._slots.owners]
        self.network, self.senders, self.seed = network, list(senders), seed
        self.duration_s, self.log_s = duration_s, log_s
        self._until_s = 0.0
        if max_events is not None and max_events < 1:
            raise InputError(f"max_events is {max_events}; it must be at least 1")
        self._max_events = self._default_events() if max_events is None else max_events
        deciders = policy_deciders(self.senders, network.flows) | dict(deciders or {})
        n = len(network.flows)
        table = SenderTable(self.senders, [deciders.get(flow) for flow in range(n)])
        self._gridded = [flow for flow in range(n) if table.rows["step_at"][flow]]
        for flow in sorted({*self._gridded, *deciders}):
            if network.flows[flow].mss_bytes not in (None, network.mss_bytes):
                name, size = self.senders[flow].name, network.mss_bytes
                raise InputError(
                    f"flow {flow}: {name!r} counts packets of {size:g} bytes; only classic CCAs can have their own mss_bytes"
                )
        form = Form(network, table, deciders, adversaries or {}, self._gridded)
        begins = beginning(network, range(n), float(seed), len(deciders))
        rows = math.floor(self.duration_s / self.log_s + 1e-9) + 1
        if self._slots is not None:
            form.admit(self._slots)
            begins.flows["pool"][0] = self._slots.pooled
            begins.flows["start_s"][0, self._slots.pooled >= 0] = np.inf
        words = needed_words(form, begins)
        if self._slots is not None:
            check_slots(self._slots, flow_senders, words)
        self._batch = PacketBatch(form, 1, words, log_rows=rows, log_s=log_s, packet_log=packet_log)
        self._batch.begin(np.zeros(1, np.int64), begins)
        self._extras = extras_of(map(bare, self.senders))
        arrays = self._batch.arrays
        self._run, self._links, self._flows = arrays.run[0], arrays.links[0], arrays.flows[0]
        self._flow_log, self.link_log = arrays.flow_log[0], arrays.link_log[0]

    # --- construction -----------------------------------------------------------------------------------------------

    def _default_events(self) -> int:
        sizes = (min(self.network.sizes_on(index)) for index in range(len(self.network.links)))
        peaks_Bps = (link.peak_Bps for link in self.network.links)
        packets = sum(peak_Bps / size for peak_Bps, size in zip(peaks_Bps, sizes, strict=True)) * self.duration_s
        ticks = (len(self.network.flows) + 4) * self.duration_s / min(TICK_S, self.log_s)
        steps = sum(STEPS_PER_RTT * self.duration_s / flow.sender_rtt_s for flow in self.network.flows)
        events = EVENTS_PER_PACKET * packets + 4 * ticks + steps + 1_000_000
        if not events <= MAX_EVENTS:
            raise InputError(
                f"these links can carry {packets:.3g} packets in {self.duration_s:g} s: some {events:.3g} events; at most "
                f"{MAX_EVENTS:g} without max_events"
            )
        return int(events)

    # --- running ----------------------------------------------------------------------------------------------------

    def advance(self, until_s: float) -> None:
        """Process all events up to and including until_s.

        Raises EngineError if a CCA or adversary leaves the numbers it may give (names the flow, its sender and the time), or the
        run takes too many events or more rows than its packet log keeps.
        """
        end_s = math.nextafter(until_s, math.inf)
        self._until_s = until_s
        at_s = float(self._run["now_s"][0])
        while at_s < end_s:
            at_s = min(end_s, at_s + SLICE_S)
            self._batch.advance(np.array([at_s]), self._max_events)
            for extra in self._extras:
                extra.raise_failure()
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
            state = self._batch.arrays.states[0, flow]
            raise EngineError(
                f"flow {flow}: sender {sender!r} set cwnd_bytes {state['cwnd_bytes']:g} and pacing_rate_Bps "
                f"{state['pacing_rate_Bps']:g} at {now_s:.6g} s; both must be above 0"
            )
        if run["error"] == ERROR_ADVERSARY:
            raise EngineError(f"flow {flow}: its adversary made a move that is no number at {now_s:.6g} s")
        if run["error"] == ERROR_EVENTS:
            raise EngineError(f"the run passed {self._max_events} events at {now_s:.6g} s of {self.duration_s:g} s")

    def offer(self, flow: int, more_bytes: float) -> None:
        """Let a flow that has started, of workload ``asked``, send so much more, in whole segments, from the next tick on."""
        self._flows["app_segments"][flow] += whole_segments(more_bytes, self.network.mss_of(flow))

    @property
    def flow_log(self) -> np.ndarray:
        """The log of the flows, (rows, flows); of transfers that come and go the sum."""
        return self._flow_log if self._slots is None else self._slots.summed(self._flow_log)

    def transfers(self) -> dict[int, np.ndarray]:
        """Return the transfers of flows with arrivals, by flow: (n, 3) bytes, begin and end in seconds; NaN: not done."""
        if self._slots is None:
            return {}
        owners = {int(owner) for owner in self._slots.owners[self._slots.pooled >= 0]}
        return {flow: self._slots.transfers(flow) for flow in sorted(owners)}

    def turned_away(self) -> dict[int, int]:
        """Return how many transfers of flows with arrivals have found no free slot, by flow."""
        return {flow: self._slots.turned_away(flow) for flow in self.transfers()} if self._slots is not None else {}

    @property
    def finished_s(self) -> np.ndarray:
        """When each flow's transfers were done, (flows,); infinite: not."""
        ends = self.flow("finished_s")
        if self._slots is None:
            return ends
        finished = np.array([ends[np.argmax(self._slots.owners == flow)] for flow in range(int(self._slots.owners.max()) + 1)])
        for flow, transfers in self.transfers().items():
            finished[flow] = np.nan_to_num(transfers[:, 2], nan=np.inf).max()
        return finished

    def packet_log(self) -> np.ndarray:
        """Return what happened to each packet so far, records of ``log.LOG_DTYPE`` in the order of time."""
        return ordered(self._batch.packet_log(0), self._until_s)

    @property
    def events(self) -> int:
        return int(self._run["events"][0])

    def flow(self, name: str) -> np.ndarray:
        """Return a copy of a field of FLOW_DTYPE, one entry per flow."""
        copied: np.ndarray = self._flows[name].copy()
        return copied

    def beliefs(self) -> dict[int, dict[str, float]]:
        """Return C_L_Bps, C_U_Bps, C_L_lambda_Bps and q_U_bytes of the flows with programs or policies, by flow."""
        names = ("C_L_Bps", "C_U_Bps", "C_L_lambda_Bps", "q_U_bytes")
        beliefs = self._batch.arrays.beliefs[0]
        return {flow: {name: float(beliefs[row][name]) for name in names} for row, flow in enumerate(self._gridded)}

    def measures(self, flow: int) -> dict[str, float]:
        """Return the MEASURES of the newest decision of a flow that is monitored, by name. All 0 before the first."""
        row = int(self._flows["monitor"][flow])
        if row < 0:
            raise InputError(f"flow {flow} is not monitored")
        measures = self._batch.arrays.measures[0, row]
        return {name: float(measures[name]) for name in measures.dtype.names or ()}

    def link(self, name: str) -> np.ndarray:
        """Return a copy of a field of LINK_DTYPE, one entry per link."""
        copied: np.ndarray = self._links[name].copy()
        return copied
