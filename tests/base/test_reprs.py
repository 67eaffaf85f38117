"""What a prompt and a notebook show of public objects: one short line, and for results a page and a table."""

import inspect
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ccenv
from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents import AGENTS
from ccenv.agents.programs import Program
from ccenv.agents.sender import ExternalSender, ProgramSender
from ccenv.attacks.run import AttackResult, Finding
from ccenv.base.results import TableResult
from ccenv.benchmarks.compare import Comparison
from ccenv.benchmarks.results import Manifest, Records
from ccenv.network.adversary import MlpAdversary, RecordedAdversary
from ccenv.network.trace import Trace
from ccenv.proofs.claims.ask import Answer
from ccenv.proofs.claims.lemma_run import LemmaReport
from ccenv.simulation import Result
from ccenv.training.analysis import TrainingRun
from ccenv.training.evaluation import Evaluation
from ccenv.training.run import TrainingResult

RESULTS = (
    Trace, Result, Comparison, AttackResult, Answer, LemmaReport, Manifest, Records, TrainingResult, TrainingRun,
)  # fmt: skip
MOST_CHARS = 240
PATH = ccenv.make_path(link_rate_mbps=50, rtt_ms=40, buffer_bdp=1)


def require_short(value: object, *parts: str) -> None:
    text = repr(value)
    assert text.startswith(type(value).__name__.lstrip("_")), text
    assert "\n" not in text
    assert " at 0x" not in text
    assert len(text) <= MOST_CHARS, text
    for part in parts:
        assert part in text


@pytest.mark.parametrize("name", sorted(AGENTS.names()))
def test_each_sender(name: str) -> None:
    try:
        sender = ccenv.make_sender(name)
    except ccenv.CcenvError:  # it has parameters that must be given
        pytest.skip("needs parameters")
    require_short(sender, name)


def test_parameters_are_shown_as_they_are_written() -> None:
    assert "copa:" in repr(ccenv.make_sender("copa:default_delta=0.1"))
    assert "default_delta=0.1" in repr(ccenv.make_sender("copa:default_delta=0.1"))
    require_short(ccenv.make_sender("lambda_proxy:target_s=0.1,inner=reno"), "reno", "100 ms")


@pytest.mark.parametrize("name", sorted(ADVERSARIES.names()))
def test_each_adversary(name: str) -> None:
    require_short(make_adversary(name), make_adversary(name).name)


def test_other_players_and_what_holds_them() -> None:
    class Mine(ccenv.PythonSender):
        def on_start(self) -> None:
            self.cwnd_bytes = 3000.0

    mine = Mine()
    require_short(mine, "not started")
    mine.on_start()
    require_short(mine, "3000")
    sender = ccenv.make_sender("cc_probe_slow")
    assert isinstance(sender, ProgramSender) and isinstance(sender.program, Program)
    require_short(sender.program, "cc_probe_slow", "leaves")
    require_short(ExternalSender("external", ccenv.make_sender("reno")), "on reno")  # type: ignore[arg-type]
    require_short(RecordedAdversary("of a solver", np.ones((7, 4))), "7 steps")
    weights = (np.ones((9, 4)), np.ones((4, 2)))
    require_short(MlpAdversary("net", weights, (np.ones(4), np.ones(2)), "tanh", 1, (0, 2)), "2 layers", "50 numbers")
    require_short(ccenv.CurveEngine([PATH, PATH], senders=[sender]), "2 environments", "cbr_delay")
    require_short(PATH, "50 Mbit/s")
    require_short(ccenv.Observation("rate_ratio", gap={"qdel_U": 1, "qdel_L": -1}), "rate_ratio, gap")


def test_findings_leave_out_traces_and_moves() -> None:
    trace = ccenv.CurveEngine([PATH], senders=[ccenv.make_sender("reno")], record=True)
    trace.advance(40)
    run = trace.trace(0)
    require_short(run)
    given: dict[str, Any] = {"flow_steps": 40, "seconds": 0.1, "trace": run}
    finding = Finding(adversary="square", spec="square:duty=0.5", worst_utilisation=0.25, legal=True, **given)
    require_short(finding, "square:duty=0.5", "0.25")
    broken = Finding(adversary="cem", worst_utilisation=0.5, legal=False, violations=("law 1",), runs=3, **given)
    require_short(broken, "cem", "0.5", "not legal")


def test_a_training_result_shows_what_was_measured() -> None:
    numbers: dict[str, Any] = {field.name: 0.5 for field in fields(Evaluation)}
    found = Evaluation(**{**numbers, "path_set": "report", "n_paths": 8, "n_flows": 1})
    result = TrainingResult(Path("run"), 1000, 1.0, 1.0, 0, found, None, 0.5, 500, found, False, {"deep": found})
    require_short(result, "1000 steps", "0.5")
    frame = result.to_frame()
    assert list(frame.index) == ["last", "best", "deep"] and math.isclose(frame.loc["best", "score"], 0.5)
    assert result._repr_html_().count("<tr>") == 4


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_results_have_a_line_a_page_and_a_table(kind: type) -> None:
    assert issubclass(kind, TableResult)
    assert "__repr__" in vars(kind)
    assert {"_rows", "_make_frame"} & set(vars(kind)), f"{kind.__name__} has no table of its own"


def test_public_classes_have_a_line_of_their_own() -> None:
    for name in ccenv.__all__:
        value = getattr(ccenv, name)
        if inspect.isclass(value) and not issubclass(value, Exception):
            assert "__repr__" in vars(value), name
