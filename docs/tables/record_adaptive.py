"""Record how many runs an interval takes and how often it holds: ``python docs/tables/record_adaptive.py FILE SUITE...``.

``simulated`` in place of a suite: scores of seven shapes in few and many scenarios, whose truth is known.

Each sender of a suite plays SEEDS seeds of each scenario, which become a population: a run at other draws has the score of one of
the three that drew nearest. Plans see runs of that population in the order that they choose. Beside a plan stand runs of which
each scenario has as many, with plain intervals: of that sender, and of all senders together, as a suite with a fixed list of
seeds has them, so that the widest interval is narrow enough. ``bound``: the runs of a plan that knows all variances.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ccenv.base.files import json_bytes, write_atomic
from ccenv.base.foreign import read_json
from ccenv.base.provenance import machine, now, versions
from ccenv.benchmarks.run.adaptive import (
    FEWEST_RUNS,
    FIRST_RUNS,
    MOST_RUNS,
    POOL,
    Plan,
    _shares,
    estimate_known,
    influences,
    polynomials,
    regress,
    spread,
)
from ccenv.benchmarks.run.runner import as_suite, evaluate

SENDERS = {"standard-v2": ("cubic", "bbr3", "copa"), "company": ("cubic",)}
HALF_WIDTHS = (0.02, 0.01)
SEEDS, ORDERS, NEAREST = 96, 100, 3
Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""Generator and shares (n, parameters) -> scores (n,)."""


def population(shares: np.ndarray, scores: np.ndarray) -> Draw:
    """Return draws of the scores that were played nearest to what is drawn."""

    def draw(generator: np.random.Generator, at: np.ndarray) -> np.ndarray:
        near = np.argpartition(((at[:, None] - shares) ** 2).sum(axis=2), NEAREST, axis=1)[:, :NEAREST]
        return np.asarray(scores[near[np.arange(len(at)), generator.integers(0, NEAREST, len(at))]])

    return draw if shares.size else lambda generator, at: generator.choice(scores, len(at))


def play_plan(draws: dict[str, tuple[int, Draw]], half_width: float, generator: np.random.Generator) -> Plan:
    """Return the finished plan of new runs; of each scenario the number of its parameters and its draw."""
    order, terms = {}, {}
    for name, (n_drawn, draw) in draws.items():
        at = generator.random((POOL, n_drawn))
        at = at[spread(at, MOST_RUNS)] if n_drawn else at[:MOST_RUNS]
        order[name], terms[name] = draw(generator, at), polynomials(at)
    plan = Plan(list(draws), half_width, lambda name, n: order[name][:n].tolist(), terms=lambda name, n: terms[name][:n])
    plan.advance()
    return plan


