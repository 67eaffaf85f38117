"""``ccenv solve``: values, steps, lines of play, pictures, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from ccenv.cli.main import main


@pytest.fixture
def solve(answer: Callable[[list[str]], Any]) -> Callable[..., Any]:
    return lambda *arguments: answer(["solve", *arguments, "--json"])


def test_value_and_line_of_play_and_steps(solve) -> None:
    found = solve("cbr_small")
    assert (found["boards"], found["regret"], found["starves"]) == (1962, 34, False)
    assert len(found["line"]) == found["horizon_steps"] == 32 and not any(row["error"] for row in found["line"])
    other = solve("cbr_small", "--sender", "C_L+1")
    assert other["sender"]["regret"] == 36 and 6 * 32 - sum(row["delivered"] for row in other["line"]) == 36
    found = solve("ccac_small", "--loss", "1", "--steps")
    assert (found["steps"], found["ramp_steps"]) == ([2, 5, 9, 14], [1, 2, 3, 4])
    assert solve("ccac_small", "--loss", "0", "--steps")["steps"] == [None] * 4


def test_what_has_no_bound_is_said_and_is_no_number(capsys: pytest.CaptureFixture[str], solve) -> None:
    found = solve("ccac_small", "--loss", "0")
    assert (found["regret"], found["starves"], found["sender"]["regret"]) == (None, True, None)
    assert found["share"] < found["share_below"] < 1
    assert "lemma 2.1" in found["reason"]
    assert solve("ccac_small")["reason"] is None
    assert main(["solve", "ccac_small", "--loss", "0"]) == 0
    assert "every sender starves" in capsys.readouterr().out
    found = solve("ideal_delays")
    assert (found["delay_steps"], found["busy_delay_steps"], found["starves"]) == (0, 2, False)
    assert "lemma 4.1" in found["reason"]
    assert main(["solve", "ideal_delays"]) == 0
    assert "no sender that keeps the link busy has a bound" in capsys.readouterr().out


def test_pictures_of_the_belief_set(solve, tmp_path: Any) -> None:
    solve("cbr_small", "--out", str(tmp_path / "line.svg"))
    first = (tmp_path / "line.svg").read_bytes()
    solve("cbr_small", "--out", str(tmp_path / "line.svg"))
    assert first.startswith(b"<?xml")
    assert (tmp_path / "line.svg").read_bytes() == first
    found = solve("ccac_small", "--steps", "--out", str(tmp_path / "steps.png"))
    rows = [(row["network"], row["loss"], row["steps"]) for row in found["theorem_6_1"] if row["rate"] == 5]
    assert ("ideal, no buffer", 1, 4) in rows
    assert ("ccac, no buffer", 1, 14) in rows
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")


def test_a_line_is_a_legal_trace(capsys: pytest.CaptureFixture[str], solve, tmp_path: Any) -> None:
    solve("cbr_late", "--sender", "bounds:cc_qdel", "--out", str(tmp_path / "line.npz"))
    assert main(["trace", "check", str(tmp_path / "line.npz")]) == 0
    assert "legal" in capsys.readouterr().out


def test_infinite_buffers_need_a_cap_and_large_grids_are_told_their_size(refused, tmp_path):
    for rates, buffers, told in (([1, 2], "inf", "give most_inflight"), ([*range(1, 17)], "0, C, 2C", "GB are allowed")):
        (tmp_path / "mine.yaml").write_text(f"model: cbr\nrates: {rates}\nbuffers: [{buffers}]\n")
        refused(["solve", str(tmp_path / "mine.yaml")], told)
