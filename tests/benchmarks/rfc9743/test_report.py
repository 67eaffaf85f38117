"""Reports: criteria as data, numbers and verdicts against known answers, resuming, and the page."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chromium import BROWSER, Chromium

from ccenv.base.errors import InputError
from ccenv.benchmarks.rfc9743 import load_criteria, report_on
from ccenv.benchmarks.rfc9743.criteria import FAILS, MEETS, NOT_MEASURED, REPORTED, combine_verdicts
from ccenv.cli.main import main

# Half of a link of 10 Mbit/s by a constant rate: all its numbers are known.
SUITE = """
format: ccenv-suite
format_version: 1
name: tiny
version: 1
engine: packet
duration_s: 4
warm_up_s: 1
log_s: 0.02
series_s: 0.5
seeds: [1, 2]
scenarios:
  - name: alone
    summary: one flow
    parameters: {rtt: [20, 40]}
    network: {links: [{rate_mbps: 10, buffer_bdp: 1}], flows: [{sender: $agent, rtt_ms: $rtt}]}
  - name: slow
    summary: less than a packet per RTT
    network: {links: [{rate_mbps: 0.1, buffer_packets: 4}], flows: [{sender: $agent, rtt_ms: 20}]}
metrics: [utilisation, loss_fraction, sent_packets_per_rtt]
worst_case: {metric: utilisation}
"""
CRITERIA = """
format: ccenv-criteria
format_version: 1
name: tiny
title: A tiny evaluation
suite: tiny-suite.yaml
baseline: reno
proofs: [{claim: invariant, samples: 7}]
criteria:
  - id: use
    title: Use of the link
    source: a test
    asks: How much of the link does it use?
    measures:
      - label: Use
        quantity: {metric: utilisation, scenario: alone}
        topic: throughput
        at_least: 0.45
        at_most: 0.55
        source: a test
      - {label: Of Reno, quantity: {metric: utilisation, scenario: alone}, topic: throughput, at_most_baseline: 0.4, source: test}
    pictures: ["alone[rtt=20]"]
  - id: slow
    title: A slow link
    source: a test
    asks: What does it do there?
    measures:
      - {label: Sent, quantity: {metric: sent_packets_per_rtt, scenario: slow}, topic: loss, at_most: 1, source: a test}
      - {label: Lost, quantity: {metric: loss_fraction, scenario: slow}, topic: loss}
