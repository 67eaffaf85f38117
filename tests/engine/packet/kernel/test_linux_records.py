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
BEYOND = {case: ["queue"] for case in (*(f"single/bbr/20/{size}" for size in ("0.5", "1", "4")), "ns3/bbr/12", "ns3/bbr/24")}


@pytest.mark.parametrize("case", CASES)
def test_utilisation_queue_loss_and_shares_are_those_of_linux(case: str) -> None:
    assert RECORD[case]["beyond"] == BEYOND.get(case, [])
    found = linux_records.ours(CASES[case][0], linux_records.SEEDS[0])
    for name in ("utilisation", "queue", "loss", "rates"):
        np.testing.assert_allclose(RECORD[case][name][0], found[name], rtol=1e-6, err_msg="measure it again: linux_records.py")


def test_the_pages_tell_the_counts_of_the_record() -> None:
    docs = linux_records.DATA.parent
    (text,) = [" ".join(page.split()) for page in map(Path.read_text, docs.glob("*.md")) if "{table} kernel\n" in page]
    within, plain, single, host = (linux_records.within(RECORD, f"{name}beyond") for name in ("", "plain_", "single_", "host_"))
    assert f"{within} of {len(RECORD)} cases are within (plain: {plain})" in text
    assert f"with `burst_s: 0` of bbr1 {single} are" in text and f"Of the host's records {host} are within" in text
    limits = (docs / "limits.md").read_text(encoding="utf-8")
    assert f"{len(RECORD)} cases, profile `linux` | {within} within the bands" in limits
    assert f"eight seeds; {plain} without the profile" in limits


def test_records_are_complete_and_four_cases_of_five_are_within_the_bands() -> None:
    """Without a constant fitted to a host; what is beyond is one quantity of one sender, which a switch moves inside."""
    assert {case: row["beyond"] for case, row in RECORD.items() if row["beyond"]} == BEYOND
    assert len(BEYOND) <= 0.2 * len(CASES) and not any(RECORD[case]["single_beyond"] for case in BEYOND)
    seeds = {case: {one["seed"] for one in records} for case, records in CASES.items()}
    assert set(seeds) == set(linux_records.cases(linux_records.HOST))
    assert all(found == set(linux_records.SEEDS) for found in seeds.values())
    assert max(one["release_error_max_ms"] for records in CASES.values() for one in records) <= 0.01


def test_bands_tell_engines_apart() -> None:
    """Half a queue more, thrice the loss, a share of .1 or .04 of the link less is beyond."""
    theirs = [linux_records.of_record(record) for record in CASES["cubbbr/50/1"]]

    def beyond(**factors: Any) -> list[str]:
        return linux_records.beyond(
            theirs, [{**one, **{key: change(one[key]) for key, change in factors.items()}} for one in theirs]
        )

    assert beyond() == [] and beyond(queue=lambda value: 1.5 * value) == ["queue"]
    assert beyond(loss=lambda value: 3 * value) == ["loss"]
    assert beyond(shares=lambda value: [value[0] + 0.1, value[1] - 0.1]) == ["shares"]
    assert beyond(utilisation=lambda value: value - 0.04) == ["utilisation"]
