"""Run every suite of a paper again, one after the other in this process, and keep its record and the processor time it took.

``python docs/tables/reproduce.py RUNS [SECONDS [SUITE...]]`` goes on where it was stopped, and stops after so many seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from ccenv.base.errors import InputError
from ccenv.benchmarks.report.page import build_report
from ccenv.benchmarks.run.runner import as_suite, run_suite
from ccenv.benchmarks.store import read_manifest
from tables.bench_records import read_record, write_record
from tables.suites import DATA, papers


def main(runs: Path, end_s: float, names: list[str]) -> None:
    """Run the suites that have no complete run of today's form in the folder."""
    for name in names:
        folder, file = runs / name, runs / f"{name}.cpu.json"
        if _is_recorded(folder, name):
            continue
        before_s = json.loads(file.read_text())["cpu_s"] if file.exists() else 0.0
        start_s = time.process_time()

        def watch(done: int, total: int, name: str = name, file: Path = file, earlier_s: float = before_s - start_s) -> None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"cpu_s": earlier_s + time.process_time()}))
            if time.monotonic() > end_s and done < total:
                sys.exit(f"{name}: {done} of {total}")

        run_suite(name, folder, fresh=not file.exists(), progress=watch)
        cpu_s = json.loads(file.read_text())["cpu_s"]
        build_report(folder)
        write_record(folder, DATA / "bench", cpu_s)
        print(f"{name}: {cpu_s:.0f} s of processor time", flush=True)


def _is_recorded(folder: Path, name: str) -> bool:
    """Return whether the record is of the complete run in a folder, and of the suite as it is today."""
    try:
        manifest, record = read_manifest(folder), read_record(DATA / "bench" / name)
    except InputError:
        return False
    today = as_suite(name)
    names = [reference.name for reference in today.references]
    is_same = manifest.get("finished_at") == record["finished_at"] and "cpu_s" in record
    return is_same and record["suite_sha256"] == today.sha256 and names == [one["name"] for one in record["references"]]


if __name__ == "__main__":
    folder, *rest = sys.argv[1:] or sys.exit(__doc__)
    limit_s = time.monotonic() + float(rest[0] if rest else "inf")
    main(Path(folder), limit_s, rest[1:] or list(papers()))
