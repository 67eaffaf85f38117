"""The packet engine beside ns-3 (docs/packet-engine.md): against the record always, ns-3 itself where it is installed."""

from __future__ import annotations

import json
from pathlib import Path

import ns3_dumbbell
import numpy as np
import pytest

from ccenv.simulation.run import simulate

RECORD = json.loads((Path(__file__).parents[2] / "docs" / "data" / "ns3.json").read_text(encoding="utf-8"))["runs"]
CASES = [(cca, name) for cca in ns3_dumbbell.CCAS for name in ns3_dumbbell.PATHS]


def ours(cca: str, link_rate_mbps: float, rtt_ms: float, buffer_packets: int) -> dict[str, float]:
    result = simulate({
        "duration_s": ns3_dumbbell.END_S, "warmup_s": ns3_dumbbell.WARM_UP_S,
        "links": [{"rate_mbps": link_rate_mbps, "buffer_packets": buffer_packets}],
        "flows": [{"sender": cca, "rtt_ms": rtt_ms}],
    })  # fmt: skip
    (link,) = result.summary()["links"]
    late = result.link_log[round(ns3_dumbbell.WARM_UP_S / 0.01) :, 0]
    return {
        "utilisation": link["utilisation"],
        "queue_packets": link["queue_packets"],
        "loss": np.ptp(late["dropped_bytes"]) / np.ptp(late["arrived_bytes"]),
    }


@pytest.mark.parametrize(("cca", "path"), CASES)
def test_utilisation_and_loss_are_those_of_ns3(cca: str, path: str) -> None:
    found, theirs = ours(cca, *ns3_dumbbell.PATHS[path]), RECORD[cca][path]
    assert found["utilisation"] == pytest.approx(theirs["utilisation"], abs=0.035 if cca == "bbr1" else 0.005)
    assert found["loss"] == pytest.approx(theirs["loss"], abs=0.002)
    if cca == "reno":
        assert found["queue_packets"] == pytest.approx(theirs["queue_packets"], rel=0.1)


@pytest.mark.slow
def test_the_record_is_what_ns3_does() -> None:
    """Needs the package ns3 (pip install ns3; the record names the version)."""
    pytest.importorskip("ns")
    name = next(iter(ns3_dumbbell.PATHS))
    for cca in ("reno", "cubic"):
        assert ns3_dumbbell.run(cca, *ns3_dumbbell.PATHS[name]) == pytest.approx(RECORD[cca][name], rel=0.05, abs=1e-3)
