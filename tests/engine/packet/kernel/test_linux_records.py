"""The packet engine with the profile ``linux`` beside what Linux does (docs/simulation.md, Beside Linux)."""

import json
from pathlib import Path

import linux_records
import numpy as np
import pytest

CASES = linux_records.cases()
RECORD = json.loads(linux_records.RECORD.read_text(encoding="utf-8"))
# What lies beyond the bands, and why: docs/simulation.md, Beside Linux.
BEYOND = {"single/reno/20/0.5": ["utilisation", "loss"], "single/cubic/20/0.5": ["loss"]}


@pytest.mark.parametrize("case", CASES)
def test_utilisation_queue_loss_and_shares_are_those_of_linux(case: str) -> None:
    found = linux_records.ours(CASES[case][0])
    assert linux_records.beyond(CASES[case], found) == BEYOND.get(case, []) == RECORD[case]["beyond"]
    for name, value in found.items():
        np.testing.assert_allclose(RECORD[case][name], value, rtol=1e-6, err_msg="measure it again: linux_records.py")


def test_the_pages_tell_the_counts_of_the_record() -> None:
    (text,) = [page for page in map(Path.read_text, linux_records.DOCS.glob("*.md")) if "{table} kernel\n" in page]
    within, plain = linux_records.within(RECORD), linux_records.within(RECORD, "plain_beyond")
    assert f"{within} of {len(RECORD)} cases are within (plain: {plain} with one seed)" in " ".join(text.split())
    limits = (linux_records.DOCS / "limits.md").read_text(encoding="utf-8")
    assert f"{len(RECORD)} cases, profile `linux` | {within} within the bands" in limits
    assert f"throughput of a flow 20 %; {plain} without the profile" in limits


def test_nine_cases_of_ten_are_within_the_bands() -> None:
    assert set(BEYOND) <= set(CASES) and len(BEYOND) <= 0.1 * len(CASES)


def test_bands_tell_engines_apart() -> None:
    """A queue of a fifth more, a share of a quarter more or thrice the loss is beyond."""
    case = CASES["cubbbr/50/1"]
    theirs = linux_records.of_record(case[0])
    assert linux_records.beyond(case, theirs) == []
    assert linux_records.beyond(case, {**theirs, "queue": 1.2 * theirs["queue"]}) == ["queue"]
    assert linux_records.beyond(case, {**theirs, "loss": 3 * theirs["loss"]}) == ["loss"]
    assert linux_records.beyond(case, {**theirs, "rates": theirs["rates"] * np.array([1.26, 1.0])}) == ["rates"]
    assert linux_records.beyond(case, {**theirs, "utilisation": theirs["utilisation"] - 0.04}) == ["utilisation"]
