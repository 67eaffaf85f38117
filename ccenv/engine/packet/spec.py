"""What the packet engine runs: links, flows with routes, workloads, arrivals, jitter boxes, paths, receivers.

Strict data, SI units; arrival processes and size distributions with their sources.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from ccenv.base.config import StrictModel
from ccenv.base.errors import did_you_mean
from ccenv.base.random import uniform
from ccenv.engine.packet.generators import PEAK, Generator, Leo, with_mean_rate
from ccenv.engine.packet.layout import MAX_HOPS
from ccenv.network.links import load_trace
from ccenv.network.path import DEFAULT_MSS_BYTES

SMALLEST_PACKET_BYTES, LARGEST_PACKET_BYTES = 20.0, 65_536.0
ACK_BYTES = 40.0  # RFC 3449 s.2: an ACK without options
SHORTEST_EXTRA_S, LONGEST_EXTRA_S = 1e-5, 10.0

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Duration = Annotated[float, Field(ge=1e-4, le=10, allow_inf_nan=False)]


class LossBursts(StrictModel):
    """Random loss in bursts: a chain of two states that takes one step per packet.

    Of all packets (enter * loss + leave * loss_between) / (enter + leave) are lost on average; with ``loss`` 1 and
    ``loss_between`` 0 a burst has 1 / leave packets on average.

    Attributes:
        enter: probability that the state is bad for the next packet, where it is good for this one: p.
        leave: probability that it is good for the next one, where it is bad for this one: r.
        loss: probability that a packet is lost in the bad state: 1-h.
        loss_between: the same in the good state: 1-k.

    Reference: E. Gilbert: Capacity of a burst-noise channel, BSTJ 1960; E. Elliott: Estimates of error rates for codes on
    burst-noise channels, BSTJ 1963. Names p, r, 1-h, 1-k as in tc-netem(8), gemodel.
    """

    enter: Share
    leave: float = Field(gt=0, le=1, allow_inf_nan=False)
    loss: float = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    loss_between: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)

    @property
    def mean(self) -> float:
        """Share of the packets that is lost on average."""
        return (self.enter * self.loss + self.leave * self.loss_between) / (self.enter + self.leave)

    @model_validator(mode="after")
    def _lets_some_pass(self) -> LossBursts:
        if self.mean >= 1.0:
            raise ValueError("bursts that lose every packet: take a smaller loss or enter")
        return self


class Reordering(StrictModel):
    """Packets that others overtake: they take a longer way behind the last link and reach the receiver later.

    Attributes:
        share: of the packets, each drawn by itself.
        extra_s: by how much they come later.

    Reference: RFC 4737 has the metrics of it.
    """

    share: float = Field(ge=0, lt=1, allow_inf_nan=False)
    extra_s: float = Field(ge=SHORTEST_EXTRA_S, le=LONGEST_EXTRA_S, allow_inf_nan=False)


class AckPath(StrictModel):
    """The way of a flow's ACKs.

    Attributes:
        route: names of links that they pass, in order; they wait there behind ACKs and data of other flows. What links do not
            take of the flow's rtt is behind them.
        ack_bytes: size of an ACK.
        loss_rate: share of the ACKs that is lost at random as they leave the receiver.
        loss_bursts: the same in bursts.
    """

    route: tuple[str, ...] = ()
    ack_bytes: float = Field(default=ACK_BYTES, ge=SMALLEST_PACKET_BYTES, le=LARGEST_PACKET_BYTES)
    loss_rate: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    loss_bursts: LossBursts | None = None


MAX_ARRIVALS = 1_000_000
MAX_SLOTS = 4096
ARRIVAL_COUNTER, SIZE_COUNTER = 2.0**46, 2.0**47  # keys of random numbers
PARETO_SHAPE = 1.2  # [4CP] s.5.1
LARGEST_PARETO = 1000.0  # times the mean

# Bytes -> share of flows that are not larger; between two points the share grows evenly.
CURVES: dict[str, tuple[tuple[float, float], ...]] = {
    # M. Alizadeh et al.: Data center TCP (DCTCP), SIGCOMM 2010, figure 4, read off as in Y. Li et al.: HPCC, SIGCOMM 2019.
    "web_search": (
        (0, 0), (1e4, 0.15), (2e4, 0.20), (3e4, 0.30), (5e4, 0.40), (8e4, 0.53), (2e5, 0.60), (1e6, 0.70), (2e6, 0.80),
        (5e6, 0.90), (1e7, 0.97), (3e7, 1),
    ),
    # A. Roy et al.: Inside the social network's (datacenter) network, SIGCOMM 2015, figure 6 (Hadoop), read off as in HPCC.
    "hadoop": (
        (0, 0), (100, 0.01), (200, 0.02), (300, 0.05), (350, 0.15), (400, 0.20), (500, 0.30), (600, 0.40), (700, 0.50),
        (1e3, 0.60), (2e3, 0.67), (7e3, 0.70), (3e4, 0.72), (5e4, 0.82), (8e4, 0.87), (1.2e5, 0.90), (3e5, 0.95),
        (1e6, 0.975), (2e6, 0.99), (1e7, 1),
    ),
}  # fmt: skip


class Arrivals(StrictModel):
    """Transfers that come one after the other, each as a new flow of its own.

    Attributes:
        kind: poisson (exponential gaps), or incast (``fan_in`` at once, every ``every_s``).
        flows: how many come in all.
        slots: how many may be there at once.
        load: for poisson: share of the rate of the flow's slowest link that they ask for on average.
        per_s: for poisson, instead of load: flows per second.
        fan_in, every_s: for incast.
        sizes: web_search, hadoop, pareto (shape 1.2, at most 1000 times the mean: [4CP] s.5.1), or fixed.
        size_bytes: of fixed, mean of pareto.
    """

    kind: Literal["poisson", "incast"] = "poisson"
    flows: int = Field(ge=1, le=MAX_ARRIVALS)
    slots: int = Field(default=256, ge=1, le=MAX_SLOTS)
    load: float | None = Field(default=None, gt=0, le=10)
    per_s: Positive | None = None
    fan_in: int = Field(default=0, ge=0, le=MAX_SLOTS)
    every_s: NotNegative = 0.0
    sizes: Literal["web_search", "hadoop", "pareto", "fixed"] = "fixed"
    size_bytes: float = Field(default=0.0, ge=0, le=1e12)

    @model_validator(mode="after")
    def _consistent(self) -> Arrivals:
        poisson = self.kind == "poisson"
        if poisson != ((self.load is None) != (self.per_s is None)):
            raise ValueError("arrivals 'poisson' need one of load and per_s, 'incast' none of them")
        if poisson == bool(self.fan_in or self.every_s) or (not poisson and not (self.fan_in and self.every_s)):
            raise ValueError("arrivals 'incast' need fan_in and every_s, and only they")
        if (self.sizes in CURVES) == bool(self.size_bytes):
            raise ValueError(f"size_bytes is {self.size_bytes:g}; 'pareto' and 'fixed' need it above 0, the others have none")
        return self

    @property
    def mean_bytes(self) -> float:
        """Mean size of a transfer."""
        if self.sizes not in CURVES:
            return self.size_bytes
        points = CURVES[self.sizes]
        return sum((q - p) * (a + b) / 2.0 for (a, p), (b, q) in pairwise(points))

    def drawn(self, key: int, flow: int, start_s: float, link_Bps: float) -> tuple[np.ndarray, np.ndarray]:
        """Return when transfers come, in seconds, ascending, and their bytes, (flows,) each; ``key`` is the seed of the run."""
        seed, own, n = float(key), float(flow), self.flows
        shares = np.array([uniform(seed, 0.0, own, SIZE_COUNTER + k) for k in range(n)])
        if self.kind == "incast":
            times_s = start_s + self.every_s * (np.arange(n) // self.fan_in)
        else:
            per_s = self.per_s if self.per_s is not None else (self.load or 0.0) * link_Bps / self.mean_bytes
            gaps = np.array([uniform(seed, 0.0, own, ARRIVAL_COUNTER + k) for k in range(n)])
            times_s = start_s + np.cumsum(-np.log(1.0 - gaps) / per_s)
        return times_s, self._sizes(shares)

    def _sizes(self, shares: np.ndarray) -> np.ndarray:
        if self.sizes == "fixed":
            return np.full(len(shares), self.size_bytes)
        if self.sizes == "pareto":
            smallest = self.size_bytes * (PARETO_SHAPE - 1.0) / PARETO_SHAPE
            return np.minimum(smallest * (1.0 - shares) ** (-1.0 / PARETO_SHAPE), LARGEST_PARETO * self.size_bytes)
        points = np.array(CURVES[self.sizes])
        sizes: np.ndarray = np.interp(shares, points[:, 1], points[:, 0])
        return sizes


MAX_FLOWS = 256
SHORTEST_PHASE_S = 1e-4  # of workloads
SHORTEST_BATCH_S = 1e-5  # of jitter and ACK aggregation
MAX_DELAYS = 1_000_000  # of a replay
LONGEST_BURST_S = 0.1  # of pacing
L4S_SENDERS = ("prague",)  # which reduce in proportion to the marks


class Red(StrictModel):
    """Random early detection with the parameters of ns-2, gentle off (Floyd, Jacobson 1993).

    Attributes:
        min_packets: averaged queue below which nothing is dropped.
        max_packets: averaged queue from which everything is dropped.
        max_probability: drop probability just below max_packets (ns-2: 1 / linterm).
        weight: weight of the newest queue in the average.
        ecn: mark instead of dropping between the thresholds.
    """

    min_packets: NotNegative = 5.0
    max_packets: Positive = 15.0
    max_probability: float = Field(default=0.1, gt=0, le=1)
    weight: float = Field(default=0.002, gt=0, le=1)
    ecn: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Red:
        if self.max_packets <= self.min_packets:
            raise ValueError(f"max_packets {self.max_packets:g} is not above min_packets {self.min_packets:g}")
        return self


class Codel(StrictModel):
    """CoDel (RFC 8289): constants of section 4.2 and 4.3.

    Attributes:
        target_s: standing delay that is tolerated.
        interval_s: for so long.
        ecn: mark packets that can be marked instead of dropping them (s.5.5 leaves it open; RFC 8290 s.4.2 does it).
    """

    target_s: Duration = 0.005
    interval_s: Duration = 0.1
    ecn: bool = False


class FqCodel(StrictModel):
    """FQ-CoDel (RFC 8290): a queue per flow, served by deficit round robin with new flows first, CoDel in each.

    Attributes:
        quantum_bytes: of a turn (s.5.2.4).
        codel: whether CoDel runs in the queues; without it they are isolated only, and the fullest one is cut.
        target_s, interval_s, ecn: of CoDel (s.5.2.1, 5.2.2, 5.2.5).
    """

    quantum_bytes: Annotated[float, Field(ge=64, le=1e6, allow_inf_nan=False)] = 1514.0
    codel: bool = True
    target_s: Duration = 0.005
    interval_s: Duration = 0.1
    ecn: bool = True


class Pie(StrictModel):
    """PIE (RFC 8033).

    Attributes:
        target_s: QDELAY_REF (s.4.2, 5.1).
        update_s: T_UPDATE (s.4.2).
        alpha, beta: 1/s (s.4.2).
        burst_s: MAX_BURST (s.4.4), for which drops wait at first.
        ecn: mark packets that can be marked up to a probability of 10 % (s.5.1).
    """

    target_s: Duration = 0.015
    update_s: Duration = 0.015
    alpha: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 0.125
    beta: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 1.25
    burst_s: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.15
    ecn: bool = False


class DualPi2(StrictModel):
    """DualQ Coupled AQM with PI2 (RFC 9332 appendix A).

    Attributes:
        target_s: of the classic queue (A.1).
        update_s: Tupdate (A.1).
        alpha, beta: Hz (A.1).
        coupling: k (A.1).
        ramp_start_s, ramp_s: from which delay on, and over which range, the L4S queue marks by itself (A.1).
        classic_share: of the link that the classic queue gets at least while both wait (s.2.4: weighted round robin).
        overload: classic drop probability from which packets of both queues are dropped whatever their codepoint (A.2).
    """

    target_s: Duration = 0.015
    update_s: Duration = 0.016
    alpha: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 0.16
    beta: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 3.2
    coupling: Annotated[float, Field(ge=1, le=10, allow_inf_nan=False)] = 2.0
    ramp_start_s: Duration = 0.0008
    ramp_s: Share = 0.0004
    classic_share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.1
    overload: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.25


class Policer(StrictModel):
    """A token bucket before the queue: what finds no token is dropped (RFC 2475 s.2.3.3.3; RFC 2697 with one colour).

    Attributes:
        rate_Bps: at which tokens come.
        burst_bytes: that the bucket holds.
    """

    rate_Bps: Positive
    burst_bytes: Positive

    @model_validator(mode="after")
    def _holds_a_packet(self) -> Policer:
        if self.burst_bytes < 64:
            raise ValueError(f"burst_bytes {self.burst_bytes:g} holds no packet")
        return self


class RateStep(StrictModel):
    """From time_s on the link serves at rate_Bps; 0: an outage."""

    time_s: Positive
    rate_Bps: NotNegative


class LinkSpec(StrictModel):
    """A link: a queue, a rate, a propagation delay.

    Attributes:
        name: by which routes name it.
        rate_Bps: bytes/s.
        delay_s: one-way propagation delay after it.
        buffer_bytes: waiting room, the packet in service not counted; infinite: as much as all windows hold.
        discipline: drop_tail, red, ecn (mark from threshold_packets on), codel, pie, fq_codel or dualpi2; the buffer stays
            behind each of them.
        red: for red.
        codel, fq_codel, pie, dualpi2: for the discipline of that name.
        policer: a token bucket before the queue.
        threshold_packets: for ecn: packets that wait when an arriving one is marked.
        rate_steps: ascending in time.
        trace: its rate over time instead: a shipped trace or a file (``ccenv.network.links``). ``rate_Bps`` is then the mean.
        generator: the same, made from the seed (``ccenv.engine.packet.generators``).
    """

    name: str = "bottleneck"
    rate_Bps: Positive
    delay_s: NotNegative = 0.0
    buffer_bytes: float = Field(default=math.inf, gt=0)
    discipline: Literal["drop_tail", "red", "ecn", "codel", "pie", "fq_codel", "dualpi2"] = "drop_tail"
    red: Red = Red()
    codel: Codel = Codel()
    fq_codel: FqCodel = FqCodel()
    pie: Pie = Pie()
    dualpi2: DualPi2 = DualPi2()
    policer: Policer | None = None
    threshold_packets: NotNegative = 0.0
    rate_steps: tuple[RateStep, ...] = ()
    trace: str = ""
    generator: Generator | None = None

    @model_validator(mode="before")
    @classmethod
    def _mean_rate(cls, data: Any) -> Any:
        return with_mean_rate(data) if isinstance(data, dict) else data

    @property
    def peak_Bps(self) -> float:
        """Return the largest rate that it has for any length of time."""
        if self.trace:
            return load_trace(self.trace).peak_Bps
        if self.generator is not None:
            return PEAK * self.generator.mean_Bps
        return max(self.rate_Bps, *(step.rate_Bps for step in self.rate_steps), 0.0)

    @property
    def adds_delays(self) -> bool:
        """Return whether a trace or generator changes its delay."""
        return (bool(self.trace) and load_trace(self.trace).has_delays) or (
            isinstance(self.generator, Leo) and self.generator.delay_s > 0
        )

    @model_validator(mode="after")
    def _varies_in_one_way(self) -> LinkSpec:
        variations = [name for name in ("trace", "generator", "rate_steps") if getattr(self, name)]
        if len(variations) > 1:
            raise ValueError(f"link {self.name!r} has {' and '.join(variations)}; one of them is allowed")
        if self.rate_steps and self.rate_steps[-1].rate_Bps == 0:
            raise ValueError(f"link {self.name!r}: its rate is 0 for ever after {self.rate_steps[-1].time_s:g} s")
        if self.discipline == "pie" and any(step.rate_Bps == 0 for step in self.rate_steps):
            raise ValueError(f"link {self.name!r}: pie divides by the rate; its rate_steps must be above 0")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> LinkSpec:
        times = [step.time_s for step in self.rate_steps]
        if times != sorted(set(times)):
            raise ValueError(f"link {self.name!r}: rate_steps must have ascending, distinct times")
        if self.discipline == "ecn" and self.threshold_packets <= 0:
            raise ValueError(f"link {self.name!r}: discipline 'ecn' needs threshold_packets > 0")
        for name in ("fq_codel", "pie", "dualpi2"):
            if self.discipline != name and getattr(self, name) != type(getattr(self, name))():
                raise ValueError(f"link {self.name!r}: {name} is given, but the discipline is {self.discipline!r}")
        return self


class JitterSpec(StrictModel):
    """A jitter box between the last link and the receiver: in order, every packet held at most max_s.

    Attributes:
        kind: none; constant (max_s for all); batch ([CCmatic] App. H: packets are released together after a time drawn from
            U[0, max_s)); uniform (each packet by a time of its own from U[0, max_s)); interval (released at integer multiples
            of interval_s: [Starvation] s.5.3); early (held for max_s, but for the first packet from at_s on, again every every_s
            where that is not 0: [Starvation] s.5.1); replay (a packet that comes in the n-th interval_s is held for the n-th of
            delays_s, again from the first after the last); adversary (an adversary decides every 10 ms).
        max_s: D.
        interval_s: for interval and replay.
        delays_s: for replay: at most max_s each.
        at_s: for early.
        every_s: for early.
        adversary: for adversary: its name and parameters.
    """

    kind: Literal["none", "constant", "batch", "uniform", "interval", "early", "replay", "adversary"] = "none"
    max_s: NotNegative = 0.0
    interval_s: NotNegative = 0.0
    delays_s: tuple[NotNegative, ...] = Field(default=(), max_length=MAX_DELAYS)
    at_s: NotNegative = 0.0
    every_s: NotNegative = 0.0
    adversary: str = ""

    @model_validator(mode="after")
    def _needs_its_fields(self) -> JitterSpec:
        if self.kind != "none" and self.max_s <= 0:
            raise ValueError(f"jitter {self.kind!r} needs max_s > 0")
        if self.kind == "batch" and self.max_s < SHORTEST_BATCH_S:
            raise ValueError(f"jitter 'batch' needs max_s of at least {SHORTEST_BATCH_S:g}")
        if self.kind in ("interval", "replay") and self.interval_s < SHORTEST_BATCH_S:
            raise ValueError(f"jitter {self.kind!r} needs interval_s of at least {SHORTEST_BATCH_S:g}")
        if (self.kind == "replay") != bool(self.delays_s):
            raise ValueError("jitter 'replay' needs delays_s, and only it")
        if max(self.delays_s, default=0.0) > self.max_s:
            raise ValueError(f"jitter 'replay' has a delay of {max(self.delays_s):g} s, above max_s {self.max_s:g}")
        if (self.kind == "adversary") != bool(self.adversary):
            raise ValueError("jitter 'adversary' needs the name of an adversary, and only it")
        return self


class ReceiverSpec(StrictModel):
    """When a receiver acknowledges, and how its ACKs come back.

    Attributes:
        ack_every: packets per ACK.
        quick_acks: the first so many packets have an ACK each, as in Linux (tcp_enter_quickack_mode), whatever ack_every is.
        ack_timeout_s: after the first unacknowledged packet an ACK is sent at the latest.
        aggregation: none; interval (ACKs arrive at integer multiples of aggregate_s); batch (together after times drawn from
            U[0, aggregate_s)): as on shared return links, in order.
        aggregate_s: for interval and batch.
        merge: of ACKs that arrive together only the newest does.
    """

    ack_every: int = Field(default=1, ge=1, le=1024)
    quick_acks: int = Field(default=0, ge=0, le=10**6)
    ack_timeout_s: Positive = 0.04
    aggregation: Literal["none", "interval", "batch"] = "none"
    aggregate_s: NotNegative = 0.0
    merge: bool = False

    @model_validator(mode="after")
    def _needs_its_fields(self) -> ReceiverSpec:
        if self.aggregation != "none" and self.aggregate_s < SHORTEST_BATCH_S:
            raise ValueError(f"ACK aggregation {self.aggregation!r} needs aggregate_s of at least {SHORTEST_BATCH_S:g}")
        if self.aggregation == "none" and (self.aggregate_s > 0 or self.merge):
            raise ValueError("aggregate_s and merge need an ACK aggregation 'interval' or 'batch'")
        return self

    @property
    def longest_wait_s(self) -> float:
        """Return for how long a delivered packet may stay unacknowledged, beyond the propagation delay of its ACK."""
        return (self.ack_timeout_s if self.ack_every > 1 else 0.0) + self.aggregate_s


class WorkloadSpec(StrictModel):
    """What the application offers.

    Attributes:
        kind: bulk; rate (rate_Bps); on_off (bulk for on_s, nothing for off_s); finite (size_bytes); batches (size_bytes every
            every_s); web (objects of mean size_bytes, Pareto with shape 1.2, at exponential gaps of mean every_s); asked (what
            an application of the scenario asks for).
        rate_Bps: for rate.
        on_s: for on_off.
        off_s: for on_off.
        size_bytes: for finite, batches, web.
        every_s: for batches, web.
    """

    kind: Literal["bulk", "rate", "on_off", "finite", "batches", "web", "asked"] = "bulk"
    rate_Bps: NotNegative = 0.0
    on_s: NotNegative = 0.0
    off_s: NotNegative = 0.0
    size_bytes: NotNegative = 0.0
    every_s: NotNegative = 0.0

    @model_validator(mode="after")
    def _sends(self) -> WorkloadSpec:
        for name in _NEEDED.get(self.kind, ()):
            if getattr(self, name) <= 0:
                raise ValueError(f"workload {self.kind!r} needs {name} > 0: it would never send")
            if name.endswith("_s") and getattr(self, name) < SHORTEST_PHASE_S:
                raise ValueError(f"workload {self.kind!r}: {name} must be at least {SHORTEST_PHASE_S:g}")
        return self

    def parameters(self) -> tuple[float, float]:
        """Return the two numbers of this kind, for the kernel."""
        values = [getattr(self, name) for name in self.needed(self.kind)]
        return (*values, 0.0, 0.0)[:2]

    @staticmethod
    def needed(kind: str) -> tuple[str, ...]:
        """Return the names of the numbers of a kind, in the kernel's order."""
        return _NEEDED.get(kind, ())


