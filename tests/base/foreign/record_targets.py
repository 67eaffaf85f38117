"""Readers of what runs, boards and solvers leave: the second half of the targets."""

import hashlib
import io
import json
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from legal_traces import legal_trace
from submission_folders import make_good
from synthetic import bench, suites
from target import Target, from_file

from ccenv.base.errors import InputError
from ccenv.base.files import plain

ROOT = Path(__file__).parents[3]
DATA = ROOT / "docs" / "data"
DOCUMENT = "submission.json"


@cache
def _submissions() -> dict[str, dict[str, bytes]]:
    """Return the files of a good submission of each kind."""
    out = {}
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ("program", "scripted", "policy", "moves", "network"):
            folder = make_good(kind, Path(scratch) / kind / "in")
            out[kind] = {file.name: file.read_bytes() for file in folder.iterdir()}
    return out


def _document(content: bytes, folder: Path) -> object:
    """Hand in a changed document beside the payload that it was made for."""
    from ccenv.leaderboard.submission.reader import parse_submission

    found = re.search(rb'"kind": ?"(\w+)"', content)
    kind = found[1].decode() if found and found[1].decode() in _submissions() else "program"
    return parse_submission({**_submissions()[kind], DOCUMENT: content}, "in")


def _payload(kind: str) -> Target:
    def read(content: bytes, folder: Path) -> object:
        from ccenv.leaderboard.submission.reader import parse_submission

        files = dict(_submissions()[kind])
        name = next(name for name in files if name != DOCUMENT)
        document = json.loads(files[DOCUMENT])
        document["files"] = {name: hashlib.sha256(content).hexdigest()}
        return parse_submission({DOCUMENT: json.dumps(document).encode(), name: content}, "in")

    def seeds() -> list[bytes]:
        return [content for name, content in _submissions()[kind].items() if name != DOCUMENT]

    return Target(f"submitted_{kind}", read, seeds, 1)


@cache
def _export() -> bytes:
    """Return the export of a small board."""
    from ccenv.leaderboard.site.exchange import export_board
    from ccenv.leaderboard.store.home import Home
    from ccenv.leaderboard.store.submit import submit_folder

    with tempfile.TemporaryDirectory() as scratch:
        home = Home(Path(scratch) / "board")
        with home.open() as store:
            submit_folder(store, home, make_good("program", Path(scratch) / "in"))
            export_board(store, Path(scratch) / "export.jsonl")
        return (Path(scratch) / "export.jsonl").read_bytes()


def _import(content: bytes, folder: Path) -> object:
    from ccenv.leaderboard.site.exchange import import_board, read_export
    from ccenv.leaderboard.store.home import Home

    (folder / "in.jsonl").write_bytes(content)
    shutil.rmtree(folder / "board", ignore_errors=True)
    home = Home(folder / "board")
    with home.open() as store:
        return import_board(store, home, read_export(folder / "in.jsonl"))


def _row(content: bytes, folder: Path) -> object:
    """Forge the content of a submission's record, with hashes that fit: only its own rules can refuse it."""
    from ccenv.leaderboard.store.database import START, extend_chain, record_hash

    lines = [json.loads(line) for line in _export().splitlines()]
    chain = START
    for line in lines:
        row = line.get("record")
        if row is None:
            continue
        if row["kind"] == "submission":
            row["content"] = content.decode("utf-8", "replace")
        row["sha256"] = record_hash(row["kind"], row["subject"], row["slot"], row["content"])
        row["chain"] = chain = extend_chain(chain, row["sha256"])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return _import(text.encode(), folder)


def _rows() -> list[bytes]:
    rows = [json.loads(line).get("record", {}) for line in _export().splitlines()]
    return [row["content"].encode() for row in rows if row.get("kind") == "submission"]


def _bench_manifest(content: bytes, folder: Path) -> object:
    from ccenv.base.config import validate
    from ccenv.base.foreign import parse_json
    from ccenv.leaderboard.store.records import Manifest, check_summary, parse_suite, played_hash

    # The hash is made to fit, so that the suite's own rules refuse what is changed in it.
    data = parse_json(content, "manifest.json")
    if isinstance(data, dict) and isinstance(data.get("suite"), dict):
        data["suite_sha256"] = played_hash(data["suite"])
    manifest = validate(Manifest, data, "manifest.json")
    check_summary(manifest, parse_suite(manifest.suite, manifest.suite_sha256, "manifest.json"), "manifest.json")
    return manifest


