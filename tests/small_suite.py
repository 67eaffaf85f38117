"""A suite that runs in a second, as data that tests change."""

from pathlib import Path
from typing import Any

import yaml

from ccenv.base.config import validate
from ccenv.benchmarks.suite.curve import Suite

HEAD: dict[str, Any] = {"format": "ccenv-suite", "format_version": 1, "version": 1, "seeds": [1, 2]}


def small(**changes: Any) -> dict[str, Any]:
    """Two senders, two kinds of path, two adversaries, two seeds: 16 cells of 160 steps."""
    data: dict[str, Any] = {
        **HEAD, "name": "small", "duration_rtts": 20, "warm_up_rtts": 5,
        "agents": ["cc_qdel", "reno"], "adversaries": ["kind", "uniform"],
        "scenarios": [
            {"name": "one", "model": "ccac", "link_rate_mbps": 12, "rtt_ms": 40, "jitter_rtts": 1, "buffer_bdp": 4},
            {
                "name": "two", "model": "cbr_delay", "link_rate_mbps": {"low": 5, "high": 20}, "rtt_ms": 40,
                "jitter_rtts": 0.25, "n_flows": 2, "stagger_rtts": 2,
            },
        ],
        "metrics": ["utilisation", "queueing_delay_mean_s", "loss_fraction", "jain_index", "power"],
    }  # fmt: skip
    return {**data, **changes}


def small_suite(**changes: Any) -> Suite:
    return validate(Suite, small(**changes), "small.yaml")


def write_suite(folder: Path, **changes: Any) -> Path:
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump(small(**changes)), encoding="utf-8")
    return file
