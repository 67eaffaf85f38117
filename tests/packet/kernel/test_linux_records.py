"""The packet engine with the profile ``linux`` beside what Linux does (docs/packet-engine.md, Beside Linux)."""

from __future__ import annotations

import linux_records
import numpy as np
import pytest

CASES = linux_records.cases()
# What lies beyond the bands, and why: docs/packet-engine.md, Beside Linux.
BEYOND = {
    "single/reno/20/0.5": ["utilisation", "loss"],
    "single/cubic/20/0.5": ["loss"],
}


@pytest.mark.parametrize("case", CASES)
def test_utilisation_queue_loss_and_shares_are_those_of_linux(case: str) -> None:
    assert linux_records.beyond(CASES[case], linux_records.ours(CASES[case][0])) == BEYOND.get(case, [])


def test_nine_cases_of_ten_are_within_the_bands() -> None:
    assert set(BEYOND) <= set(CASES)
    assert len(BEYOND) <= 0.1 * len(CASES)


def test_bands_tell_engines_apart() -> None:
    """A queue of a fifth more, a share of a quarter more or thrice the loss is beyond."""
    case = CASES["cubbbr/50/1"]
    theirs = linux_records.of_record(case[0])
    assert linux_records.beyond(case, theirs) == []
    assert linux_records.beyond(case, {**theirs, "queue": 1.2 * theirs["queue"]}) == ["queue"]
    assert linux_records.beyond(case, {**theirs, "loss": 3 * theirs["loss"]}) == ["loss"]
    assert linux_records.beyond(case, {**theirs, "rates": theirs["rates"] * np.array([1.26, 1.0])}) == ["rates"]
    assert linux_records.beyond(case, {**theirs, "utilisation": theirs["utilisation"] - 0.04}) == ["utilisation"]