def _bench_cells(content: bytes, folder: Path) -> object:
    from ccenv.leaderboard.store.records import read_cells

    manifest = _bench().manifest
    return read_cells(content, manifest.model_copy(update={"n_cells": max(1, len(content.splitlines()))}), "cells.jsonl")


def _manifest_seed() -> list[bytes]:
    suite = plain(suites()[0].model_dump())  # infinities as text
    return _json_seed(_bench().manifest.model_dump(mode="json") | {"suite": suite})


@cache
def _bench() -> Any:
    return bench(suites()[0], "reno", 0.5, 1)


def _cell_lines() -> list[bytes]:
    lines = [json.dumps(cell.model_dump(mode="json")).encode() for cell in _bench().cells[:2]]
    return [lines[0], b"\n".join(lines) + b"\n"]


VERIFIED = {
    "format": "ccenv-verification", "format_version": 2, "agent": "reno", "agent_sha256": "a" * 64, "model": "ccac",
    "buffer": "infinite", "property_name": "loss", "steps": 7, "setting": "history", "verdict": "verified", "bound": 0.5,
    "queries": [{"claim": "loss", "verdict": "verified", "sha256": "b" * 64}], "seconds": 1.5, "solver": "z3 4",
    "trace": None, "finished_at": "2026-01-01T00:00:00Z",
}  # fmt: skip


def _verification(content: bytes, folder: Path) -> object:
    from ccenv.leaderboard.store.records import read_records

    (folder / "records").mkdir(exist_ok=True)
    (folder / "records" / "verification.json").write_bytes(content)
    return read_records([folder / "records"])


def _answer(content: bytes, folder: Path) -> object:
    from ccenv.proofs.solver.solvers import Store

    store = Store(folder / "verify")
    store._answer_file("text", "z3 4").write_bytes(content)
    answer = store.load("text", "z3 4")
    if answer is None:  # what is damaged counts as absent: here, as refused
        raise InputError("absent")
    return answer


ANSWER = {
    "status": "sat", "seconds": 0.5, "solver": "z3 4", "reason": "", "model": {"a": "1/3", "b": True}, "sha256": "a", "about": {},
}  # fmt: skip


@cache
def _journal_head() -> bytes:
    from ccenv.proofs.synthesis.journal import Journal

    with tempfile.TemporaryDirectory() as scratch:
        return Journal(Path(scratch), "query", False, "code").file.read_bytes()


def _journal(content: bytes, folder: Path) -> object:
    """Put lines behind a good head, and use what is read as a run does."""
    from ccenv.proofs.synthesis import journal
    from ccenv.proofs.synthesis.journal import list_classes

    (folder / "journal.jsonl").write_bytes(_journal_head() + content)
    lines = journal.Journal(folder, "query", True, "code").lines
    if not lines:
        raise InputError("nothing is taken over")
    for line in lines:
        decisions = line.get("decisions", ())
        traces = [item["trace"] for item in (line, *decisions) if item.get("trace") is not None]
        _ = list_classes(line), [journal.trace_from(trace) for trace in traces]
    return lines


def _journal_lines() -> list[bytes]:
    from ccenv.proofs.synthesis.journal import trace_data
    from ccenv.proofs.synthesis.query.classes import TRACE

    zero = np.zeros((), TRACE)
    zero["samples"], zero["link"] = 5, 240
    trace = trace_data(zero)
    decision = {"class": 3, "status": "unknown", "calls": 1, "claim": "loss", "reason": "time", "queries": []}
    lines: list[dict[str, Any]] = [
        {"kind": "foundation", "calls": 3, "seconds": 0.1},
        {"kind": "counterexample", "class": 1, "trace": trace},
        {"kind": "simulated", "left": 4, "cpu_s": 0.5},
        {"kind": "group", "cpu_s": 0.1, "call_s": 9, "still": False, "decisions": [decision | {"trace": trace}]},
        {"kind": "pairs", "cpu_s": 0.1, "replay_s": 0.1, "call_s": 9, "decisions": [decision | {"dropped": [4, 5]}]},
    ]
    texts = [json.dumps(line).encode() + b"\n" for line in lines]
    return [*texts, b"".join(texts)]


