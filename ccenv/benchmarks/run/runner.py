"""Run a suite, resumable at any point, here, in worker processes or as Ray tasks: from cells to records and a manifest."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.config import shipped_names, validate
from ccenv.base.errors import CcenvError, CcenvWarning, EngineError, InputError, require_extra, shown, unknown_name
from ccenv.base.files import plain
from ccenv.base.foreign import as_path
from ccenv.base.provenance import machine, now, versions
from ccenv.base.user import installed
from ccenv.base.workers import BACKENDS as OF_WORKERS
from ccenv.base.workers import MOST_JOBS, Workers
from ccenv.benchmarks.cells.cell import (
    FILE,
    NO_ADDITIONS,
    Cell,
    Player,
    TraceCell,
    UserAdditions,
    adversary_player,
    agent_player,
    label_of,
)
from ccenv.benchmarks.cells.curve import make_attack_cells, make_curve_cells
from ccenv.benchmarks.cells.fluid import make_fluid_cells
from ccenv.benchmarks.cells.game import game_player, make_game_cells
from ccenv.benchmarks.cells.live import make_live_cells
from ccenv.benchmarks.cells.packet import FIXED, cells_code, make_packet_cells
from ccenv.benchmarks.report.page import PICTURE, write_picture, write_worst_traces
from ccenv.benchmarks.results import ASKED, PARQUET, Manifest, Records, describe_user_metrics, summarise, write_parquet
from ccenv.benchmarks.run.adaptive import BY_INFLUENCE, Plans
from ccenv.benchmarks.statistics import CONFIDENCE, REPLICATES, SEED
from ccenv.benchmarks.store import open_cells, open_run
from ccenv.benchmarks.suite.base import CellData, SuiteBase
from ccenv.benchmarks.suite.curve import PACKAGE, Suite, load_suite
from ccenv.benchmarks.suite.fluid import FluidSuite
from ccenv.benchmarks.suite.game import GameSuite
from ccenv.benchmarks.suite.packet import LiveSuite, PacketSuite
from ccenv.benchmarks.suite.references import check_all, compute_table
from ccenv.network.metrics.table import METRICS
from ccenv.network.metrics.user import load_metric

Progress = Callable[[int, int], None]
"""Called with the number of finished cells and of all cells."""


def run_suite(
    suite: SuiteBase | str,
    out: FilePath | str,
    *,
    extra_agents: Sequence[str] = (),
    extra_adversaries: Sequence[str] = (),
    extra_metrics: Sequence[str] = (),
    only: Sequence[str] = (),
    limit: int | None = None,
    half_width: float | None = None,
    beside: str | None = None,
    backend: str = "local",
    workers: int | None = None,
    fresh: bool = False,
    pictures: bool = True,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Play the unfinished cells of a suite and summarise the run.

    Raises InputError for unknown names, a filter that matches nothing, or a folder of another suite; CcenvError if the folder is
    in use or cannot be written.

    Args:
        suite: a suite, a shipped name or a YAML file.
        out: folder of the results; finished cells in it are kept.
        extra_agents: specs of further senders, e.g. a trained policy or a Python file.
        extra_adversaries: specs of further adversaries; of the curve engine.
        extra_metrics: names, Python files or plugins of further metrics.
        only: patterns of ``scenario/agent/adversary/seed`` with ``*``; empty: all.
        limit: largest number of cells to play now.
        half_width: of each sender's score: seeds are added where they narrow its interval most, until it is reached.
        beside: label of a sender: half_width is that of the difference to its score, over the same seeds.
        backend: one of ``BACKENDS``; it does not change the results.
        workers: processes; by default one per usable core.
        fresh: discard the contents of the folder.
        pictures: also write the worst trace of each sender and the plots.
        progress: called as cells finish.

    Returns:
        Manifest: as written to the folder, a dictionary with ``to_frame``. ``failed`` names the cells whose sender, code of a
        user, failed; the others were played.
    """
    check_parallel(backend, limit=limit, workers=workers)
    request = {"suite": suite if isinstance(suite, str) else suite.name, "adversary": extra_adversaries, "metric": extra_metrics}
    suite, out = as_suite(suite), as_path("out", out)
    _require_list("extra_agents", extra_agents)
    additions = UserAdditions(
        _user_adversaries(suite, extra_adversaries), tuple(load_metric(spec) for spec in extra_metrics if spec not in METRICS)
    )
    suite = _extend_suite(suite, additions, [name for name in extra_metrics if name in METRICS])
    agents = _players(suite, extra_agents)
    plans = None
    if half_width is not None or beside is not None:
        if only:
            raise InputError("half_width chooses the runs by itself: leave out --only")
        plans = Plans(suite, [player.label for player in agents], half_width, beside)
        suite = plans.suite
    cells = make_cells(suite, agents, additions, plans.first_seeds if plans else None)
    chosen = [cell for cell in cells if not only or any(fnmatchcase(cell.name, pattern) for pattern in only)]
    if not chosen:
        raise InputError(f"--only {' '.join(only)!r} matches no cell; cells are called like {cells[0].name!r}")
    with open_run(out, suite, fresh) as folder:
        described = describe_user_metrics(additions.metrics)
        if folder.stored is None:
            folder.write({"complete": False, "suite": plain(suite.model_dump()), "suite_sha256": suite.sha256, **described})
        earlier = (folder.stored or {}).get("agents", [])
        finished = open_cells(folder)
        stored = {record["key"]: record for record in finished.lines}
        codes = {cell.code for cell in cells}
        if older := sum(record.get("code_sha256") not in codes for record in finished.lines):
            text = f"{out}: {older} finished cells are of older code (a statement they reach has changed) and count as missing"
            warnings.warn(text, CcenvWarning, stacklevel=2)
        failed: list[dict[str, str]] = []
        played = 0
        while True:
            unfinished = [cell for cell in chosen if cell.key not in stored][: None if limit is None else limit - played]
            done = sum(cell.key in stored for cell in chosen)
            progress(done, done + len(unfinished))
            for batch in play_cells(unfinished, backend, workers or _cores()):
                failed += [{"cell": one["cell"], "agent": one["agent"], "error": one[FAILED]} for one in batch if FAILED in one]
                records = [record for record in batch if FAILED not in record]
                finished.append(*records)
                stored |= {record["key"]: record for record in records}
                done += len(batch)
                progress(done, len(chosen) if limit is None else done + len(unfinished))
            played += len(unfinished)
            if plans is None or failed or played == limit or any(cell.key not in stored for cell in cells):
                break
            further = make_next_cells(plans, agents, additions, _order_records(cells, stored))
            if not further:
                break
            cells, chosen = cells + further, chosen + further
        records = _order_records(cells, stored)
        labels = {player.label for player in agents} | {FIXED.label}
        kept = {record["agent"] for record in records} - labels
        others = [agent for agent in earlier if agent["label"] in kept]
        players, intervals = [asdict(player) for player in agents] + others, plans.describe() if plans else {}
        manifest = Manifest(_manifest(suite, players, cells, records, intervals), failed=failed)
        manifest |= {**described, ASKED: plain(request)}
        if plans is not None:
            manifest |= {"interval": intervals, "complete": plans.finished}
        if pictures:
            if isinstance(suite, Suite):
                write_worst_traces(out, [c for c in cells if isinstance(c, TraceCell)], records, manifest["summary"])
            if {"queueing_delay_mean_s", "utilisation"} <= set(suite.metrics):
                write_picture(suite, records, manifest["summary"], out / PICTURE)
        finished.replace(records)
        folder.write(manifest)
        if find_spec("pyarrow"):  # of the extra "bench"; cells.jsonl has the same without it
            write_parquet(records, out / PARQUET)
    return manifest


