"""Records and reports that were edited, or are none, are refused by name or shown as what nobody confirmed."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board_records import build_folders, edit, report

from ccenv.base.errors import CcenvError, InputError
from ccenv.benchmarks.store import CELLS, MANIFEST
from ccenv.leaderboard.evaluate.score import store_report
from ccenv.leaderboard.store.records import VERIFICATION
from ccenv.network.trace import load_trace

HOSTILE = [
    (lambda m: m["agents"][0].update(label="<script>alert(1)</script>"), "agents.0.label"),
    (lambda m: m["agents"][0].update(label="a\u202eb"), "agents.0.label"),
    (lambda m: m["agents"][0].update(label="x" * 200), "agents.0.label"),
    (lambda m: m["summary"][0]["worst_case"].update(trace="traces/../../../etc/passwd.npz"), "worst_case.trace"),
    (lambda m: m["summary"][0]["worst_case"].update(plot="javascript:alert(1)"), "worst_case.plot"),
    (lambda m: m["summary"][0].update(agent_sha256="../x"), "agent_sha256"),
    (lambda m: m.update(finished_at="now"), "finished_at"),
    (lambda m: m.update(extra=1), "unknown key 'extra'"),
    (lambda m: m["suite"].update(duration_rtts=7777.0), "edited after the run"),
    (lambda m: m.update(n_cells=3), "the manifest says 3"),
    (lambda m: m.update(format_version=2), "version is 2"),
    (lambda m: m.update(finished_at="2026-13-01T00:00:00Z"), "finished_at: no date"),
    (lambda m: m.update(finished_at="1999-12-31T23:59:59Z"), "finished_at: before 2026"),
    (lambda m: m.update(n_missing=1), "n_missing is 1, but complete is true"),
    (lambda m: m.update(n_missing=1, complete=False), "and n_missing 1; suite 'small' has"),
    (lambda m: m["summary"][0].update(n_cells=10**6), "n_cells is 1000000"),
    (lambda m: m["summary"][0]["score"].update(n_runs=10**6), "score.n_runs is 1000000"),
]


@pytest.mark.parametrize(("change", "message"), HOSTILE)
def test_hostile_manifests_are_refused_by_name(records: Path, tmp_path: Path, change: Any, message: str) -> None:
    edit(records / "bench" / "small" / MANIFEST, change)
    with pytest.raises(InputError) as caught:
        build_folders([records], tmp_path / "site")
    assert message in str(caught.value) and "small" in str(caught.value) and not (tmp_path / "site").exists()


def test_hostile_cells_and_verifications(records: Path, tmp_path: Path) -> None:
    lines = records / "bench" / "small" / CELLS
    whole = lines.read_text()
    lines.write_text(whole.replace('"seed":1', '"seed":1,"seed":2', 1))
    with pytest.raises(InputError, match=r"line 1.*'seed' is given twice"):
        build_folders([records], tmp_path / "site")
    lines.write_text(whole.replace('"utilisation":', '"utilisation":NaN,"x":', 1))
    with pytest.raises(InputError, match="NaN is not a number"):
        build_folders([records], tmp_path / "site")
    lines.write_text(whole)
    file = next(records.rglob(VERIFICATION))
    edit(file, lambda v: v.update(verdict="probably"))
    with pytest.raises(InputError, match="verdict"):
        build_folders([records], tmp_path / "site")


def test_links_among_the_traces_are_not_followed(records: Path, tmp_path: Path) -> None:
    trace = next((records / "bench" / "hard" / "traces").glob("reno*.npz"))
    secret = tmp_path / "secret"
    secret.write_text("s")
    trace.unlink()
    trace.symlink_to(secret)
    with pytest.raises(InputError, match="is a link"):
        build_folders([records], tmp_path / "site")


REFUTED = {"claim": "x", "verdict": "refuted", "evidence": {"sha256": "a" * 64}}
REPORTS = [
    ([], "not a report"),
    ({"verdict": "verified"}, "'promises' is missing"),
    ({"verdict": "verified", "promises": 2}, "'sender' is missing"),
    (report(promises=1), "a report of promises 1, not 2: make it again"),
    (report(queries=[{"claim": "x"}]), "a query lacks"),
    (report(verdict="yes"), "verdict"),
    (report(sender="cc_qdell"), "Did you mean 'cc_qdel'"),
    (report(trace="/nowhere/x.npz", verdict="refuted", queries=[REFUTED]), "cannot be read"),
    (report(queries=[]), "without queries: nobody can decide it again"),
    (report(queries=[REFUTED]), "the verdict is 'verified', those of its queries are refuted"),
    (report(verdict="refuted"), "the verdict is 'refuted', those of its queries are verified"),
]


@pytest.mark.parametrize(("given", "message"), REPORTS)
def test_reports_that_are_none(tmp_path: Path, given: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        store_report(given, "report.json", tmp_path)
    assert not list(tmp_path.rglob(VERIFICATION))


def test_a_hostile_report_is_shown_as_not_confirmed(records: Path, tmp_path: Path) -> None:
    """Anybody can write "verified" into a file: the index and the page of the sender say that nobody decided it again."""
    query = {"claim": "utilisation >= 0.9999", "verdict": "verified", "evidence": {"sha256": "0" * 64}}
    store_report(report(property="utilisation", bound=0.9999, queries=[query]), "report", records)
    build_folders([records], tmp_path / "site")
    page = next((tmp_path / "site" / "entries").glob("cc_qdel-*.html")).read_text()
    theorem = 1  # of cc_qdel, with a certificate that was checked: a card of its own
    assert page.count("Reported, not confirmed here") == page.count('class="proof-card"') - theorem == 2
    assert "reported, not confirmed here" in (tmp_path / "site" / "index.html").read_text()


def test_a_report_about_another_sender(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a report about 'cc_qdel', not about 'cc_probe_fast'"):
        store_report(report(), "report.json", tmp_path, agent="cc_probe_fast")


def test_a_hostile_report_copies_no_other_file(records: Path, tmp_path: Path) -> None:
    """What a report calls its counterexample lies on this machine: only a trace of its sender on its model is one."""
    secret = tmp_path / "secret.npz"
    np.savez(secret, weights=np.ones(3))
    text = tmp_path / "secret.txt"
    text.write_text("private")
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    traces = records / "bench" / "hard" / "traces"
    own, other = (next(t for t in traces.glob("*.npz") if load_trace(t).header.senders == (n,)) for n in ("cc_qdel", "reno"))
    refuted = {"verdict": "refuted", "queries": [REFUTED]}
    model = load_trace(own).header.model
    for file, changes in ((secret, {}), (text, {}), (pipe, {}), (other, {"model": model}), (own, {"model": "ideal"})):
        with pytest.raises(CcenvError):
            store_report(report(trace=str(file), **refuted, **changes), "report.json", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    folder = store_report(report(trace=str(own), **refuted, model=model), "report.json", tmp_path / "new")
    assert (folder / "traces" / own.name).read_bytes() == own.read_bytes()
