"""The journal of a run: lines that were changed are not taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccenv.base.errors import CcenvWarning, InputError
from ccenv.proofs.synthesis.journal import Journal, trace_data, trace_from
from ccenv.proofs.synthesis.query.classes import TRACE
from ccenv.proofs.synthesis.query.query import load_query
from ccenv.proofs.synthesis.run import start


def _trace(**changes: Any) -> dict[str, Any]:
    zero = np.zeros((), TRACE)
    zero["samples"], zero["link"] = 5, 240
    return trace_data(zero) | changes


DECISION = {"class": 3, "status": "unknown", "calls": 1, "claim": "loss", "reason": "time", "queries": []}
GROUP = {"kind": "group", "cpu_s": 0.1, "call_s": 9.0, "still": False}
GOOD = (
    {"kind": "foundation", "calls": 3, "seconds": 0.1},
    {"kind": "counterexample", "class": 1, "trace": _trace()},
    GROUP | {"decisions": [DECISION, DECISION | {"trace": _trace()}]},
    {"kind": "pairs", "cpu_s": 0, "replay_s": 0, "call_s": 9, "decisions": [DECISION | {"dropped": [4]}]},
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = Journal(tmp_path, "query", reuse=True, code="code")
    for line in GOOD:
        written.append(line)
    assert Journal(tmp_path, "query", reuse=True, code="code").lines == list(GOOD)
    assert trace_data(trace_from(_trace())) == _trace()


HOSTILE = {
    "a_list": [],
    "no_kind": {},
    "kind_of_a_list": {"kind": []},
    "unknown_kind": {"kind": "verdict"},
    "calls_below_0": {"kind": "foundation", "calls": -1, "seconds": 0.1},
    "calls_true": {"kind": "foundation", "calls": True, "seconds": 0.1},
    "seconds_as_text": {"kind": "foundation", "calls": 1, "seconds": "0.1"},
    "class_beyond_64_bits": {"kind": "counterexample", "class": 1 << 64, "trace": _trace()},
    "no_trace": {"kind": "counterexample", "class": 1, "trace": None},
    "trace_of_1000_samples": {"kind": "counterexample", "class": 1, "trace": _trace(samples=1000)},
    "trace_without_a_link": {"kind": "counterexample", "class": 1, "trace": _trace(link=0)},
    "trace_number_beyond_its_range": {"kind": "counterexample", "class": 1, "trace": _trace(E=1 << 62)},
    "trace_list_too_short": {"kind": "counterexample", "class": 1, "trace": _trace(waste=[0])},
    "trace_of_floats": {"kind": "counterexample", "class": 1, "trace": _trace(G=0.5)},
    "trace_lacks_a_field": {"kind": "counterexample", "class": 1, "trace": {"samples": 5}},
    "unknown_status": GROUP | {"decisions": [DECISION | {"status": "verified"}]},
    "decision_of_no_class": GROUP | {"decisions": [{"status": "proved"}]},
    "dropped_is_no_list": {"kind": "pairs", "cpu_s": 0, "replay_s": 0, "call_s": 9, "decisions": [DECISION | {"dropped": 4}]},
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_hostile_line_is_refused(name: str, tmp_path: Path) -> None:
    written = Journal(tmp_path, "query", reuse=True, code="code")
    for line in (GOOD[0], HOSTILE[name], GOOD[1]):
        written.append(line)
    with pytest.raises(InputError, match=r"journal\.jsonl, line 3: .*; --fresh starts anew\Z"):
        Journal(tmp_path, "query", reuse=True, code="code")
    with pytest.warns(CcenvWarning, match="journal.jsonl: was of older code or another solver, and begins anew"):
        assert not Journal(tmp_path, "query", reuse=True, code="other").lines  # set aside unread


def test_a_hostile_class_that_the_query_does_not_have_is_refused(tmp_path: Path) -> None:
    run = start(load_query("quick"), tmp_path)
    run.journal.append(GROUP | {"decisions": [DECISION | {"class": 10**9}]})
    with pytest.raises(InputError, match=r"class 1000000000; the query has [0-9]+: --fresh starts anew"):
        start(load_query("quick"), tmp_path)
