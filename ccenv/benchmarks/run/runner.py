"""Run a suite: cells in, records out, resumable at any point."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import Any

from ccenv.benchmarks.cells.attack import attack_cells_of
from ccenv.benchmarks.cells.cell import Cell, TraceCell
from ccenv.benchmarks.cells.curve import curve_cells_of
from ccenv.benchmarks.cells.packet import FIXED, packet_cells_of
from ccenv.benchmarks.cells.players import Player, agent_player
from ccenv.benchmarks.report.write import PICTURE, write_picture, write_worst_traces
from ccenv.benchmarks.run.backends import BACKENDS
from ccenv.benchmarks.run.parquet import PARQUET, write_parquet
from ccenv.benchmarks.run.store import RunFolder
from ccenv.benchmarks.statistics.intervals import CONFIDENCE, REPLICATES, SEED
from ccenv.benchmarks.statistics.summary import summarise
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.benchmarks.suite.curve import Suite
from ccenv.benchmarks.suite.packet import PacketSuite
from ccenv.benchmarks.suite.references import check_all
from ccenv.config import validate
from ccenv.document import plain
from ccenv.errors import InputError, unknown_name
from ccenv.provenance import code_hash, machine, now, versions

Progress = Callable[[int, int], None]
"""Called with the number of finished cells and of all cells."""


def run_suite(
    suite: SuiteBase,
    out: FilePath,
    *,
    extra_agents: Sequence[str] = (),
    only: Sequence[str] = (),
    limit: int | None = None,
    backend: str = "local",
    workers: int | None = None,
    fresh: bool = False,
    pictures: bool = True,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Play what is not yet finished and summarise.

    Args:
        suite: what to play.
        out: folder of the results; finished cells in it are kept.
        extra_agents: specs of senders besides the suite's, e.g. a trained policy.
        only: patterns of ``scenario/agent/adversary/seed`` with ``*``; empty: all.
        limit: play at most so many unfinished cells.
        backend: a key of ``BACKENDS``; it does not change the results.
        workers: processes to use; by default one per usable core.
        fresh: discard what the folder holds.
        pictures: also write the worst trace of each sender and the plots.
        progress: called as cells finish.

    Returns:
        dict: the manifest, as written to the folder.

    Raises:
        InputError: for unknown names, a filter that matches nothing, or a folder of another suite.
        CcenvError: if the folder is in use or cannot be written.
    """
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    for name, value in (("limit", limit), ("workers", workers)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
    agents = _players(suite, extra_agents)
    cells = cells_for(suite, agents)
    chosen = [cell for cell in cells if not only or any(fnmatchcase(cell.name, pattern) for pattern in only)]
    if not chosen:
        raise InputError(f"--only {' '.join(only)!r} matches no cell; cells are called like {cells[0].name!r}")
    folder = RunFolder(out)
    with folder.locked():
        if fresh:
            folder.clear()
        earlier = folder.start({"suite": plain(suite.model_dump()), "suite_sha256": suite.sha256})
        stored = {record["key"]: record for record in folder.read_cells()}
        todo = [cell for cell in chosen if cell.key not in stored][:limit]
        done = len(chosen) - sum(cell.key not in stored for cell in chosen)
        progress(done, done + len(todo))
        for records in BACKENDS[backend](todo, workers or _cores()):
            folder.append(records)
            stored |= {record["key"]: record for record in records}
            done += len(records)
            progress(done, len(chosen) if limit is None else done + len(todo))
        records = _final_order(cells, stored)
        known = {player.label for player in agents} | {FIXED.label}
        kept = {record["agent"] for record in records} - known
        others = [agent for agent in earlier if agent["label"] in kept]
        manifest = _manifest(suite, [asdict(player) for player in agents] + others, cells, records)
        if pictures:
            if isinstance(suite, Suite):
                write_worst_traces(out, [c for c in cells if isinstance(c, TraceCell)], records, manifest["summary"])
            if {"queueing_delay_mean_s", "utilisation"} <= set(suite.metrics):
                write_picture(suite, records, manifest["summary"], out / PICTURE)
        folder.finish(records, manifest)
        if find_spec("pyarrow"):  # of the extra "bench"; cells.jsonl has the same without it
            write_parquet(records, out / PARQUET)
    return manifest


def evaluate(
    suite: SuiteBase,
    sender: str,
    *,
    seeds: Sequence[int] | None = None,
    backend: str = "local",
    workers: int | None = None,
    progress: Progress = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Play a suite for one sender and return its records, in the order of the suite, without a folder.

    Args:
        suite: what to play.
        sender: a name with parameters, or the path of a program or policy; instead of the suite's agents.
        seeds: instead of the suite's.
        backend: as in :func:`run_suite`.
        workers: as in :func:`run_suite`.
        progress: as in :func:`run_suite`.

    Returns:
        list: per cell what :func:`run_suite` stores in ``cells.jsonl``.

    Raises:
        InputError: for a sender or seeds that cannot be.
    """
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    changes: dict[str, Any] = {"agents": (sender,)} | ({"seeds": tuple(seeds)} if seeds is not None else {})
    suite = validate(type(suite), {**suite.model_dump(), **changes}, f"suite {suite.name}")
    cells = cells_for(suite, [agent_player(sender, code=True)])
    found: dict[str, dict[str, Any]] = {}
    for records in BACKENDS[backend](cells, workers or _cores()):
        found |= {record["key"]: record for record in records}
        progress(len(found), len(cells))
    return [found[cell.key] for cell in cells]


def _players(suite: SuiteBase, extra_agents: Sequence[str]) -> list[Player]:
    from ccenv.agents import AGENTS

    players = [agent_player(spec, spec) for spec in suite.agents]
    for spec in extra_agents:
        player = agent_player(spec, spec if spec.partition(":")[0] in AGENTS else None, code=True)
        if player not in players:
            players.append(player)
    labels = [player.label for player in players]
    for player in players:
        if labels.count(player.label) > 1:
            specs = " and ".join(repr(other.spec) for other in players if other.label == player.label)
            raise InputError(f"two agents are called {player.label!r} ({specs}): rename one in its card or program")
    return players


def cells_for(suite: SuiteBase, agents: list[Player]) -> list[Cell]:
    """Return all cells of a suite for some agents, in the order of the suite.

    Raises:
        InputError: for unknown agents or adversaries, or a network that cannot be.
    """
    cells: list[Cell] = []
    if isinstance(suite, PacketSuite):
        cells += packet_cells_of(suite, agents)
    elif isinstance(suite, Suite) and suite.engine == "attack":
        cells += attack_cells_of(suite, agents)
    elif isinstance(suite, Suite):
        cells += curve_cells_of(suite, agents)
    if not cells:
        raise InputError(f"suite {suite.name!r} lists no agents: give one with --agent")
    return cells


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _final_order(cells: list[Cell], stored: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Put this run's cells first, in the suite's order; agents that only an earlier run had stay behind them.

    Cells of agents that changed, or that older code played, are superseded and dropped.
    """
    keys = [cell.key for cell in cells]
    agents = {cell.agent.label for cell in cells}  # FIXED is one of them where it plays
    current = [stored[key] for key in keys if key in stored]
    others = [r for key, r in sorted(stored.items()) if r["agent"] not in agents and r["code_sha256"] == code_hash()]
    return current + sorted(others, key=lambda record: str(record["agent"]))


def _manifest(suite: SuiteBase, agents: list[dict[str, Any]], cells: list[Cell], records: list[dict[str, Any]]) -> dict[str, Any]:
    finished = {record["key"] for record in records}
    return {
        "suite": plain(suite.model_dump()),
        "suite_sha256": suite.sha256,
        "code_sha256": code_hash(),
        "agents": agents,
        "complete": all(cell.key in finished for cell in cells),
        "n_cells": len(records),
        "n_missing": sum(cell.key not in finished for cell in cells),
        "versions": versions(),
        "machine": machine(),
        "finished_at": now(),
        "statistics": {
            "aggregate": "interquartile mean",
            "interval": "percentile bootstrap, stratified by scenario",
            "confidence": CONFIDENCE,
            "replicates": REPLICATES,
            "generator": "numpy Philox",
            "seed": SEED,
        },
        "summary": summarise(suite, records),
        "references": check_all(suite, records),
    }