def evaluate(
    suite: SuiteBase | str,
    sender: str,
    *,
    seeds: Sequence[int] | None = None,
    backend: str = "local",
    workers: int | None = None,
    progress: Progress = lambda done, total: None,
) -> Records:
    """Play a suite for one sender and return its records in the order of the suite; nothing is stored.

    ``sender`` (a name with parameters, or the path of a program, policy or Python file) and ``seeds`` replace the suite's; the
    other arguments are those of :func:`run_suite`.

    Returns:
        Records: the lines of ``cells.jsonl`` as a list with ``to_frame``.

    Raises:
        InputError: for an invalid suite, sender or seeds.
        EngineError: if the sender, code of a user, fails.
    """
    suite = as_suite(suite)
    if not isinstance(sender, str):
        raise InputError(f"{shown(sender)} is no spec of a sender: give a name, a file or the folder of a run")
    check_parallel(backend, workers=workers)
    if seeds is not None:
        _require_list("seeds", seeds)
    changes: dict[str, Any] = {"agents": (sender,)} | ({"seeds": tuple(seeds)} if seeds is not None else {})
    suite = validate(type(suite), {**suite.model_dump(), **changes}, f"suite {suite.name}")
    cells = make_cells(suite, [game_player(sender) if isinstance(suite, GameSuite) else agent_player(sender, code=True)])
    finished: dict[str, dict[str, Any]] = {}
    for records in play_cells(cells, backend, workers or _cores()):
        for record in records:
            if FAILED in record:
                raise EngineError(record[FAILED])
        finished |= {record["key"]: record for record in records}
        progress(len(finished), len(cells))
    return Records(finished[cell.key] for cell in cells)


