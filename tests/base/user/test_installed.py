"""Code of users: installed packages and limits of time."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccenv.adversaries.load import load_adversary
from ccenv.agents import make_sender
from ccenv.agents.load import list_agents, load_sender
from ccenv.base.errors import InputError, UnknownNameError
from ccenv.base.user import installed
from ccenv.base.user.limits import limited
from ccenv.benchmarks.cells.cell import agent_player, build_sender
from ccenv.benchmarks.compare import compare
from ccenv.benchmarks.run.runner import as_suite
from ccenv.cli.catalog import all_plugins
from ccenv.cli.main import main
from ccenv.network.metrics.user import load_metric

CODE = '''
import pathlib
import ccenv
from ccenv.network.metrics.table import Metric

class Calm(ccenv.PythonSender):
    """Keeps its window."""
    def __init__(self, segments=20):
        self.segments = segments
    def on_start(self):
        self.cwnd_bytes = self.segments * self.mss_bytes

def breaks():
    raise RuntimeError("of the plugin")

def init(state, view):
    pass

def play(state, view, move):
    move.service = move.waste = move.rate = 1.0
    move.loss = 0.0

def network():
    from ccenv.agents.callbacks import ADVERSARY_STATE
    from ccenv.network.adversary import ScriptedAdversary
    return ScriptedAdversary("plugin_kind", ADVERSARY_STATE, init, play)

got = Metric("got", "got", "B", "higher", "bytes", None, lambda window: window.total("goodput_bytes"))
suite = pathlib.Path(__file__).with_name("plugin_suite.yaml")
'''
ENTRIES = """
[ccenv.senders]
calm = acme_cc:Calm
cubic = acme_cc:Calm
broken = acme_cc:breaks
gone = acme_cc_no_such_module:x

[ccenv.adversaries]
plugin_kind = acme_cc:network

[ccenv.metrics]
got_bytes = acme_cc:got

[ccenv.suites]
plugin_suite = acme_cc:suite
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "acme_cc.py").write_text(CODE)
    quick = (Path(__file__).parents[3] / "ccenv/benchmarks/suites/quick.yaml").read_text()
    (tmp_path / "plugin_suite.yaml").write_text(quick.replace("name: quick", "name: plugin_suite"))
    info = tmp_path / "acme_cc-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-cc\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    installed.entry_points.cache_clear()
    yield
    installed.entry_points.cache_clear()
    sys.modules.pop("acme_cc", None)


@pytest.mark.usefixtures("package")
def test_plugins_are_used_by_name() -> None:
    assert load_sender("calm:segments=5").name == "calm:segments=5"
    assert "calm" in list_agents("plugin")
    assert load_adversary("plugin_kind").name == "plugin_kind"
    assert load_metric("got_bytes").name == "got_bytes"
    assert as_suite("plugin_suite").name == "plugin_suite"
    found = compare(["calm", "reno"], rate="12mbps", duration="1s", network="plugin_kind", metrics=["got_bytes"])
    assert [row.error for row in found.rows] == ["", ""]
    assert found.rows[0].metrics["got_bytes"] > 1e5  # type: ignore[operator]
    player = agent_player("calm", code=True)
    assert (player.kind, build_sender(player).name) == ("file", "calm")


@pytest.mark.usefixtures("package")
def test_a_plugin_that_cannot_be_used_is_named_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    problems = {plugin.name: plugin.problem for plugin in all_plugins()}
    assert problems["cubic"] == "entry_points.txt:4: 'cubic' is the name of a sender that comes with ccenv"
    assert "acme_cc.py:14: RuntimeError: of the plugin" in problems["broken"]
    assert "No module named 'acme_cc_no_such_module'" in problems["gone"]
    assert problems["calm"] == problems["plugin_kind"] == problems["got_bytes"] == problems["plugin_suite"] == ""
    assert load_sender("cubic").name == "cubic"
    assert make_sender("cubic") == load_sender("cubic")
    with pytest.raises(InputError, match=r"'gone' of acme-cc 1\.2"):
        load_sender("gone")
    assert main(["--plugins"]) == 0
    assert "acme-cc 1.2" in capsys.readouterr().out


@pytest.mark.usefixtures("package")
def test_a_misspelt_name_suggests_plugins() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'calm'"):
        load_sender("clam")


@pytest.mark.usefixtures("package")
def test_data_never_names_a_plugin() -> None:
    for build in (make_sender, agent_player):
        with pytest.raises(UnknownNameError):
            build("calm")


def spin() -> None:
    while True:
        pass


def stubborn() -> None:
    while True:
        try:
            spin()
        except Exception:
            continue


@pytest.mark.parametrize("function", [spin, stubborn])
def test_what_does_not_come_back_is_ended(function) -> None:
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match=r"f has not come back within 0\.3 s") as caught, limited("f", 0.3):
        function()
    assert time.monotonic() - begin < 60
    assert "spin" in [frame.name for frame in caught.traceback]


def test_what_comes_back_in_time_is_not_touched() -> None:
    for _ in range(2000):
        with limited("f", 0.5):
            pass
    time.sleep(1)
    with limited("f", 5.0):
        assert sum(range(100)) == 4950


def test_an_error_goes_through_and_stops_the_clock_of_a_limit_inside_another_one_too() -> None:
    with pytest.raises(KeyError), limited("f", 0.4):
        raise KeyError("k")
    time.sleep(1)
    with limited("outer", 30), pytest.raises(TimeoutError, match="inner"), limited("inner", 0.3):
        spin()


def test_threads_have_clocks_of_their_own() -> None:
    ended: list[str] = []

    def run() -> None:
        try:
            with limited("thread", 0.3):
                spin()
        except TimeoutError as error:
            ended.append(str(error))

    thread = threading.Thread(target=run)
    with limited("main", 30):
        thread.start()
        thread.join(60)
    assert ended == ["thread has not come back within 0.3 s"]
