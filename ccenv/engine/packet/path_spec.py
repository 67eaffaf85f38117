"""What a path does to the packets and ACKs of a flow. Strict data, SI units."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from ccenv.base.config import StrictModel

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
SMALLEST_PACKET_BYTES, LARGEST_PACKET_BYTES = 20.0, 65_536.0
ACK_BYTES = 40.0  # RFC 3449 s.2: an ACK without options
SHORTEST_EXTRA_S, LONGEST_EXTRA_S = 1e-5, 10.0


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

    enter: float = Field(ge=0, le=1, allow_inf_nan=False)
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
