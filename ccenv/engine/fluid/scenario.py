"""What to simulate: links, flows, initial conditions, as strict data (the YAML form uses Mbit/s and ms)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from ccenv.base.config import validate
from ccenv.base.errors import did_you_mean
from ccenv.engine.fluid.parameters import CCA_CODES, DISCIPLINE_CODES, PARAMETER_SETS, FiniteModel, Parameters, parameters

MSS_BYTES = 1514
MOST_LINKS, MOST_FLOWS = 100, 1_000


def require_name(kind: str, name: str, valid: Collection[str]) -> str:
    """Return a name that is valid. Raises ValueError with suggestions for another one."""
    if name not in valid:
        raise ValueError(f"unknown {kind} {name!r}.{did_you_mean(name, valid)}")
    return name


Discipline = Annotated[str, AfterValidator(lambda name: require_name("discipline", name, DISCIPLINE_CODES))]
Cca = Annotated[str, AfterValidator(lambda name: require_name("fluid CCA", name, CCA_CODES))]
ParameterSet = Annotated[str, AfterValidator(lambda name: require_name("parameter set", name, PARAMETER_SETS))]


class Red(FiniteModel):
    """Random early detection: thresholds as shares of the buffer.

    Attributes:
        q0: queue below which nothing is dropped.
        q1: queue above which everything is dropped.
        p1: drop probability at q1.
        averaging_s: time constant of the queue average; 0 acts on the queue itself, as [BBR-fluid] eq. 6.
    """

    q0: float = Field(default=0.0, ge=0, lt=1)
    q1: float = Field(default=1.0, gt=0, le=1)
    p1: float = Field(default=1.0, gt=0, le=1)
    averaging_s: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Red:
        if self.q0 >= self.q1:
            raise ValueError(f"q0 ({self.q0:g}) must be below q1 ({self.q1:g})")
        return self


class Link(FiniteModel):
    """A link with a buffer.

    Attributes:
        name: by which flows name it.
        rate_mbps: capacity C, Mbit/s.
        delay_ms: one-way propagation delay from this link's egress on, ms.
        buffer_bdp: buffer in units of rate x delay of this link, in whole packets (the unit of [BBR-fluid] section 4).
        discipline: `drop-tail` or `red`.
        red: RED's thresholds, used with `red` only.
    """

    name: str = "bottleneck"
    rate_mbps: float = Field(gt=0)
    delay_ms: float = Field(gt=0)
    buffer_bdp: float = Field(gt=0)
    discipline: Discipline = "drop-tail"
    red: Red = Red()

    @property
    def capacity_Bps(self) -> float:
        """Capacity in bytes/s."""
        return self.rate_mbps * 125_000.0

    @property
    def delay_s(self) -> float:
        """One-way propagation delay in seconds."""
        return self.delay_ms * 1e-3

    def bdp_bytes(self, mss_bytes: float) -> float:
        """Return rate x delay in whole packets (83 packets of 1514 B at 100 Mbit/s and 10 ms)."""
        return -(-self.capacity_Bps * self.delay_s // mss_bytes) * mss_bytes

    def buffer_bytes(self, mss_bytes: float) -> float:
        return self.buffer_bdp * self.bdp_bytes(mss_bytes)


class Start(FiniteModel):
    """Initial conditions of a flow; what is not given follows from the scenario.

    Attributes:
        x_btl_share: x_btl(0) as a share of the bottleneck's capacity (default 1/N).
        x_max_share: x_max(0) likewise (default x_btl(0)).
        tau_min_ms: min-RTT estimate (default the propagation delay).
        inflight_hi_bdp: w_hi(0) in BDPs of the flow, x_btl(0) times its propagation RTT (default: Parameters.hi_start
            and its slope; [BBR-fluid] section 4.3.3, insight 5).
        cwnd_bdp: window of Reno and CUBIC in the same unit (default 1). CUBIC starts on the plateau, w = w_max.
        probe_rtt_timer_s: time to the first ProbeRTT (default the full interval).
        period_time_s: time within the ProbeBW period (default 0; with form `code` BBRv2 starts in cruise, see
            Parameters.start_phase_rtts).
    """

    x_btl_share: float | None = Field(default=None, gt=0)
    x_max_share: float | None = Field(default=None, ge=0)
    tau_min_ms: float | None = Field(default=None, gt=0)
    inflight_hi_bdp: float | None = Field(default=None, gt=0)
    cwnd_bdp: float = Field(default=1.0, gt=0)
    probe_rtt_timer_s: float | None = Field(default=None, gt=0)
    period_time_s: float | None = Field(default=None, ge=0)


class Flow(FiniteModel):
    """One sender.

    Attributes:
        cca: `bbr1`, `bbr2`, `reno` or `cubic`.
        access_delay_ms: one-way delay from the sender to its first link, ms. The way back takes as long as the way
            there, so the propagation RTT is 2 (access delay + delays of the links on the path).
        path: names of the links in order (default: the only link).
        agent: the number i that stands in for randomness in the phase (eq. 22) and period (eq. 25); default: position
            among the flows, from 1.
        start: initial conditions.
    """

    cca: Cca
    access_delay_ms: float = Field(gt=0)
    path: tuple[str, ...] = ()
    agent: int | None = Field(default=None, ge=1)
    start: Start = Start()


class Experiment(FiniteModel):
    """What a scenario and a sweep have in common.

    Attributes:
        title: one line for people.
        params: name of the parameter set.
        overrides: constants that differ from the set (see Parameters).
        duration_s: simulated time.
        measure_from_s: metrics cover the time from here to the end.
        step_ms: step of the method of steps.
        mss_bytes: packet size.
    """

    title: str = ""
    params: ParameterSet = "paper"
    overrides: dict[str, float] = Field(default_factory=dict)
    duration_s: float = Field(default=9.0, gt=0)
    measure_from_s: float = Field(default=4.0, ge=0)
    step_ms: float = Field(default=0.05, gt=0)
    mss_bytes: int = Field(default=MSS_BYTES, ge=1)


class Scenario(Experiment):
    """One simulation.

    Attributes:
        kind: always `scenario` (distinguishes the YAML file from a sweep).
        links: at least one.
        flows: at least one.
    """

    kind: Literal["scenario"] = "scenario"
    links: tuple[Link, ...] = Field(min_length=1, max_length=MOST_LINKS)
    flows: tuple[Flow, ...] = Field(min_length=1, max_length=MOST_FLOWS)

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        names = [link.name for link in self.links]
        if len(set(names)) != len(names):
            raise ValueError(f"link names must differ (got {', '.join(names)})")
        agents = self.agents
        if len(set(agents)) != len(agents):
            raise ValueError(f"agent numbers must differ (got {', '.join(map(str, agents))})")
        for flow in self.flows:
            if not flow.path and len(names) > 1:
                raise ValueError("a flow needs a path when there are several links")
            for name in flow.path:
                require_name("link", name, names)
            if len(set(flow.path)) != len(flow.path):
                raise ValueError(f"a path may use a link once (got {', '.join(flow.path)})")
        if self.measure_from_s >= self.duration_s:
            raise ValueError(f"measure_from_s ({self.measure_from_s:g}) must be below duration_s ({self.duration_s:g})")
        smallest_ms = min([flow.access_delay_ms for flow in self.flows] + [link.delay_ms for link in self.links])
        if self.step_ms > smallest_ms:
            raise ValueError(f"step_ms {self.step_ms:g} is larger than the smallest delay, {smallest_ms:g} ms")
        if self.step_ms * 1e-3 > self.duration_s - self.measure_from_s:
            raise ValueError(f"step_ms {self.step_ms:g} is larger than the measured time")
        return self

    @property
    def agents(self) -> list[int]:
        return [flow.agent if flow.agent is not None else i + 1 for i, flow in enumerate(self.flows)]

    @property
    def constants(self) -> Parameters:
        """The parameter set with the overrides. Raises InputError on an unknown or illegal constant."""
        return validate(Parameters, parameters(self.params).model_dump() | self.overrides, "overrides")

    def path_links(self, flow: Flow) -> list[int]:
        """Return the indices of the links on a flow's path, in order."""
        names = [link.name for link in self.links]
        return [names.index(name) for name in flow.path] if flow.path else [0]