"""


def write(folder: Path, criteria: str = CRITERIA, suite: str = SUITE) -> str:
    (folder / "tiny-suite.yaml").write_text(suite)
    (folder / "tiny.yaml").write_text(criteria)
    return str(folder / "tiny.yaml")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_shipped_criteria_name_what_their_suite_has() -> None:
    criteria, suite = load_criteria("rfc9743")
    assert {c.id for c in criteria.criteria} >= {
        *("collapse", "bufferbloat", "loss", "own-kind", "short-flows", "general-purpose", "real-time"),
        *("tail-drop", "aqm", "wireless", "high-delay", "varying-delay", "changes"),
    }
    used = {str(m.quantity.scenario).partition("[")[0] for c in criteria.criteria for m in c.measures}
    assert used == {scenario.name for scenario in suite.scenarios}
    assert {m.topic for c in criteria.criteria for m in c.measures} == {
        *("throughput", "delay", "loss", "response", "fairness", "robustness")
    }


def test_known_numbers_and_verdicts(here: Path) -> None:
    attacked = CRITERIA.replace("proofs:", "worst_cases: [{scene: narrow, flow_steps: 400000}]\nproofs:")
    found = report_on("constant:rate_mbps=5", criteria=write(here, attacked))
    use, slow = found["criteria"]
    assert use["measures"][0]["value"] == pytest.approx(0.5, rel=0.01)
    assert [m["verdict"] for m in use["measures"]] == [MEETS, FAILS]  # Reno has all of the link; 0.4 of that is less than a half
    assert use["measures"][1]["threshold"]["at_most"] == pytest.approx(0.4 * use["measures"][1]["baseline"])
    assert use["verdict"] == FAILS
    sent, lost = slow["measures"]
    assert sent["value"] == pytest.approx(5e6 / 8 * 0.02 / 1500, rel=0.02)  # packets per Rm of 20 ms
    assert lost["value"] == pytest.approx(0.98, abs=0.01)  # 5 Mbit/s into 0.1
    assert (sent["seeds"], sent["n_cells"], sent["unit"], lost["verdict"]) == ([1, 2], 2, "packets", REPORTED)
    (worst,) = found["worst_cases"]
    assert worst["legal"] and 0 < worst["worst_utilisation"] < 1.01 and "no encoding" in found["proofs"][0]["why"]


def test_a_second_run_plays_nothing_and_says_the_same(here: Path) -> None:
    criteria = write(here)
    first = report_on("copa", criteria=criteria, only=["use"])
    files = [Path(first["out"]) / "report.json", Path(first["page"])]
    before = [file.read_bytes() for file in files]
    seen: list[tuple[int, int]] = []
    report_on("copa", criteria=criteria, only=["use"], progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (8, 9)  # two cases, two seeds, two senders are there; the proof stands in another file
    assert [file.read_bytes() for file in files] == before
    report_on("copa", criteria=criteria, only=["use"], fresh=True, jobs=2)
    assert [file.read_bytes() for file in files] == before


def test_networks_that_a_sender_refuses_are_not_measured(here: Path) -> None:
    found = report_on("cc_qdel", criteria=write(here))
    use, slow = found["criteria"]
    assert use["verdict"] in (MEETS, FAILS) and slow["verdict"] == NOT_MEASURED
    assert all("less than a segment per Rm" in measure["why"] for measure in slow["measures"])
    assert found["proofs"][0]["verdict"] == "verified"


def test_a_file_that_fails_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "bad.py").write_text(
        "import ccenv\nclass Bad(ccenv.PythonSender):\n    def on_ack(self, ack):\n        self.cwnd_bytes = 1 / 0\n"
    )
    criteria = write(here)
    assert main(["report", "bad.py", "--criteria", criteria, "--json", "--jobs", "1"]) == 1
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert found["failed"] in told.err and {c["verdict"] for c in found["criteria"]} == {NOT_MEASURED}
    assert "ZeroDivisionError" in found["failed"] and "ZeroDivisionError" in Path(found["page"]).read_text()


def test_a_file_of_ones_own(here: Path, answer) -> None:
    (here / "fixed.py").write_text(
        "import ccenv\nclass Fixed(ccenv.PythonSender):\n    def on_start(self):\n        self.cwnd_bytes = 6000.0\n"
    )
    arguments = ["report", "fixed.py", "--criteria", write(here), "--only", "use", "--jobs", "1", "-o", "out/mine.html"]
    found = answer([*arguments, "--json"])
    assert found["sender"]["kind"] == "file"
    # four packets per RTT of 20 and of 40 ms, and their own time on the link; the two cases weigh the same
    assert 0.15 < found["criteria"][0]["measures"][0]["value"] < 0.25 and found["proofs"][0]["why"]
    assert (here / "out" / "mine.html").is_file()


def test_the_page_opens_offline(here: Path) -> None:
    found = report_on("vegas", criteria=write(here))
    text = Path(found["page"]).read_text()
    assert not re.search(r"(src|href)=.?(https?:)?//", text) and text.count("data:image/png") == 3
    if BROWSER is None:
        pytest.skip("no Chromium here")
    with Chromium(here / "profile") as browser:
        browser.open((here / found["page"]).as_uri(), 400)
        assert browser.look("document.images.length") == 3
        assert browser.look("[...document.images].every(i => i.naturalWidth > 0)")
        assert browser.look("document.documentElement.scrollWidth") <= 400


def test_ctrl_c_keeps_what_is_done(here: Path) -> None:
    criteria = write(here, suite=SUITE.replace("duration_s: 4", "duration_s: 100"))
    command = [sys.executable, "-m", "ccenv.cli.main", "report", "reno", "--criteria", criteria, "--jobs", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=here) as running:
        cells = here / "runs" / "report" / "reno" / "cells" / "cells.jsonl"
        until = time.monotonic() + 600
        while not (cells.exists() and cells.stat().st_size) and running.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(running.pid, signal.SIGINT)
        _, told = running.communicate(timeout=300)
    kept = cells.read_bytes()
    assert kept
    if running.returncode == 130:  # else it was faster than the signal
        assert b"resumes" in told
    subprocess.run(command, cwd=here, check=True, capture_output=True)
    assert cells.read_bytes().startswith(kept[: kept.index(b"\n")])
    assert json.loads((here / "runs" / "report" / "reno" / "report.json").read_text())["suite"]["n_cells"] == 6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("        at_most: 0.55\n        source: a test\n", "", "needs its source"),
        ("metric: loss_fraction", "metric: loss_fractoin", "Did you mean 'loss_fraction'"),
        ("scenario: slow}, topic: loss}", "scenario: slwo}, topic: loss}", "is none of the suite"),
        ('"alone[rtt=20]"', '"alone[rtt=21]"', "is no case of the suite"),
        ("proofs:", "worst_cases: [{scene: narow, flow_steps: 1}]\nproofs:", "Did you mean 'narrow'"),
        ("topic: loss}", "topic: smell}", "topic"),
    ],
)
def test_wrong_criteria_are_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in CRITERIA
    with pytest.raises(InputError, match=re.escape(message)):
        load_criteria(write(tmp_path, CRITERIA.replace(old, new)))


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [([REPORTED, REPORTED], REPORTED), ([MEETS, REPORTED], MEETS), ([MEETS, FAILS, NOT_MEASURED], FAILS),
     ([MEETS, NOT_MEASURED], NOT_MEASURED)],
)  # fmt: skip
def test_verdict_of_a_criterion(verdicts: list[str], expected: str) -> None:
    assert combine_verdicts(verdicts) == expected
