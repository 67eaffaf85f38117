"""Search the eight rules of the agent remy by coordinates, from those it has, and print them: a few minutes on one core.

``python docs/tables/record_remy.py [ROUNDS]``
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from ccenv.agents.classic import remy
from ccenv.agents.classic.common import classic_sender
from ccenv.network.metrics.table import measure_run
from ccenv.simulation import simulate

# Mbit/s, ms, senders: the corners and the middle of the range; a flow joins every two seconds
NETWORKS = ((5.0, 50.0, 1), (5.0, 150.0, 2), (16.0, 85.0, 4), (50.0, 50.0, 2), (50.0, 150.0, 1), (50.0, 150.0, 3))
DURATION_S, WARM_UP_S, BUFFER_BDP = 16.0, 4.0, 4.0
STEPS = (  # candidates: changes of window multiple, increment (segments) and smallest time between packets (factor)
    lambda rule: [(min(max(rule[0] + change, 0.5), 1.05), *rule[1:]) for change in (-0.05, -0.01, -0.002, 0.002, 0.01)],
    lambda rule: [(rule[0], max(rule[1] + change, 0.0), rule[2]) for change in (-0.2, -0.05, -0.01, 0.01, 0.05, 0.2)],
    lambda rule: [(*rule[:2], min(max(rule[2] * factor, 0.02), 20.0)) for factor in (0.5, 0.8, 1.25, 2.0)],
)
Rules = tuple[tuple[float, float, float], ...]


def score(rules: Rules) -> float:
    """Return the mean over networks and flows of log(throughput over a fair share) - log(RTT over Rm)."""
    names = ("multiple", "increment_mss", "spacing_ms")
    values = {f"{name}_{i}": value for i, rule in enumerate(rules) for name, value in zip(names, rule, strict=True)}
    sender = classic_sender("remy", remy.__name__, remy.sender.state, initial_window_mss=10.0, **values)
    total = 0.0
    for rate_mbps, rtt_ms, n in NETWORKS:
        flows = [{"name": f"f{i}", "sender": "remy", "rtt_ms": rtt_ms, "start_s": 2.0 * i} for i in range(n)]
        links = [{"rate_mbps": rate_mbps, "buffer_bdp": BUFFER_BDP}]
        scenario = {"duration_s": DURATION_S, "warmup_s": WARM_UP_S, "seed": 1, "links": links, "flows": flows}
        measured = simulate(scenario, senders={"remy": sender}).measured()
        for i in range(n):
            window = [(max(WARM_UP_S, 2.0 * i + 2.0), DURATION_S)]
            share = measure_run(measured, "throughput_mbps", window, f"f{i}") / (rate_mbps / n)
            delay = 1e3 * measure_run(measured, "rtt_mean_s", window, f"f{i}") / rtt_ms
            total += (math.log(max(share, 1e-3)) - math.log(delay)) / n
    return total / len(NETWORKS)


def search(rules: Rules, rounds: int) -> tuple[Rules, float]:
    """Take every change that scores better as it is met; return the table and its score."""
    best = score(rules)
    for _ in range(rounds):
        before = best
        for i in range(len(rules)):
            for step in range(len(STEPS)):
                for other in STEPS[step](rules[i]):
                    tried = (*rules[:i], tuple(round(value, 4) for value in other), *rules[i + 1 :])
                    if (reached := score(tried)) > best + 1e-4:
                        rules, best = tried, reached
        print(f"{best:.4f} {rules}", flush=True)
        if best == before:
            break
    return rules, best


if __name__ == "__main__":
    search(remy.RULES, int(sys.argv[1]) if len(sys.argv) > 1 else 6)
