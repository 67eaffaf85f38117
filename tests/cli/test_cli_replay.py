"""``ccenv trace replay`` on traces of the curve engine in proof timing: JSON, and one clear line for wrong input."""

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.path import make_path


def trace_file(folder, steps, steps_per_rtt=1):
    """Write a run of cc_qdel against a network that holds everything for D = Rm; return the file's name."""
    proof = {"timing": "smt", "loss_detection": "oracle"} if steps_per_rtt == 1 else {}
    engine = CurveEngine(
        [make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=2)],
        model="ccac",
        senders=[make_sender("cc_qdel")],
        adversary=RecordedAdversary("hold", np.array([[0.0, 1.0, 0.0, 0.0]]), periodic=True),
        steps_per_rtt=steps_per_rtt,
        record=True,
        **proof,
    )
    engine.advance(steps)
    engine.trace(0).save(folder / "trace.npz")
    return str(folder / "trace.npz")


def test_reproduces_a_trace_unless_it_is_too_short_and_plays_its_moves_against_another_sender(answer, tmp_path):
    file = trace_file(tmp_path, 12)
    data = answer(["trace", "replay", file, "--json"])
    assert data["reproduced"] is True and data["utilisation"] == data["utilisation_of_trace"]
    attack = ["attack", "copa", "--adversary", file, "--timing", "smt", "--budget", "1000", "--out", str(tmp_path / "attack")]
    assert 0 < answer([*attack, "--json"])["by_adversary"].popitem()[1]["worst_utilisation"] < 1
    assert answer(["trace", "replay", trace_file(tmp_path, 1), "--json"])["utilisation"] is None


@pytest.mark.parametrize(
    ("steps_per_rtt", "arguments", "message"),
    [(8, [], "one step per Rm"), (1, ["--as-adversary", "copa"], "ccenv attack SENDER --adversary FILE --timing smt")],
)
def test_wrong_input_is_one_line(refused, tmp_path, steps_per_rtt, arguments, message):
    refused(["trace", "replay", trace_file(tmp_path, 5, steps_per_rtt), *arguments], message)