_bench_record = from_file("tables.bench_records:read_record", "record.json", of_folder=True)
_distilled = from_file("tables.distillation:read_data", "distillation.json")
_learning = from_file("tables.training_records:read_data", "learning.json")
_shown = from_file("ccenv.cli.catalog:show_path", "shown.json")
_state = from_file("ccenv.training.distill.prove:read_state", "state.npz")


def _state_file(note: bytes) -> bytes:
    out = io.BytesIO()
    arrays = {"starts": np.ones((2, 5)), "moves": np.ones((2, 4, 3)), "mean": np.ones(4)}
    np.savez_compressed(out, note=np.frombuffer(note, np.uint8), **arrays)  # type: ignore[arg-type]
    return out.getvalue()


NOTE = json.dumps({"records": [{"round": 0, "outcome": "refused"}], "refused": ["ab"], "claim": ["key", "1/2"]}).encode()


def _state_note(content: bytes, folder: Path) -> object:
    return _state(_state_file(content), folder)


def _stage(content: bytes, folder: Path) -> object:
    from ccenv.training.distill import run

    (folder / "distilled" / "stages").mkdir(parents=True, exist_ok=True)
    (folder / "distilled" / "stages" / "tree.json").write_bytes(content)
    return run.Stages(folder / "distilled", {"a": 1}).run("tree", dict)


def _replay(content: bytes, folder: Path) -> object:
    """Read a solver's trace and turn it into moves of the engine, as ``ccenv trace replay`` does."""
    from ccenv.network.trace import load_trace
    from ccenv.proofs.formulas.moves import moves_of

    (folder / "replay.npz").write_bytes(content)
    trace = load_trace(folder / "replay.npz")
    if trace.n_steps > 10_000:  # what a header of a huge length costs is the trace's own question
        return trace
    return moves_of(trace)


@cache
def _solver_trace() -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        trace = legal_trace("ccac", 3, n_flows=1, n_steps=8, steps_per_rtt=1)
        trace.save(Path(scratch) / "t.npz")
        return (Path(scratch) / "t.npz").read_bytes()


def _demo(content: bytes, folder: Path) -> object:
    from ccenv.cli.demo import STAGES, finished_stages, open_demo

    (folder / "demo").mkdir(exist_ok=True)
    (folder / "demo" / STAGES).write_bytes(content)
    with open_demo(folder / "demo") as held:
        return finished_stages(held)


def _json_seed(data: Any) -> list[bytes]:
    return [json.dumps(data).encode()]


RECORD_TARGETS = (
    Target("submission", _document, lambda: [files[DOCUMENT] for files in _submissions().values()], 2),
    *(_payload(kind) for kind in ("program", "scripted", "policy", "moves", "network")),
    Target("export", _import, lambda: [_export()], 0.15),
    Target("export_record", _row, _rows, 0.15),
    Target("bench_manifest", _bench_manifest, _manifest_seed, 0.6),
    Target("bench_cells", _bench_cells, _cell_lines, 3),
    Target("bench_record", _bench_record, lambda: [sorted(DATA.glob("bench/*/record.json"))[0].read_bytes()[:200_000]], 1),
    Target("verification", _verification, lambda: _json_seed(VERIFIED), 2),
    Target("smt_answer", _answer, lambda: _json_seed(ANSWER), 3),
    Target("journal", _journal, _journal_lines, 0.6),
    Target("distill_state", _state, lambda: [_state_file(NOTE)], 3),
    Target("distill_note", _state_note, lambda: [NOTE], 1),
    Target("distill_stage", _stage, lambda: _json_seed({"key": {"a": 1}, "result": {"verdict": "verified"}}), 1),
    Target("distilled", _distilled, lambda: _json_seed({"format": "ccenv-distillation-record", "version": 2, "runs": []}), 2),
    Target("learning", _learning, lambda: _json_seed({"format": "ccenv-learning-record", "version": 2, "runs": {}}), 2),
    Target("replay", _replay, lambda: [_solver_trace()], 3),
    Target(
        "shown",
        _shown,
        lambda: [*_json_seed({"format": "ccenv-run", "name": "x", "steps": 3}), _submissions()["program"][DOCUMENT]],
        3,
    ),
    Target(
        "demo",
        _demo,
        lambda: _json_seed(
            {"format": "ccenv-demo", "format_version": 1, "stages": {"train": {"command": "ccenv train", "result": "done"}}}
        ),
        2,
    ),
)
