"""Record how many runs an interval takes and how often it holds: ``python docs/tables/record_adaptive.py FILE SUITE...``.

``simulated`` in place of a suite: scores of five shapes in few and many scenarios, whose truth is known.

Each sender of a suite plays many seeds of each scenario: these runs are the truth, and draws of them are what plans see. Beside a
plan stand runs of which each scenario has as many: of that sender, and of all senders together, as a suite with a fixed list of
seeds has them, so that the widest interval is narrow enough.
"""

import sys
from pathlib import Path

import numpy as np

from ccenv.base.files import json_bytes, write_atomic
from ccenv.base.foreign import read_json
from ccenv.base.provenance import machine, now, versions
from ccenv.benchmarks.run.adaptive import FEWEST_RUNS, FIRST_RUNS, MOST_RUNS, Plan, estimate_known, influences
from ccenv.benchmarks.run.runner import as_suite, evaluate

SENDERS = {"standard-v2": ("cubic", "bbr3", "copa"), "company": ("cubic", "bbr1")}
HALF_WIDTHS = (0.02, 0.01)
SEEDS, ORDERS = 96, 150


def measure(runs: dict[str, np.ndarray], half_width: float, generator: np.random.Generator) -> dict[str, float]:
    """Return means over orders of runs: those of a plan, those of equal numbers, the first forecast, the share that holds."""
    truth, rows = influences(list(runs.values()))[0], []
    for _ in range(ORDERS):
        order = {name: values[generator.integers(0, len(values), MOST_RUNS)] for name, values in runs.items()}
        plan = Plan(list(runs), half_width, lambda name, n, order=order: order[name][:n].tolist())
        plan.advance()
        assert plan.known is not None
        n = max(FIRST_RUNS, -(-FEWEST_RUNS // len(runs)))
        while n < MOST_RUNS and estimate_known([values[:n] for values in order.values()]).half_width > half_width:
            n += 1
        holds = abs(plan.known.iqm - truth) <= plan.known.half_width
        rows.append((plan.rounds[-1]["runs"], n * len(runs), plan.rounds[0]["forecast"], holds))
    names = ("planned", "equal", "forecast", "coverage")
    return dict(zip(names, np.mean(rows, axis=0).round(3).tolist(), strict=True))


SHAPES = {
    "normal": lambda g, size: g.normal(0, 1, size),
    "skewed": lambda g, size: g.lognormal(0, 1, size) / 2.16,
    "two values": lambda g, size: 2.0 * (g.random(size) < 0.5) - 1,
    "uniform": lambda g, size: g.uniform(-1.7, 1.7, size),
    "rare": lambda g, size: np.where(g.random(size) < 0.15, -3, 0) + g.normal(0, 0.3, size),
}  # of about the same spread


def simulate() -> list[dict[str, object]]:
    """Return the share that holds of plans for three half-widths each, by shape and number of scenarios."""
    rows, generator = [], np.random.default_rng(1)
    for n_scenarios in (1, 2, 5, 20):
        means = np.linspace(0, 1.5, n_scenarios)[:, None]
        for shape, draw in SHAPES.items():
            truth = influences(list(draw(generator, (n_scenarios, 100_000)) + means))[0]
            holds = []
            for half_width in (2.2 / np.sqrt(runs * n_scenarios) for runs in (8, 20, 60)):
                for _ in range(ORDERS if n_scenarios < 20 else ORDERS // 3):
                    values = draw(generator, (n_scenarios, MOST_RUNS)) + means
                    plan = Plan(range(n_scenarios), half_width, lambda name, n, values=values: values[name][:n].tolist())
                    plan.advance()
                    assert plan.known is not None
                    holds.append(abs(plan.known.iqm - truth) <= plan.known.half_width)
            rows.append({"shape": shape, "scenarios": n_scenarios, "coverage": round(float(np.mean(holds)), 3)})
            print(rows[-1], flush=True)
    return rows


file, *suites = sys.argv[1:] or sys.exit(__doc__)
record = read_json(Path(file)) if Path(file).exists() else {}
for suite in suites:
    if suite == "simulated":
        record[suite] = {"rows": simulate()}
        write_atomic(Path(file), json_bytes(record))
        continue
    metric = as_suite(suite).score.metric
    rows = []
    for sender in SENDERS[suite]:
        by_scenario: dict[str, list[float]] = {}
        for one in evaluate(suite, sender, seeds=range(SEEDS)):
            if one["agent"] == sender and one["metrics"][metric] is not None:
                by_scenario.setdefault(one["scenario"], []).append(one["metrics"][metric])
        runs = {name: np.array(values) for name, values in by_scenario.items()}
        for half_width in HALF_WIDTHS:
            rows.append({"sender": sender, "half_width": half_width, **measure(runs, half_width, np.random.default_rng(0))})
            print(suite, rows[-1], flush=True)
    record[suite] = {"metric": metric, "rows": rows, "versions": versions(), "machine": machine(), "finished_at": now()}
    write_atomic(Path(file), json_bytes(record))