def as_suite(given: SuiteBase | str | os.PathLike[str]) -> SuiteBase:
    """Return the suite of a shipped name, YAML file or plugin; a suite is returned as it is. Raises InputError."""
    if isinstance(given, SuiteBase):
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise InputError(f"{shown(given)} is no suite: give a name (ccenv list suites), a YAML file, or what load_suite returns")
    plugin = installed.find("suite", os.fspath(given), shipped_names(PACKAGE, ".yaml"))
    if plugin is None:
        return load_suite(os.fspath(given))
    file, _, _ = installed.load(plugin)
    if not isinstance(file, (str, os.PathLike)):
        raise InputError(
            f"suite {plugin.name!r} of {plugin.package} is {shown(type(file).__name__)}; it must be the path of a file"
        )
    return load_suite(os.fspath(file))


def _user_adversaries(suite: SuiteBase, specs: Sequence[str]) -> tuple[Player, ...]:
    _require_list("extra_adversaries", specs)
    players = tuple(adversary_player(spec, code=True) for spec in specs)
    for player in players:
        if player.label in suite.opponents or [other.label for other in players].count(player.label) > 1:
            raise InputError(f"two adversaries are called {player.label!r}")
    return players


def _extend_suite(suite: SuiteBase, additions: UserAdditions, names: Sequence[str]) -> SuiteBase:
    """Return a suite with further metrics and adversaries; its hash differs, so results are never mixed."""
    added_metrics = {name: suite.measure(name).direction for name in [*names, *(metric.name for metric in additions.metrics)]}
    players = tuple(player.label for player in additions.adversaries)
    changes: dict[str, Any] = {"metrics": {**suite.metrics, **added_metrics}} if added_metrics else {}
    changes |= {"adversaries": (*suite.opponents, *players)} if players else {}
    return suite.model_copy(update=changes) if changes else suite


def _require_list(what: str, given: object) -> None:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise InputError(f"{what} is {shown(given)}; a list is needed: [{shown(given)}]")


def _players(suite: SuiteBase, extra_agents: Sequence[str]) -> list[Player]:
    if isinstance(suite, GameSuite):
        return [game_player(spec) for spec in dict.fromkeys([*suite.agents, *extra_agents])]
    players = [agent_player(spec, spec) for spec in suite.agents]
    for spec in extra_agents:
        player = agent_player(spec, label_of(spec), code=True)
        if player not in players:
            players.append(player)
    labels = [player.label for player in players]
    for player in players:
        if labels.count(player.label) > 1:
            specs = " and ".join(repr(other.spec) for other in players if other.label == player.label)
            raise InputError(f"two agents are called {player.label!r} ({specs}): rename one in its card or program")
    return players


def make_next_cells(plans: Plans, agents: list[Player], additions: UserAdditions, records: Sequence[CellData]) -> list[Cell]:
    """Return the cells that plans play next, in the order of senders and seeds."""
    scenarios: dict[tuple[str, int], set[str]] = {}
    for label, scenario, seed in plans.next_runs(records):
        scenarios.setdefault((label, seed), set()).add(scenario)
    nominal = plans.suite.score.adversary
    return [
        cell
        for player in agents
        for seed in plans.suite.seeds
        if (player.label, seed) in scenarios
        for cell in make_cells(plans.suite, [player], additions, [seed])
        if cell.scenario in scenarios[player.label, seed] and cell.opponent == nominal and cell.agent == player
    ]


