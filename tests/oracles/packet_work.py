"""Applications of the plain packet reference: what they offer, in whole segments."""

import math

from ccenv.base.random import uniform
from ccenv.engine.packet.arrivals import LARGEST_OBJECT, LARGEST_OFFER, PARETO_SHAPE, ROUNDING, SHORTEST_S
from ccenv.engine.packet.layout import WORKLOAD_COUNTER
from ccenv.engine.packet.spec import FlowSpec
from oracles.packet_link import NEVER


class ReferenceWork:
    """The application of one flow; what a flow is beside it, ``oracles.packet_flow`` adds."""

    spec: FlowSpec
    seed: int
    index: int
    mss: float
    offered: float
    app_next_s: float
    app_draws: float
    next_segment: int

    def begin_work(self) -> None:
        """Set what is offered at the start."""
        work = self.spec.workload
        if work.kind == "finite":
            self.offered = math.ceil(work.size_bytes / self.mss)
        elif work.kind == "on_off":
            self.app_next_s = self.spec.start_s + work.on_s
        elif work.kind == "asked":
            self.offered = 0
        elif work.kind != "bulk":
            self.offered, self.app_next_s = 0, self.spec.start_s

    def offer_work(self, now_s: float) -> None:
        """Bring what is offered by now."""
        work, start_s = self.spec.workload, self.spec.start_s
        while self.app_next_s <= now_s:
            if work.kind == "rate":
                self.offered = 1 + math.floor(min((now_s - start_s) * work.rate_Bps / self.mss + ROUNDING, LARGEST_OFFER))
                self.app_next_s = max(start_s + self.offered * self.mss / work.rate_Bps, now_s + SHORTEST_S)
            elif work.kind == "batches":
                self.offered += math.ceil(work.size_bytes / self.mss)
                self.app_draws += 1.0
                self.app_next_s = start_s + self.app_draws * work.every_s
            elif work.kind == "web":
                size, gap = (
                    uniform(float(self.seed), 0.0, float(self.index), WORKLOAD_COUNTER + self.app_draws + k) for k in (0.0, 1.0)
                )
                self.app_draws += 2.0
                smallest = work.size_bytes * (PARETO_SHAPE - 1.0) / PARETO_SHAPE
                bytes_ = min(smallest * (1.0 - size) ** (-1.0 / PARETO_SHAPE), LARGEST_OBJECT * work.size_bytes)
                self.offered += math.ceil(bytes_ / self.mss)
                self.app_next_s -= work.every_s * math.log(1.0 - gap)
            elif self.offered == NEVER:
                self.offered = self.next_segment
                self.app_next_s += work.off_s
            else:
                self.offered = NEVER
                self.app_next_s += work.on_s
