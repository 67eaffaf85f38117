"""Adversaries and searches from a user's own file: they play legally in both engines; what is wrong is named with its line."""

from pathlib import Path

import pytest

from ccenv.adversaries import make_adversary
from ccenv.adversaries.load import load_adversary
from ccenv.agents.identity import adversary_hash
from ccenv.attacks.catalog import make_search
from ccenv.attacks.run import attack
from ccenv.base.errors import CcenvError, InputError, UnknownNameError
from ccenv.benchmarks.compare import compare
from ccenv.benchmarks.run.runner import run_suite

WAVE = """
def init(state, view):
    state.s0 = 4.0

def play(state, view, move):
    periods = view.now_s / (state.s0 * view.rtt_s)
    move.service = 1.0 if periods % 1.0 > 0.5 else 0.0
    move.waste = 1.0
    move.rate = 1.0
    move.loss = 0.0
"""


def write(folder: Path, text: str, name: str = "wave.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_it_attacks_and_plays_per_packet(tmp_path: Path) -> None:
    file = write(tmp_path, WAVE)
    result = attack("copa", adversaries=[file], warmup_rtts=20, window_rtts=20)
    assert result.legal
    assert result.worst_utilisation < attack("copa", adversaries=["kind"], warmup_rtts=20, window_rtts=20).worst_utilisation
    rows = compare(["copa"], network=file, rate="12mbps", duration="3s").rows
    assert rows[0].rtt_ms > compare(["copa"], rate="12mbps", duration="3s").rows[0].rtt_ms  # type: ignore[operator]


def test_its_content_is_its_identity(tmp_path: Path) -> None:
    before = adversary_hash(load_adversary(write(tmp_path, WAVE)))
    assert before == adversary_hash(load_adversary(write(tmp_path, WAVE)))
    assert before != adversary_hash(load_adversary(write(tmp_path, WAVE.replace("4.0", "5.0"))))


def test_it_joins_a_suite(tmp_path: Path) -> None:
    wave = write(tmp_path, WAVE)
    found = run_suite("quick", tmp_path / "out", extra_adversaries=[wave], only=["deep/reno/*/1"], pictures=False)
    assert {"kind", "wave"} <= set(found["summary"][0]["against"])
    again = run_suite("quick", tmp_path / "out", extra_adversaries=[wave], only=["deep/reno/*/1"], pictures=False)
    assert again["summary"] == found["summary"]


def test_a_search_of_ones_own(tmp_path: Path) -> None:
    text = """
import numpy as np
from ccenv.attacks.game import Found
from ccenv.network.adversary import RecordedAdversary

class All:
    weight = 0.0
    def run(self, game, budget_flow_steps, seed):
        moves = game.moves(np.zeros((1, 1, len(game.open_moves))))[0]
        game.play(moves[None])
        return Found(RecordedAdversary("zeros", moves))

def search():
    return All()
"""
    assert attack("reno", adversaries=[write(tmp_path, text, "zeros.py")], warmup_rtts=20, window_rtts=20).legal
    with pytest.raises(InputError, match="returned 'int'"):
        make_search(write(tmp_path, "def search():\n    return 3\n", "none.py"))


@pytest.mark.parametrize(
    ("text", "message"),
    [("x = 1\n", "defines no adversary"), ("def play(state, view, move):\n    pass\n", "init missing"),
     (WAVE.replace("(state, view, move)", "(state, view)"), r"wave\.py:5: play.* must take \(state, view, move\)"),
     (WAVE.replace("move.waste = 1.0", "move.waste = 2.0"), r"wave\.py:5: play set waste to 2"),
     (WAVE.replace("move.waste = 1.0", "move.waste = float('nan')"), r"wave\.py:5: play set waste to nan"),
     (WAVE.replace("move.waste = 1.0", "move.wast = 1.0"), r"wave\.py:8: AttributeError"),
     (WAVE.replace("move.waste = 1.0", "1 / 0"), r"wave\.py:8: ZeroDivisionError"),
     ("def adversary():\n    return 'square'\n", "returned 'str', not an adversary"),
     ("STATE = 3" + WAVE, "make it with record")],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_adversary(write(tmp_path, text))


def test_a_name_of_ccenv_is_refused_and_data_never_runs_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name of a registered adversary"):
        load_adversary(write(tmp_path, WAVE, "square.py"))
    ran = tmp_path / "ran"
    file = write(tmp_path, f"open({str(ran)!r}, 'w')\n{WAVE}")
    with pytest.raises(UnknownNameError):
        make_adversary(file)
    with pytest.raises(CcenvError):
        make_search(file, code=False)
    assert not ran.exists()
