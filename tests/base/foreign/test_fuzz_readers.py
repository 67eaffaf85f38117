"""Fuzzing of every reader, 20,000 inputs; ``python tests/base/foreign/fuzz.py 1000000`` gives them as many as one likes."""

from __future__ import annotations

import pytest
from fuzz import fuzz, shares
from targets import TARGETS

SHARES = shares(20_000)


@pytest.mark.parametrize("name", list(SHARES))
def test_fuzz_of_a_reader_ends_in_a_value_or_one_line(name: str) -> None:
    tally = fuzz(TARGETS[name], range(SHARES[name]))
    assert tally.inputs == SHARES[name]
    assert tally.refused > 0
    assert not tally.faults, "\n".join(tally.faults[:5])
