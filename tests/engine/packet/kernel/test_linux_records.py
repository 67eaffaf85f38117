"""The packet engine with the profile ``linux`` beside what Linux does (docs/simulation.md, Beside Linux)."""

import json
from pathlib import Path
from typing import Any

import linux_records
import numpy as np
import pytest

CASES = linux_records.cases()
RECORD = json.loads(linux_records.RECORD.read_text(encoding="utf-8"))
# What lies beyond the bands, and why: docs/simulation.md, Beside Linux.
BEYOND = {
    "single/reno/20/0.5": ["utilisation", "loss"],
    "single/cubic/20/0.5": ["loss"],
    "single/bbr/20/0.5": ["queue"],
    "single/bbr/20/1": ["queue"],
}


@pytest.mark.parametrize("case", CASES)
def test_utilisation_queue_loss_and_shares_are_those_of_linux(case: str) -> None:
    assert RECORD[case]["beyond"] == BEYOND.get(case, [])
    found = linux_records.ours(CASES[case][0], linux_records.SEEDS[0])
    for name in ("utilisation", "queue", "loss", "rates"):
        np.testing.assert_allclose(RECORD[case][name][0], found[name], rtol=1e-6, err_msg="measure it again: linux_records.py")


def test_the_pages_tell_the_counts_of_the_record() -> None:
    (text,) = [page for page in map(Path.read_text, linux_records.DOCS.glob("*.md")) if "{table} kernel\n" in page]
    within, plain = linux_records.within(RECORD), linux_records.within(RECORD, "plain_beyond")
    assert f"{within} of {len(RECORD)} cases are within (plain: {plain})" in " ".join(text.split())
    limits = (linux_records.DOCS / "limits.md").read_text(encoding="utf-8")
    assert f"{len(RECORD)} cases, profile `linux` | {within} within the bands" in limits
    assert f"eight seeds; {plain} without the profile" in limits


def test_four_cases_of_five_are_within_the_bands() -> None:
    """Without a constant fitted to the host; what is beyond are queues and losses that depend on its noise."""
    assert set(BEYOND) <= set(CASES)
    assert len(BEYOND) <= 0.2 * len(CASES)


def test_bands_tell_engines_apart() -> None:
    """A queue of a fifth more, a share of .06 more or thrice the loss is beyond."""
    theirs = [linux_records.of_record(record) for record in CASES["cubbbr/50/1"]]

    def beyond(**changed: Any) -> list[str]:
        return linux_records.beyond(theirs, [{**one, **changed} for one in theirs])

    largest = {key: max(one[key] for one in theirs) for key in ("utilisation", "queue", "loss")}
    assert beyond() == []
    assert beyond(queue=1.2 * largest["queue"]) == ["queue"]
    assert beyond(loss=3 * largest["loss"]) == ["loss"]
    share = max(one["shares"][0] for one in theirs) + 0.06
    assert beyond(shares=[share, 1 - share]) == ["shares"]
    assert beyond(utilisation=min(one["utilisation"] for one in theirs) - 0.04) == ["utilisation"]
