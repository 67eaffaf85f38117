"""Record how many runs an interval takes and how often it holds: ``python docs/tables/record_adaptive.py FILE SUITE...``.

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
from ccenv.benchmarks.run.adaptive import FIRST_RUNS, MOST_RUNS, Plan, estimate_known, influences
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
        n = FIRST_RUNS
        while n < MOST_RUNS and estimate_known([values[:n] for values in order.values()]).half_width > half_width:
            n += 1
        holds = abs(plan.known.iqm - truth) <= plan.known.half_width
        rows.append((plan.rounds[-1]["runs"], n * len(runs), plan.rounds[0]["forecast"], holds))
    names = ("planned", "equal", "forecast", "coverage")
    return dict(zip(names, np.mean(rows, axis=0).round(3).tolist(), strict=True))


file, *suites = sys.argv[1:] or sys.exit(__doc__)
record = read_json(Path(file)) if Path(file).exists() else {}
for suite in suites:
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
