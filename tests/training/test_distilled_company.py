"""The program that is left of learned_fair: what it is fitted to is what a program reads, and the record is of the program."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tables import distillation as records

from ccenv.agents.programs import load_program, to_data
from ccenv.agents.sender import ProgramSender
from ccenv.training.distill.tree import build, ladder, predict

DATA = Path(__file__).parents[2] / "docs" / "data"
RECORD = json.loads((DATA / records.RECORD).read_text())


@pytest.mark.parametrize(("flows", "network"), [(1, "uniform"), (2, "batch"), (3, "kind")])
def test_samples_are_what_a_program_reads_and_does(flows: int, network: str) -> None:
    """A program that is played sends what its own tree says of the samples of the run."""
    template, numbers = ladder(3)
    sender = ProgramSender("x", build(template, numbers, "x"))
    path = records.draw_path(np.random.default_rng(flows), flows)
    samples = records.make_samples(records.run_flows(sender, path, network, 80, 0))
    expected = np.minimum(predict(template, numbers, samples.features), records.LARGEST_RATE)
    np.testing.assert_allclose(samples.rate, expected, rtol=1e-6)


@pytest.mark.parametrize("name", [records.IMITATION, records.LADDER])
def test_the_record_is_of_the_programs_beside_it(name: str) -> None:
    program = load_program(str(DATA / f"{name}.json"))
    assert to_data(program) == RECORD["programs"][name]["program"]
    assert set(RECORD["in_company"][name]) == set(RECORD["in_company"][records.TEACHER])


def test_the_program_starves_as_recorded() -> None:
    name = records.LADDER
    assert records.decide_starvation(load_program(str(DATA / f"{name}.json")), 2) == RECORD["programs"][name]["fairness"]["2"]
    assert RECORD["programs"][name]["fairness"]["2"]["verdict"] == "refuted"