def measure(draws: dict[str, tuple[int, Draw]], half_width: float, generator: np.random.Generator) -> dict[str, float]:
    """Return means over orders of runs: those of a plan, those of equal numbers, the first forecast, the share that holds."""

    def fresh(n: int) -> list[np.ndarray]:
        return [draw(generator, generator.random((n, n_drawn))) for n_drawn, draw in draws.values()]

    many = {name: generator.random((8_000, n_drawn)) for name, (n_drawn, _) in draws.items()}
    truth, influence = influences([draw(generator, many[name]) for name, (_, draw) in draws.items()])
    left = [regress(i, polynomials(at)) for i, at in zip(influence, many.values(), strict=True)]
    bound = (np.sqrt([squares / freedom for _, squares, freedom in left]).sum() / len(draws) / (half_width / 1.96)) ** 2
    rows = []
    for _ in range(ORDERS):
        plan, beside = play_plan(draws, half_width, generator), fresh(2 * MOST_RUNS)
        assert plan.known is not None
        n = max(FIRST_RUNS, -(-FEWEST_RUNS // len(draws)))
        while n < 2 * MOST_RUNS and estimate_known([values[:n] for values in beside]).half_width > half_width:
            n += max(1, n // 20)
        holds = abs(plan.known.iqm - truth) <= plan.known.half_width
        rows.append((plan.rounds[-1]["runs"], n * len(draws), plan.rounds[0]["forecast"], holds, plan.known.half_width))
    names = ("planned", "equal", "forecast", "coverage", "reached")
    return dict(zip(names, np.mean(rows, axis=0).round(4).tolist(), strict=True)) | {"bound": round(float(bound), 1)}


SHAPES: dict[str, tuple[int, Draw]] = {
    "normal": (0, lambda g, at: g.normal(0, 1, len(at))),
    "skewed": (0, lambda g, at: g.lognormal(0, 1, len(at)) / 2.16),
    "two values": (0, lambda g, at: 2.0 * (g.random(len(at)) < 0.5) - 1),
    "uniform": (0, lambda g, at: g.uniform(-1.7, 1.7, len(at))),
    "rare": (0, lambda g, at: np.where(g.random(len(at)) < 0.15, -3, 0) + g.normal(0, 0.3, len(at))),
    "slope": (2, lambda g, at: 3 * np.minimum(at[:, 0], 0.6) + 2 * at[:, 1] + g.normal(0, 0.3, len(at))),
    "cliff": (2, lambda g, at: 2.0 * (at.sum(axis=1) > 1.1) + g.normal(0, 0.2, len(at))),
}  # of about the same spread; the last two depend on what is drawn


def simulate() -> list[dict[str, object]]:
    """Return the share that holds of plans for three half-widths each, by shape and number of scenarios."""
    rows = []
    for n_scenarios in (1, 2, 5, 20):
        generator = np.random.default_rng([11, n_scenarios])
        for shape, (n_drawn, draw) in SHAPES.items():
            draws: dict[str, tuple[int, Draw]] = {
                str(mean): (n_drawn, lambda g, at, mean=mean, draw=draw: draw(g, at) + mean)
                for mean in np.linspace(0, 1.5, n_scenarios)
            }
            many = generator.random((100_000, n_drawn))
            truth = influences([one(generator, many) for _, one in draws.values()])[0]
            holds = []
            for half_width in (2.2 / np.sqrt(runs * n_scenarios) for runs in (8, 20, 60)):
                for _ in range(80 if n_scenarios < 20 else 15):
                    plan = play_plan(draws, half_width, generator)
                    assert plan.known is not None
                    holds.append(abs(plan.known.iqm - truth) <= plan.known.half_width)
            rows.append(
                {"shape": shape, "scenarios": n_scenarios, "coverage": round(float(np.mean(holds)), 3), "plans": len(holds)}
            )
            print(rows[-1], flush=True)
    return rows


file, *suites = sys.argv[1:] or sys.exit(__doc__)
record = read_json(Path(file)) if Path(file).exists() else {}
for suite in suites:
    if suite == "simulated":
        record[suite] = {"rows": simulate()}
        write_atomic(Path(file), json_bytes(record))
        continue
    metric, rows = as_suite(suite).score.metric, []
    drawn = {case.name: _shares(as_suite(suite), case, range(SEEDS)) for case in as_suite(suite).cases}
    for sender in SENDERS[suite]:
        by_scenario: dict[str, list[float]] = {}
        for one in evaluate(suite, sender, seeds=range(SEEDS)):
            if one["agent"] == sender and one["metrics"][metric] is not None:
                by_scenario.setdefault(one["scenario"], []).append(one["metrics"][metric])
        played = {name: np.array(values) for name, values in by_scenario.items() if len(values) == SEEDS}
        draws = {name: (drawn[name].shape[1], population(drawn[name], scores)) for name, scores in played.items()}
        for half_width in HALF_WIDTHS:
            rows.append({"sender": sender, "half_width": half_width, **measure(draws, half_width, np.random.default_rng(7))})
            print(suite, rows[-1], flush=True)
    record[suite] = {"metric": metric, "rows": rows, "versions": versions(), "machine": machine(), "finished_at": now()}
    write_atomic(Path(file), json_bytes(record))
