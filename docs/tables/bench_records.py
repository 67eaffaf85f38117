"""Committed records of runs: the numbers, agreement and small plots of a suite without its raw cells."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError, InputError
from ccenv.base.figure import picture
from ccenv.base.files import Format, plain, write_atomic
from ccenv.benchmarks.report.figures import draw
from ccenv.benchmarks.results import read_suite
from ccenv.benchmarks.store import load_cells, read_manifest

FORMAT = Format("ccenv-bench-record", 1, "a record of a suite", "format_version", ensure_ascii=False)
RECORD = "record.json"
DPI = 50  # of the pictures: small enough to be kept
_OF_WORST_CASE = ("metric", "value", "scenario", "adversary", "seed")
_KEPT = ("code_sha256", "n_cells", "complete", "versions", "machine", "finished_at", "references")


def write_record(folder: FilePath, out: FilePath, cpu_s: float | None = None) -> FilePath:
    """Write the record of a finished run to ``out/SUITE``, and return that folder. Raises InputError if a run is not complete.

    ``cpu_s`` is the processor time that it took, where that is known.
    """
    manifest = read_manifest(folder)
    if not manifest.get("complete"):
        raise InputError(f"{folder}: the run is not complete: run the same command again without --only and --limit")
    suite = read_suite(manifest, f"{folder}/manifest.json")
    records = load_cells(folder)
    target = out / suite.name
    try:
        target.mkdir(parents=True, exist_ok=True)
        for old in target.glob("*.png"):
            old.unlink()
    except OSError as error:
        raise CcenvError(f"{target}: cannot be written ({error.strerror})") from None
    pictures = []
    for figure in suite.figures:
        canvas = draw(suite, records, figure)
        if canvas is not None:
            write_atomic(target / f"{figure.name}.png", picture(canvas, ".png", DPI))
            pictures.append(f"{figure.name}.png")
    senders = [
        {
            "agent": e["agent"],
            "score": e["score"],
            "means": e["against"][suite.score.adversary],
            "worst_case": e["worst_case"] and {name: e["worst_case"][name] for name in _OF_WORST_CASE},
        }
        for e in manifest["summary"]
    ]
    data = {
        "suite": suite.name,
        "version": suite.version,
        "suite_sha256": suite.sha256,
        "command": f"ccenv bench run {suite.name}",
        **{name: manifest[name] for name in _KEPT},
        **({} if cpu_s is None else {"cpu_s": cpu_s}),
        "senders": senders,
        "pictures": pictures,
    }
    FORMAT.write(target / RECORD, plain(_round_numbers(data)))
    return target


def _round_numbers(value: Any) -> Any:
    """Round numbers to six digits; the run folder has full precision."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _round_numbers(item) for name, item in value.items()}
    return [_round_numbers(item) for item in value] if isinstance(value, (list, tuple)) else value


def read_record(folder: FilePath) -> dict[str, Any]:
    """Read a record. Raises InputError if there is none, or one of another format."""
    return FORMAT.read(folder / RECORD)


def read_records(folder: FilePath) -> list[dict[str, Any]]:
    """Read all records of a folder, by name. Raises InputError if there are none."""
    records = [read_record(child) for child in sorted(folder.iterdir()) if (child / RECORD).exists()] if folder.is_dir() else []
    if not records:
        raise InputError(f"{folder}: holds no records; make some with: python docs/tables/record_bench.py {folder} RUN")
    return records
