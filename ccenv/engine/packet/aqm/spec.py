"""Parameters of queue disciplines. Strict data, SI units."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from ccenv.base.config import StrictModel

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Duration = Annotated[float, Field(ge=1e-4, le=10, allow_inf_nan=False)]


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
    ramp_s: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0004
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
