"""Runs until an interval is reached: the interval beside plain references, the plan, and interrupted runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from test_bench_packet import small_packets

from ccenv.base.errors import InputError
from ccenv.benchmarks.run import adaptive
from ccenv.benchmarks.run.adaptive import (
    FEWEST_RUNS,
    MOST_RUNS,
    POOL,
    Known,
    Plan,
    estimate_known,
    forecast_runs,
    influences,
    polynomials,
    spread,
)
from ccenv.benchmarks.run.runner import run_suite
from ccenv.benchmarks.statistics import interquartile_mean
from ccenv.benchmarks.suite.curve import load_suite


def trimmed(tasks: list[np.ndarray]) -> float:
    """The interquartile mean with equal weights of the tasks, by repeating each run until all tasks are as long."""
    length = int(np.lcm.reduce([len(runs) for runs in tasks])) * 4
    return float(interquartile_mean(np.concatenate([np.repeat(runs, length // len(runs)) for runs in tasks])))


def test_each_task_has_the_same_weight() -> None:
    generator = np.random.default_rng(0)
    for sizes in ((4, 4, 4), (3, 8, 5), (2, 30, 7)):
        tasks = [generator.normal(place, 1, size) for place, size in enumerate(sizes)]
        assert influences(tasks)[0] == pytest.approx(trimmed(tasks), rel=1e-12)


def test_influence_is_what_a_run_that_counts_more_moves() -> None:
    generator = np.random.default_rng(1)
    tasks = [generator.uniform(0, 1, 40) for _ in range(3)]
    iqm, influence = influences(tasks)
    for place in (0, 17):
        heavier = [np.concatenate([np.repeat(tasks[0], 50), np.full(5, tasks[0][place])]), tasks[1], tasks[2]]
        share = 5 / (50 * 40 + 5) / 3
        expected = share * (influence[0][place] - influence[0].mean())
        assert influences(heavier)[0] - iqm == pytest.approx(expected, abs=0.2 * share)


def population(kind: str) -> dict[str, Any]:
    """Scenario -> draws of n runs: of few scenarios, of one kind of noise, or of several with very different spread."""
    if kind == "few":
        return {"low": lambda g, n: g.uniform(0, 1, n), "high": lambda g, n: g.uniform(0.43, 1.43, n)}
    if kind == "even":
        return {f"s{place}": lambda g, n, place=place: g.normal(place / 8, 0.1, n) for place in range(8)}
    draws: dict[str, Any] = {f"s{place}": lambda g, n, place=place: g.normal(place / 8, 0.02, n) for place in range(6)}
    return draws | {"two": lambda g, n: g.choice([0.2, 0.7], n), "wide": lambda g, n: g.uniform(0, 1, n)}


@pytest.mark.parametrize(("kind", "half_width"), [("few", 0.1), ("even", 0.02), ("uneven", 0.02)])
def test_the_interval_holds_the_truth_and_the_forecast_the_number_of_runs(kind: str, half_width: float) -> None:
    draws, generator = population(kind), np.random.default_rng(2)
    many = [draw(generator, 20_000) for draw in draws.values()]
    truth, inside, runs, forecasts = influences(many)[0], 0, [], []
    for _ in range(120):
        sequence = {name: draw(generator, MOST_RUNS).tolist() for name, draw in draws.items()}
        plan = Plan(list(draws), half_width, lambda name, n, sequence=sequence: sequence[name][:n])
        plan.advance()
        assert plan.finished and plan.known is not None and plan.known.half_width <= half_width
        inside += abs(plan.known.iqm - truth) <= plan.known.half_width
        runs.append(plan.rounds[-1]["runs"])
        forecasts.append(plan.rounds[0]["forecast"])
    assert inside >= 0.9 * 120 and np.mean(forecasts) == pytest.approx(np.mean(runs), rel=0.15)
    if kind == "uneven":  # most runs go where the spread is
        assert plan.counts[-2:].min() > 3 * plan.counts[:-2].max()


def test_seeds_are_ordered_so_that_their_draws_are_even() -> None:
    shares = np.random.default_rng(3).random((POOL, 2))
    rows = spread(shares, MOST_RUNS)
    assert rows[0] == 0 and len(set(rows)) == MOST_RUNS
    terms = polynomials(shares)
    assert terms.shape == (POOL, 9) and np.abs(terms.mean(axis=0)).max() < 0.1  # x, y, their squares, product, and so on
    for n in (8, 32, 128):
        of_quarters = np.histogram2d(*shares[rows[:n]].T, bins=2, range=[[0, 1], [0, 1]])[0]
        assert np.abs(of_quarters - n / 4).max() <= 0.1 * n + 1
        assert np.square(terms[rows[:n]].mean(axis=0)).mean() < 0.4 * np.square(terms[:n].mean(axis=0)).mean()
    assert polynomials(np.zeros((3, 0))).shape == (3, 0)


@pytest.mark.parametrize("shape", ["slope", "cliff"])
def test_what_draws_explain_needs_fewer_runs_and_the_interval_still_holds(shape: str) -> None:
    def draw(generator: np.random.Generator, at: np.ndarray) -> np.ndarray:
        known = 3 * np.minimum(at[:, 0], 0.6) + 2 * at[:, 1] if shape == "slope" else 2.0 * (at.sum(axis=1) > 1.1)
        return np.asarray(known + generator.normal(0, 0.2, len(at)))

    generator, rows = np.random.default_rng(4), []
    truth = influences([draw(generator, generator.random((100_000, 2)))] * 2)[0]
    for _ in range(60):
        plans = []
        for even in (True, False):
            order, terms = {}, {}
            for name in "ab":
                at = generator.random((POOL, 2))
                at = at[spread(at, MOST_RUNS) if even else slice(MOST_RUNS)]
                order[name], terms[name] = draw(generator, at), polynomials(at) if even else np.zeros((MOST_RUNS, 0))
            plan = Plan(["a", "b"], 0.2, lambda n, k, o=order: o[n][:k].tolist(), terms=lambda n, k, t=terms: t[n][:k])
            plan.advance()
            assert plan.known is not None
            plans.append((plan.rounds[-1]["runs"], abs(plan.known.iqm - truth) <= plan.known.half_width))
        rows.append(plans)
    (runs, holds), (runs_without, _) = np.mean(rows, axis=0)
    assert runs < 0.75 * runs_without and holds >= 0.9


def test_a_forecast_knows_that_terms_explain_more_and_equal_runs_need_no_more() -> None:
    known, counts = Known(0.5, 0.1, np.full(4, 0.04)), np.full(4, 4)
    plain, explained = (forecast_runs(known, counts, 0.02, np.full(4, n_terms)) for n_terms in (0, 9))
    assert plain == pytest.approx(0.04 * 4 / (0.02 / 1.06 / 1.96) ** 2 / 4, abs=1.1)
    assert explained == pytest.approx(plain * 9**-0.4, abs=1.1)
    assert forecast_runs(known, counts, 0.2, np.full(4, 9)) == counts.sum()
    runs = [np.arange(6.0), np.arange(6.0) ** 2]
    known = estimate_known(runs, runs)
    assert (known.iqm, known.half_width) == (0, 0)
    shifted = estimate_known([r + 1 for r in runs], runs)
    assert shifted.iqm == pytest.approx(1) and shifted.half_width == pytest.approx(0, abs=1e-12)


def test_scenarios_without_a_score_end_the_plan() -> None:
    plan = Plan(["a", "b"], 0.1, lambda _, n: [None] * n)
    plan.advance()
    assert plan.finished and plan.known is None
    partly = Plan(["a", "b"], 0.1, lambda name, n: [None] * n if name == "a" else [0.5] * n)
    partly.advance()
    assert partly.finished and partly.known is not None and partly.rounds[-1]["runs"] == FEWEST_RUNS


def suite_file(folder: Path) -> str:
    """A grid of two buffers with a drawn rate and random loss."""
    network = {
        "links": [{"rate_mbps": "$rate", "buffer_bdp": "$buffer"}],
        "flows": [{"sender": "$agent", "rtt_ms": 20, "loss_rate": 0.002}],
    }
    data = small_packets(
        name="drawn", duration_s=1, warm_up_s=0.2, seeds=[7, 1], agents=["reno", "vegas"], metrics=["utilisation"],
        scenarios=[{"name": "grid", "parameters": {"rate": {"low": 2, "high": 16}, "buffer": [0.5, 2]}, "network": network}],
        score={"metric": "utilisation", "adversary": "network"},
    )  # fmt: skip
    file = folder / "drawn.yaml"
    file.write_text(yaml.safe_dump(data))
    return str(file)


def test_interrupted_runs_end_as_others_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "FEWEST_RUNS", 12)
    suite = suite_file(tmp_path)
    whole = run_suite(suite, tmp_path / "whole", half_width=0.01, pictures=False)
    assert whole["complete"] and whole["interval"]["reno"]["reached"] and whole["interval"]["vegas"]["reached"]
    for agent, known in whole["interval"].items():
        of_agent = [
            record for record in Path(tmp_path, "whole", "cells.jsonl").read_text().splitlines() if f'"{agent}"' in record
        ]
        assert len(of_agent) == sum(known["runs"].values()) == known["n_runs"] > 12
        entry = next(entry for entry in whole["summary"] if entry["agent"] == agent)
        assert (entry["score"]["iqm"], entry["score"]["low"]) == (known["iqm"], known["low"])
        for scenario in known["runs"]:
            rates = [one["parameters"]["rate"] for one in map(json.loads, of_agent) if one["scenario"] == scenario]
            assert np.diff(np.log2(sorted([2, *rates, 16]))).max() < 3 * 2.5 / len(rates)  # three octaves, evenly drawn
    parts = run_suite(suite, tmp_path / "parts", half_width=0.01, limit=9, pictures=False)
    assert not parts["complete"]
    while not parts["complete"]:
        parts = run_suite(suite, tmp_path / "parts", half_width=0.01, limit=25, pictures=False)
    assert parts["interval"] == whole["interval"]
    assert (tmp_path / "parts" / "cells.jsonl").read_text() == (tmp_path / "whole" / "cells.jsonl").read_text()
    difference = run_suite(suite, tmp_path / "whole", half_width=0.01, beside="vegas", pictures=False)
    assert list(difference["interval"]) == ["reno"]
    assert difference["interval"]["reno"]["iqm"] == pytest.approx(
        whole["interval"]["reno"]["iqm"] - whole["interval"]["vegas"]["iqm"], abs=0.04
    )


@pytest.mark.parametrize(
    ("suite", "given"),
    [("drawn", {"half_width": 0}), ("drawn", {"half_width": float("nan")}), ("drawn", {"half_width": 0.1, "beside": "bbr9"}),
     ("drawn", {"beside": "reno"}), ("drawn", {"half_width": 0.1, "only": ["grid*"]}),
     ("starvation-theorem", {"half_width": 0.1}), ("solved-v1", {"half_width": 0.1})],
)  # fmt: skip
def test_half_widths_that_cannot_be_are_refused(suite: str, given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError):
        run_suite(suite_file(tmp_path) if suite == "drawn" else load_suite(suite), tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()
