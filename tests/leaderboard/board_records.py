"""Suites and panel of the board that tests evaluate once (conftest.py), records of a verification, and a board of folders."""

import json
from pathlib import Path
from typing import Any

from small_suite import small_suite

from ccenv.leaderboard.evaluate.damage import DamageStage
from ccenv.leaderboard.evaluate.stages import SuiteStage
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.sources import from_folders
from ccenv.leaderboard.submission.pack import Authorship


def build_folders(places: list[Path], out: Path) -> dict[str, Any]:
    return build_site(from_folders(places), out)


def report(**changes: Any) -> dict[str, Any]:
    """What ``ccenv verify property cc_qdel --json`` prints, as far as the board reads it."""
    query = {"name": "q", "claim": "objectives <or> progress", "verdict": "verified", "evidence": {"sha256": "a" * 64}}
    data = {
        "promises": 2, "sender": "cc_qdel", "model": "ccac", "buffer": "infinite", "property": "invariant", "T": 7,
        "setting_name": "history",
    }  # fmt: skip
    solved = {"verdict": "verified", "queries": [query], "seconds": 0.5, "solver": "z3-solver 1.2.3", "trace": None}
    return {**data, **solved, **changes}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def edit(file: Path, change: Any) -> None:
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


ONE = small_suite().scenarios[0].model_dump()
SUITE = small_suite(agents=[], scenarios=[ONE])
HARD = small_suite(name="hard", agents=[], scenarios=[ONE], adversaries=["kind", "slowest"], tags=["adversarial"])
PANEL = small_suite(name="panel", agents=["reno", "cc_qdel"], scenarios=[ONE], adversaries=["kind"], seeds=[1])
STAGES = [SuiteStage(SUITE), SuiteStage(HARD, traces=False), DamageStage(PANEL)]
LINKED = Authorship("Ada Lovelace", "MIT", "quick/1", summary="A & B", url="https://example.org/x?a=1&b=2")
