"""Metrics of a fluid run, as in [BBR-fluid] section 4.3."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ccenv.engine.fluid.assemble import Arrays
from ccenv.network.metrics.measures import jain_or_one, percent


@dataclass(frozen=True)
class LinkMetrics:
    """One link over the measured time: loss = lost/arrived, occupancy = mean queue/buffer, utilisation = departed/(C T)."""

    loss_pct: float
    occupancy_pct: float
    utilisation_pct: float


@dataclass(frozen=True)
class Metrics:
    """A run over the measured time; the names of one value for the whole run are those of ``ccenv.network.metrics.table``.

    Attributes:
        jain: Jain's index over mean sending rates (1/N to 1).
        loss_pct: lost over sent-to-links bytes, all links.
        occupancy_pct: mean queue over buffer of the first link.
        utilisation_pct: of the first link.
        jitter_ms: mean |RTT difference|, RTT sampled every mss N / C (the virtual packet rate of section 4.3.5).
        rate_Bps: mean sending rate of each flow.
        delivered_Bps: mean rate of each flow at the egress of its last link.
        rtt_ms: mean RTT of each flow.
        links: each link.
        conservation_error: largest relative imbalance of arrived = lost + departed + queued, over links and whole run,
            and of the flows' accepted bytes against the links'.
    """

    jain: float
    loss_pct: float
    occupancy_pct: float
    utilisation_pct: float
    jitter_ms: float
    rate_Bps: tuple[float, ...]
    delivered_Bps: tuple[float, ...]
    rtt_ms: tuple[float, ...]
    links: tuple[LinkMetrics, ...]
    conservation_error: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def metrics_of(arrays: Arrays) -> Metrics:
    """Compute the metrics from the sums that the kernel kept."""
    cfg, flows, links = arrays.cfg[0], arrays.flows, arrays.links
    n_steps = int(cfg["steps"] - cfg["measure_step"])
    time_s = n_steps * float(cfg["step_s"])
    back = np.argsort(arrays.order)
    per_link = tuple(
        LinkMetrics(
            loss_pct=percent(link["lost_sum_bytes"], link["arrived_sum_bytes"]),
            occupancy_pct=percent(link["queue_sum_bytes"] / n_steps, link["buffer_bytes"]),
            utilisation_pct=percent(link["departed_sum_bytes"], link["capacity_Bps"] * time_s),
        )
        for link in links
    )
    sent = flows["sent_bytes"][back]
    return Metrics(
        jain=jain_or_one(sent),
        loss_pct=percent(links["lost_sum_bytes"].sum(), links["arrived_sum_bytes"].sum()),
        occupancy_pct=per_link[0].occupancy_pct,
        utilisation_pct=per_link[0].utilisation_pct,
        jitter_ms=1e3 * float(np.mean(flows["jitter_sum_s"] / np.maximum(flows["jitter_samples"], 1.0))),
        rate_Bps=tuple(float(x) for x in sent / time_s),
        delivered_Bps=tuple(float(x) for x in flows["delivered_bytes"][back] / time_s),
        rtt_ms=tuple(float(x) for x in 1e3 * flows["rtt_sum_s"][back] / n_steps),
        links=per_link,
        conservation_error=_conservation_error(flows, links),
    )


def _conservation_error(flows: np.ndarray, links: np.ndarray) -> float:
    arrived = np.maximum(links["all_arrived_bytes"], 1.0)
    balance = links["all_arrived_bytes"] - links["all_lost_bytes"] - links["departed_bytes"] - links["queue_bytes"]
    lost = np.abs(flows["all_lost_bytes"].sum() - links["all_lost_bytes"].sum()) / arrived.sum()
    return float(max(np.max(np.abs(balance) / arrived), lost))
