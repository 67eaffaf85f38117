"""A board of any size for tests: invented numbers in records of the real form."""

from functools import cache
from typing import Any

import numpy as np
from forging import envelope_rows
from small_suite import small_suite

from ccenv.base.files import hash_value
from ccenv.benchmarks.results import summarise
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.leaderboard.site.sources import Records
from ccenv.leaderboard.store.entry import SubmissionRecord
from ccenv.leaderboard.store.records import BenchRecord, CellRecord, Envelope, Manifest

MOMENT = "2026-01-01T00:00:00Z"


@cache
def suites() -> tuple[SuiteBase, ...]:
    hard = {"name": "hard", "adversaries": ["kind", "slowest"], "tags": ["adversarial"]}
    return small_suite(seeds=[1, 2, 3, 4, 5]), small_suite(**hard)


def bench(suite: SuiteBase, name: str, skill: float, number: int) -> BenchRecord:
    generator = np.random.Generator(np.random.Philox([number, len(suite.name)]))
    cells: list[dict[str, Any]] = []
    for scenario in ("one", "two"):
        for adversary in suite.opponents:
            for seed in suite.seeds:
                value = float(np.clip(generator.normal(skill, 0.05), 0.01, 0.99))
                metrics = {"utilisation": value, "queueing_delay_mean_s": 0.02, "loss_fraction": 0.0, "power": value}
                cell = {"scenario": scenario, "adversary": adversary, "seed": seed, "engine_seed": seed, "model": "ccac"}
                key = hash_value([name, scenario, adversary, seed])[:32]
                cell |= {"key": key, "code_sha256": "c" * 64, "agent": name, "agent_sha256": hash_value(name)}
                cells.append({**cell, "path": {"flows": [{"rtt_s": 0.04}]}, "metrics": {**metrics, "jain_index": 1.0}})
    manifest = Manifest(
        format="ccenv-bench",
        format_version=1,
        suite=suite.model_dump(mode="json"),
        suite_sha256=suite.sha256,
        code_sha256="c" * 64,
        agents=[{"label": name, "kind": "classic" if number % 10 == 0 else "program", "spec": name, "sha256": hash_value(name)}],
        complete=True,
        n_cells=len(cells),
        n_missing=0,
        versions={"python": "3"},
        machine={"processor": "invented"},
        finished_at=MOMENT,
        statistics={"seed": 0},
        summary=summarise(suite, cells),
        references=[],
    )
    return BenchRecord(
        manifest, [CellRecord(**cell) for cell in cells], suite, suite.sha256, f"{number:09d}", lambda _: None,
        hash_value(["s", name]),
    )  # fmt: skip


def synthetic(count: int) -> Records:
    """Return records of so many senders, each in a nominal and in an adversarial suite, with an envelope."""
    skills = np.random.Generator(np.random.Philox(7)).uniform(0.2, 0.9, count)
    names = [f"sender_{i:04d}" for i in range(count)]
    benches = [
        bench(suite, name, skill, i) for i, (name, skill) in enumerate(zip(names, skills, strict=True)) for suite in suites()
    ]
    about = {"stage": "envelope", "machine": {"processor": "invented"}, "files": {}, "promises": 2, "reason": "", "solver": "z3"}
    about |= {"setting_name": "history", "T": 9, "budget_s": 60, "seconds": 9, "recorded_at": MOMENT, "rows": envelope_rows()}
    card = {"kind": "program", "track": "sender", "licence": "MIT", "summary": "An invented sender."}
    submissions = [
        SubmissionRecord(submission=hash_value(["s", name]), player_sha256=hash_value(name),
                card={**card, "name": name, "author": f"Author {i % 50}"}, signed_by=None, round=1, recorded_at=MOMENT,
                files={})
        for i, name in enumerate(names)
    ]  # fmt: skip
    envelopes = [
        Envelope(**about, name=name, submission=hash_value(["s", name]), player_sha256=hash_value(name)) for name in names[::2]
    ]
    players = {hash_value(["s", name]): hash_value(name) for name in names}
    return Records(benches, [], submissions=submissions, envelopes=envelopes, chain="d" * 64, players=players)