_NEEDED = {
    "rate": ("rate_Bps",),
    "on_off": ("on_s", "off_s"),
    "finite": ("size_bytes",),
    "batches": ("size_bytes", "every_s"),
    "web": ("size_bytes", "every_s"),
}


class FlowSpec(StrictModel):
    """A flow.

    Attributes:
        name: for results; the sender's by default.
        sender: name and parameters of its CCA.
        rtt_s: propagation round-trip time Rm over all of its route, jitter and queues not counted.
        told_rtt_s: Rm as belief programs and policies are told it; the true one by default.
        rtt_known: whether they take it as known; otherwise their bounds go by the smallest RTT seen ([CCmatic] App. B.1).
        access_s: part of it before the first link. What links and access do not take is on the return path.
        route: names of links in order; by default all links in their order that its ACKs do not pass.
        start_s: when it starts.
        stop_s: when it stops sending.
        loss_rate: share of its packets lost at random before the first link.
        loss_bursts: the same in bursts.
        reordering: packets that others overtake.
        ack_path: the way of its ACKs; by default they are back after what is left of rtt_s.
        mss_bytes: size of its packets; by default that of the network.
        recovery: how it finds losses: sack (three later packets, RFC 6675), rack (by time, with tail loss probes, RFC 8985), or
            flight (as sack, but fast recovery ends when what was in flight at its start has been delivered or lost).
        ecn: codepoint of its packets: none (dropped where others are marked), classic (ECT(0)) or l4s (ECT(1), RFC 9331); by
            default l4s for the senders L4S_SENDERS and classic for all others.
        burst_s: packets that a paced sender sends at once are those of this time at its rate: two at least above 1.2 Mbit/s,
            64 KiB at most, as sch_fq and TSO in Linux do it; 0: one by one.
        handshake: it knows the RTT of a handshake, Rm, when it starts (RFC 6298 s.2); the handshake itself is not simulated.
        duplicate_acks: whether ACKs that leave the cumulative one where it was grow the window, by what they say has arrived:
            grow, or hold (RFC 5681 s.3.2).
        jitter: its jitter box.
        receiver: its receiver.
        workload: what its application offers.
        arrivals: instead of one flow, transfers that come and go, each a new flow of this kind.
    """

    name: str = ""
    sender: str
    rtt_s: Positive
    told_rtt_s: Positive | None = None
    rtt_known: bool = True
    access_s: NotNegative = 0.0
    route: tuple[str, ...] = ()
    start_s: NotNegative = 0.0
    stop_s: float = Field(default=math.inf, gt=0)
    loss_rate: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    loss_bursts: LossBursts | None = None
    reordering: Reordering | None = None
    ack_path: AckPath | None = None
    mss_bytes: float | None = Field(default=None, ge=SMALLEST_PACKET_BYTES, le=LARGEST_PACKET_BYTES)
    recovery: Literal["sack", "rack", "flight"] = "sack"
    ecn: Literal["none", "classic", "l4s"] | None = None
    burst_s: float = Field(default=0.0, ge=0, le=LONGEST_BURST_S)
    handshake: bool = False
    duplicate_acks: Literal["grow", "hold"] = "grow"
    jitter: JitterSpec = JitterSpec()
    receiver: ReceiverSpec = ReceiverSpec()
    workload: WorkloadSpec = WorkloadSpec()
    arrivals: Arrivals | None = None

    @property
    def jitter_s(self) -> float:
        """Return D as the sender sees it: jitter box, longer way, the receiver's ACK policy and what holds ACKs on their way."""
        extra_s = self.reordering.extra_s if self.reordering else 0.0
        return self.jitter.max_s + extra_s + self.receiver.longest_wait_s

    @property
    def codepoint(self) -> str:
        return self.ecn or ("l4s" if self.sender.partition(":")[0] in L4S_SENDERS else "classic")

    @property
    def sender_rtt_s(self) -> float:
        """Return Rm as belief programs and policies are told it."""
        return self.told_rtt_s or self.rtt_s

    @model_validator(mode="after")
    def _starts(self) -> FlowSpec:
        if self.stop_s <= self.start_s:
            raise ValueError(f"stop_s {self.stop_s:g} is not after start_s {self.start_s:g}")
        if self.arrivals and (self.workload != WorkloadSpec() or self.jitter.kind == "adversary" or self.stop_s < math.inf):
            raise ValueError("a flow with arrivals has no workload, no stop_s and no adversary of its own")
        if self.arrivals and (self.ack_path or self.reordering):
            raise ValueError("a flow with arrivals has no ack_path and no reordering")
        if self.reordering and self.jitter.kind == "adversary":
            raise ValueError("packets behind an adversary's jitter box keep their order: reordering is not possible there")
        return self


