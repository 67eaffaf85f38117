"""The packet engine beside a simulator that shares no code with it (tests/oracles/independent.py): random networks, jitter."""

import random
from typing import Any

import numpy as np
import pytest
from oracles import independent

from ccenv.simulation import simulate

MSS = 1500
RULES = {"reno": "reno", "cubic": "cubic", "hystart": "cubic:hystart=1"}
DURATION_S, WARM_UP_S = 40.0, 10.0
QUICK, ALL, SEEDS = 3, 30, 8
UTILISATION, QUEUE, LOSS_FACTOR, LOSS, SHARE = 0.03, 0.15, 1.5, 0.0002, 0.05


def network(number: int) -> dict[str, Any]:
    """Return a random network: rate in packets per second, buffer in packets, flows with RTT and start."""
    draw = random.Random(number)
    rate, rtt_s = draw.uniform(400, 1200), draw.uniform(0.02, 0.08)
    count = draw.choice((1, 2, 2, 3))
    flows = [(draw.choice(sorted(RULES)), rtt_s * draw.uniform(1, 2), draw.uniform(0, 2)) for _ in range(count)]
    buffer = max(4, round(draw.uniform(0.4, 3) * rate * rtt_s))
    return {"flows": flows, "rate": rate, "buffer": buffer, "jitter": draw.uniform(1, 3) / rate}


def ours(net: dict[str, Any], seed: int) -> list[float]:
    """Return utilisation, queue, loss and shares of the packet engine."""
    jitter = {"kind": "uniform", "max_s": net["jitter"]}
    flows = [{"sender": RULES[n], "rtt_s": rtt_s, "start_s": start_s, "jitter": jitter} for n, rtt_s, start_s in net["flows"]]
    link = {"rate_Bps": net["rate"] * MSS, "buffer_packets": net["buffer"]}
    times = {"duration_s": DURATION_S, "warmup_s": WARM_UP_S, "seed": seed}
    summary = simulate({**times, "links": [link], "flows": flows}).summary()
    rates = np.array([flow["throughput_mbps"] for flow in summary["flows"]])
    (link,) = summary["links"]
    return [link["utilisation"], link["queue_packets"], link["loss"], *(rates / rates.sum())]


def theirs(net: dict[str, Any], seed: int) -> list[float]:
    """Return the same of the independent simulator."""
    found = independent.run(**net, duration=DURATION_S, warm_up=WARM_UP_S, seed=seed)
    return [found["utilisation"], found["queue"], found["loss"], *found["shares"]]  # type: ignore[list-item,misc]


def beyond(number: int, seeds: int = SEEDS) -> list[str]:
    """Return the quantities in which the middle halves of both sides' seeds lie further apart than the bands."""
    net = network(number)
    (a, b), (c, d) = (np.quantile([play(net, seed) for seed in range(seeds)], (0.25, 0.75), axis=0) for play in (ours, theirs))
    low, high, off = np.minimum(b, d), np.maximum(a, c), np.maximum(a - d, c - b)
    inside = {
        "utilisation": off[0] <= UTILISATION, "queue": high[1] <= (1 + QUEUE) * low[1],
        "loss": high[2] <= LOSS_FACTOR * low[2] or off[2] <= LOSS, "shares": bool(np.all(off[3:] <= SHARE)),
    }  # fmt: skip
    return [f"{name}: {a} to {b}, {c} to {d}" for name, holds in inside.items() if not holds]


@pytest.mark.parametrize("number", [*range(QUICK), *(pytest.param(n, marks=pytest.mark.slow) for n in range(QUICK, ALL))])
def test_an_independent_simulator_agrees(number: int) -> None:
    assert beyond(number, SEEDS if number >= QUICK else 2) == []


def test_bands_tell_simulators_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer of a third more in one of both is seen."""
    bigger = network(1)
    bigger["buffer"] = 4 * bigger["buffer"] // 3
    found = theirs(bigger, 0)
    monkeypatch.setitem(globals(), "theirs", lambda net, seed: found)
    assert [line.partition(":")[0] for line in beyond(1, 1)] == ["queue"]
