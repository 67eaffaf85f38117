"""Wrong calls of the Python API: each is an InputError of one line that says what is meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ccenv
from ccenv.base.errors import CcenvError

PATH = ccenv.make_path(link_rate_mbps=10, rtt_ms=40, buffer_bdp=2)
RENO = ccenv.make_sender("reno")
engine: Any = ccenv.CurveEngine
call: Any = ccenv


class Mine(ccenv.PythonSender):
    """A sender that does nothing."""


CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: engine(PATH), r"CurveEngine\(\[path\]"),
    (lambda: engine([PATH]), "senders is missing"),
    (lambda: engine([PATH], senders=["reno"]), r"make_sender\('reno'\)"),
    (lambda: engine([PATH], senders="reno"), "a list is needed"),
    (lambda: engine([PATH], senders=RENO), "a list is needed"),
    (lambda: engine([PATH], senders=[]), "senders is empty"),
    (lambda: engine([PATH], senders=[None]), "senders.0. is None"),
    (lambda: engine([PATH], senders=[Mine]), "is the class Mine"),
    (lambda: engine(["deep"], senders=[RENO]), "no path"),
    (lambda: engine([PATH], senders=[RENO], adversary="uniform"), r"make_adversary\('uniform'\)"),
    (lambda: engine([PATH], senders=[RENO], model=3), "unknown model"),
    (lambda: engine([PATH], senders=[RENO], seed="1"), "seed"),
    (lambda: engine([PATH], senders=[RENO], steps_per_rtt="8"), "steps_per_rtt"),
    (lambda: engine([PATH], senders=[RENO], threads=0), "threads is 0"),
    (lambda: engine([PATH], senders=[RENO]).advance(-1), "n_steps is -1"),
    (lambda: engine([PATH], senders=[RENO]).advance(1.5), "n_steps is 1.5"),
    (lambda: engine([PATH], senders=[RENO], record=True).trace(7), "env is 7"),
    (lambda: call.evaluate("quik", "copa"), "Did you mean 'quick'"),
    (lambda: call.evaluate("quick", "copaa"), "Did you mean 'copa'"),
    (lambda: call.evaluate("quick", ["copa"]), "no spec of a sender"),
    (lambda: call.evaluate("quick", "copa", seeds=3), "seeds is 3"),
    (lambda: call.evaluate(3, "copa"), "3 is no suite"),
    (lambda: call.run_suite("quick", 3), "out is 3"),
    (lambda: call.run_suite("quick", "x", extra_agents="copa"), "a list is needed"),
    (lambda: call.make_sender(3), "3 is no sender"),
    (lambda: call.make_sender("reno", nope=3), "unknown parameter 'nope'"),
    (lambda: call.make_sender("nofile.py"), "No such file"),
    (lambda: call.make_adversary(None), "None is no adversary"),
    (lambda: call.make_path(link_rate_mbps="10mbps"), "it must be a number"),
    (lambda: call.compare("cubic"), "a list is needed"),
    (lambda: call.compare(["cubic", 3]), "3 is no sender"),
    (lambda: call.compare([Mine()]), "give the class Mine"),
    (lambda: call.compare(["cubic"], flows=1.5), "flows is 1.5"),
    (lambda: call.compare(["cubic"], seed="x"), "seed is 'x'"),
    (lambda: call.compare(["cubic"], jitter="20ms"), "give network too"),
    (lambda: call.compare(["cubic"], metrics=["powr"]), "Did you mean 'power'"),
    (lambda: call.attack("reno", path="deeep"), "Did you mean 'deep'"),
    (lambda: call.attack("reno", adversaries="cem"), "a list with at least one name"),
    (lambda: call.attack("reno", budget_flow_steps="1M"), "the budget is '1M'"),
    (lambda: call.attack(3), "3 is no sender"),
    (lambda: call.simulate(3), "scenario is 3"),
    (lambda: call.verify(Mine), "is no name"),
    (lambda: call.verify("cc_qdel", "utilisation", at_least=2), "at most 1"),
    (lambda: call.train(3), "3 is no training config"),
    (lambda: call.from_sb3("model.zip"), "load it first"),
    (lambda: call.from_onnx(3), "file is 3"),
    (lambda: call.Observation("rate"), "Did you mean 'rate_ratio'"),
    (lambda: call.save_policy("x", RENO), "'reno' is no policy"),
    (lambda: call.load_trace(3), "trace is 3"),
    (lambda: call.list_agents("clasic"), "Did you mean 'classic'"),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_wrong_call_is_one_line(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function, message = CALLS[number]
    with pytest.raises(CcenvError, match=message) as caught:
        function()
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_name_of_the_package() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'compare'"):
        call.compar  # noqa: B018


@pytest.mark.parametrize("kind", ["ccenv/Sender-v0", "ccenv/Network-v0", "ccenv/Packet-v0"])
@pytest.mark.parametrize("action", ["left", None, [1.0, [2.0]], {"rate": 1.0}])
def test_an_action_that_is_no_number_is_one_line(kind: str, action: object) -> None:
    import gymnasium

    env = gymnasium.make(kind, disable_env_checker=True)
    env.reset(seed=0)
    with pytest.raises(CcenvError, match=r"^action is .*; numbers are needed, of the shape that action_space says$"):
        env.step(action)
