"""A fluid sweep in the packet engine: the third column beside the paper's statements and the fluid model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ccenv.base import random as rng
from ccenv.base.errors import InputError
from ccenv.engine.fluid.sweep import Sweep
from ccenv.network.metrics.packet import RunWindow, sending_rates_Bps
from ccenv.network.metrics.table import MIX_METRICS, OF_RUN
from ccenv.network.path import MBPS_IN_BPS
from ccenv.simulation import simulate

RUNS = 3  # [BBR-fluid] section 4.3 averages its experiments over three runs
START_SPREAD_S = 0.1  # the flows of a run start within this time, so that runs differ
RED_WEIGHT = 0.002  # of the newest queue in the average: ns-2's default


def packet_cells(sweep: Sweep, runs: int = RUNS, progress: Callable[[int, int], None] | None = None) -> list[dict[str, Any]]:
    """Run every cell of a sweep in the packet engine; ``progress`` is called with the numbers of finished and of all cells.

    The senders are the packet engine's own (real start-up, windows of packets, loss recovery), the network is the sweep's: one
    bottleneck, access delays before it, the same buffer in packets. RED has the sweep's thresholds on ns-2's averaged queue. The
    runs of a cell differ in the start times of the flows.

    Returns:
        list: per cell the keys of ``Sweep.run`` that the two have in common, each the mean over the runs, and per metric the
        standard deviation over the runs under ``spread``.

    Raises:
        InputError: for fewer runs than one.
        EngineError: if a sender leaves the positive numbers.
    """
    if runs < 1:
        raise InputError(f"packet runs must be at least 1 (got {runs})")
    cells, keys = [], sweep.cells()
    for done, key in enumerate(keys, start=1):
        measured = [_measure(sweep, *key, run) for run in range(runs)]
        values = {name: [m[name] for m in measured] for name in MIX_METRICS}
        cells.append(
            dict(zip(("mix", "discipline", "buffer_bdp"), key, strict=True))
            | {name: float(np.mean(v)) for name, v in values.items()}
            | {
                "rate_Bps": [float(r) for r in np.mean([m["rate_Bps"] for m in measured], axis=0)],
                "spread": {name: float(np.std(v, ddof=1)) if runs > 1 else 0.0 for name, v in values.items()},
                "runs": runs,
            }
        )
        if progress is not None:
            progress(done, len(keys))
    return cells


def packet_scenario(sweep: Sweep, mix: str, discipline: str, buffer_bdp: float, run: int = 0) -> dict[str, Any]:
    """Return one cell as a scenario of the packet engine (the mapping that ``ccenv.simulate`` takes)."""
    fluid = sweep.scenario(mix, discipline, buffer_bdp)
    buffer_bytes = fluid.links[0].buffer_bytes(sweep.mss_bytes)
    link: dict[str, Any] = {
        "rate_Bps": sweep.rate_mbps * MBPS_IN_BPS,
        "delay_s": 1e-3 * sweep.delay_ms,
        "buffer_bytes": buffer_bytes,
        "discipline": discipline.replace("-", "_"),
    }
    if discipline == "red":
        packets = buffer_bytes / sweep.mss_bytes
        link["red"] = {
            "min_packets": sweep.red.q0 * packets,
            "max_packets": sweep.red.q1 * packets,
            "max_probability": sweep.red.p1,
            "weight": RED_WEIGHT,
        }
    flows = [
        {
            "sender": flow.cca,
            "rtt_s": 2e-3 * (flow.access_delay_ms + sweep.delay_ms),
            "access_s": 1e-3 * flow.access_delay_ms,
            "start_s": START_SPREAD_S * rng.uniform(run, 0, index, 0),
        }
        for index, flow in enumerate(fluid.flows)
    ]
    return {
        "name": fluid.title,
        "links": [link],
        "flows": flows,
        "mss_bytes": sweep.mss_bytes,
        "duration_s": sweep.duration_s,
        "log_s": _interval_s(sweep),
        "seed": run,
    }


def _interval_s(sweep: Sweep) -> float:
    """Return the virtual packet time of section 4.3.5, N packets at the link's rate, at which RTTs are sampled for jitter."""
    return sweep.mss_bytes * len(sweep.access_delays_ms) / (sweep.rate_mbps * MBPS_IN_BPS)


def _measure(sweep: Sweep, mix: str, discipline: str, buffer_bdp: float, run: int) -> dict[str, Any]:
    scenario = packet_scenario(sweep, mix, discipline, buffer_bdp, run)
    result = simulate(scenario)
    measured = result.measured()
    window = RunWindow(measured, ((sweep.measure_from_s, sweep.duration_s),), tuple(range(len(measured.flows))))
    return {name: OF_RUN[name](window) for name in MIX_METRICS} | {"rate_Bps": sending_rates_Bps(window)}


def compare(fluid: Sequence[dict[str, Any]], packets: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return per metric the mean and largest absolute difference of the two engines, the cell of the largest, and a correlation.

    It is Spearman's rank correlation over the cells; None where one of the two is constant.
    """
    from scipy.stats import spearmanr

    rows = []
    for metric in MIX_METRICS:
        a, b = (np.array([c[metric] for c in cells]) for cells in (fluid, packets))
        differences = np.abs(a - b)
        worst = fluid[int(np.argmax(differences))]
        varied = np.ptp(a) > 0 and np.ptp(b) > 0
        rows.append(
            {
                "metric": metric,
                "mean_difference": float(differences.mean()),
                "largest_difference": float(differences.max()),
                "at": f"{worst['mix']}, {worst['discipline']}, {worst['buffer_bdp']:g} BDP",
                "rank_correlation": float(spearmanr(a, b).statistic) if varied else None,
            }
        )
    return rows