def make_cells(
    suite: SuiteBase, agents: list[Player], additions: UserAdditions = NO_ADDITIONS, seeds: Sequence[int] | None = None
) -> list[Cell]:
    """Return all cells of a suite, in its order; of ``seeds`` only, if given.

    Raises InputError for unknown players, or an invalid network.
    """
    cells: list[Cell] = []
    if isinstance(suite, PacketSuite):
        cells += make_packet_cells(suite, agents, additions, seeds)
    elif isinstance(suite, LiveSuite):
        if agents:
            raise InputError(f"suite {suite.name!r} names the sender of each scenario: it takes no --agent")
        cells += make_live_cells(suite, additions)
    elif isinstance(suite, FluidSuite):
        cells += make_fluid_cells(suite, agents, additions)
    elif isinstance(suite, GameSuite):
        cells += make_game_cells(suite, agents, additions)
    elif isinstance(suite, Suite) and suite.engine == "attack":
        cells += make_attack_cells(suite, agents, additions)
    elif isinstance(suite, Suite):
        cells += make_curve_cells(suite, agents, additions, seeds)
    if not cells:
        raise InputError(f"suite {suite.name!r} lists no agents: give one with --agent")
    return cells


def _cores() -> int:
    return min(MOST_JOBS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _order_records(cells: list[Cell], stored: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Order this run's cells as the suite, then those of agents of earlier runs; drop those of changed agents or older code."""
    keys = [cell.key for cell in cells]
    codes = {cell.code for cell in cells}
    agents = {cell.agent.label for cell in cells}  # FIXED is one of them where it plays
    current = [stored[key] for key in keys if key in stored]
    others = [r for key, r in sorted(stored.items()) if r["agent"] not in agents and r["code_sha256"] in codes]
    return current + sorted(others, key=lambda record: str(record["agent"]))


def _manifest(
    suite: SuiteBase,
    agents: list[dict[str, Any]],
    cells: list[Cell],
    records: list[dict[str, Any]],
    intervals: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    finished = {record["key"] for record in records}
    return {
        "suite": plain(suite.model_dump()),
        "suite_sha256": suite.sha256,
        "code_sha256": cells_code(),
        "agents": agents,
        "complete": all(cell.key in finished for cell in cells),
        "n_cells": len(records),
        "n_missing": sum(cell.key not in finished for cell in cells),
        "versions": versions(),
        "machine": machine(),
        "finished_at": now(),
        "statistics": {
            "aggregate": "interquartile mean",
            "interval": BY_INFLUENCE if intervals else "percentile bootstrap, stratified by scenario",
            "confidence": CONFIDENCE,
            "replicates": REPLICATES,
            "generator": "numpy Philox",
            "seed": SEED,
        },
        "summary": summarise(suite, records, intervals),
        "references": check_all(suite, records),
        **({"table": compute_table(suite, records)} if suite.table else {}),
        **({"solved": [row for game in games for row in game.rows()]} if (games := getattr(suite, "solved", ())) else {}),
    }


LOCAL = "local"
BACKENDS = (LOCAL, *OF_WORKERS)


def check_parallel(backend: str, **counts: int | None) -> None:
    """Raise InputError for an unknown backend or a count below 1, MissingExtraError for Ray that is not installed."""
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    if backend == "ray":
        require_extra("ray", "rllib")
    for name, value in counts.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")


FAILED = "failed"
"""Key of the error text that replaces the record of a cell whose sender, code of a user, failed."""


def run_cell(cell: Cell, broken: dict[str, str]) -> CellData:
    """Play a cell and return its record; for code of a user that fails a record of the failure.

    ``broken`` maps hashes of code that failed to errors; such code is not played again. Other senders that fail raise CcenvError.
    """
    if cell.agent.kind != FILE:
        return cell.run()
    if cell.agent.sha256 not in broken:
        try:
            return cell.run()
        except CcenvError as error:
            broken[cell.agent.sha256] = str(error)
    return {FAILED: broken[cell.agent.sha256], "agent": cell.agent.label, "cell": cell.name}


def play_cells(cells: Sequence[Cell], backend: str, workers: int) -> Iterator[list[CellData]]:
    """Play cells on a backend, with a number of workers; yield the records of finished cells as they come.

    Raises MissingExtraError if Ray is wanted and not installed; CcenvError if a worker dies: records yielded before stay valid.
    """
    if backend == LOCAL:
        broken: dict[str, str] = {}
        for task in _tasks(cells):
            yield [run_cell(cell, broken) for cell in task]
        return
    with Workers(workers, backend, apart=True) as pool:
        yield from pool.as_finished(_task, _tasks(cells))


def _tasks(cells: Sequence[Cell]) -> list[list[Cell]]:
    size = cells[0].per_task if cells else 1
    return [list(cells[start : start + size]) for start in range(0, len(cells), size)]


def _task(cells: list[Cell]) -> list[CellData]:
    broken: dict[str, str] = {}
    return [run_cell(cell, broken) for cell in cells]