class NetworkSpec(StrictModel):
    """Links and flows of one run.

    Attributes:
        links: in the order of the default route.
        flows: at least one.
        mss_bytes: size of the packets of flows that have none of their own.
    """

    links: tuple[LinkSpec, ...] = Field(min_length=1)
    flows: tuple[FlowSpec, ...] = Field(min_length=1, max_length=MAX_FLOWS)
    mss_bytes: Positive = DEFAULT_MSS_BYTES

    @model_validator(mode="after")
    def _consistent(self) -> NetworkSpec:
        names = [link.name for link in self.links]
        if len(set(names)) < len(names):
            raise ValueError(f"links must have distinct names, not {names}")
        for flow in self.flows:
            for name in (*flow.route, *(flow.ack_path.route if flow.ack_path else ())):
                if name not in names:
                    raise ValueError(f"flow {self.flows.index(flow)}: no link {name!r} in its route.{did_you_mean(name, names)}")
        for index, link in enumerate(self.links):
            sizes = self.sizes_on(index)
            if link.buffer_bytes < max(sizes):
                raise ValueError(f"link {link.name!r}: a buffer of {link.buffer_bytes:g} bytes holds no packet of {max(sizes):g}")
            if self.is_mixed(index) and link.discipline in ("red", "ecn"):
                raise ValueError(
                    f"link {link.name!r} carries packets of several sizes, and {link.discipline} counts packets of one; "
                    "take drop_tail, codel, fq_codel, pie or dualpi2"
                )
        for index, flow in enumerate(self.flows):
            route, back = self.route_of(index), self.back_of(index)
            if not route:
                raise ValueError(f"flow {index}: its ACKs pass all links; its data needs one")
            if set(route) & set(back):
                shared = names[min(set(route) & set(back))]
                raise ValueError(f"flow {index}: its data and its ACKs pass link {shared!r}; a link is not for both ways")
            if any(len(set(way)) < len(way) or len(way) > MAX_HOPS for way in (route, back)):
                raise ValueError(f"flow {index}: a route has at most {MAX_HOPS} links, each once, not {list(flow.route)}")
            if flow.jitter.kind == "adversary" and self.links[route[-1]].adds_delays:
                raise ValueError(f"flow {index}: an adversary's jitter box cannot stand behind a link whose delay changes")
            if self.return_s(index) < 0:
                raise ValueError(f"flow {index}: access and links take longer than its rtt_s of {flow.rtt_s:g}")
        return self

    def route_of(self, flow: int) -> list[int]:
        """Return the indices of a flow's links."""
        names = [link.name for link in self.links]
        route = [names.index(name) for name in self.flows[flow].route]
        back = self.back_of(flow) if self.flows[flow].ack_path else []
        return route or [index for index in range(len(names)) if index not in back]

    def back_of(self, flow: int) -> list[int]:
        """Return the indices of the links of a flow's ACKs."""
        names, path = [link.name for link in self.links], self.flows[flow].ack_path
        return [names.index(name) for name in path.route] if path else []

    def mss_of(self, flow: int) -> float:
        return self.flows[flow].mss_bytes or self.mss_bytes

    def is_mixed(self, link: int) -> bool:
        """Return whether a link carries ACKs, or packets of another size than the network's."""
        return self.sizes_on(link) != {self.mss_bytes} or any(link in self.back_of(flow) for flow in range(len(self.flows)))

    def sizes_on(self, link: int) -> set[float]:
        """Return the sizes of the packets that a link carries; of one that no flow passes, that of the network."""
        sizes: set[float] = set()
        for index, flow in enumerate(self.flows):
            if link in self.route_of(index):
                sizes.add(self.mss_of(index))
            if flow.ack_path and link in self.back_of(index):
                sizes.add(flow.ack_path.ack_bytes)
        return sizes or {self.mss_bytes}

    def return_s(self, flow: int) -> float:
        """Return the propagation delay of a flow's return path."""
        links = [*self.route_of(flow), *self.back_of(flow)]
        return self.flows[flow].rtt_s - (self.flows[flow].access_s + sum(self.links[link].delay_s for link in links))
