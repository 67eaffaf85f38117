"""Settings: one table for every command; what is given reaches the function; former options and commands name the new way."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from legal_traces import legal_trace

from ccenv.base.errors import InputError
from ccenv.base.registry import load_target
from ccenv.base.settings import put, read_pairs, read_settings
from ccenv.cli.main import list_commands, main
from ccenv.cli.settings import OLD_COMMANDS, SOURCES, model_of, rows

COMMANDS = list_commands()
FORMER = Path(__file__).with_name("former_options.txt").read_text().splitlines()


def test_the_surface_is_small_and_every_command_has_its_own_function() -> None:
    """Without what is newer than the goal: the commands of ``ccenv quic`` and ``ccenv data``, and ``--virtual``."""
    counted = {name: command for name, command in COMMANDS.items() if not name.startswith(("quic", "data"))}
    assert len(counted) <= 53
    options = [o for c in counted.values() for o in c.params if o.param_type_name == "option" and "-completion" not in o.opts[0]]
    assert len([option for option in options if option.opts != ["--virtual"]]) <= 250
    assert len({inspect.unwrap(command.callback) for command in COMMANDS.values()}) == len(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_and_setting_is_told(command: str, answer) -> None:
    table = rows(command, COMMANDS[command])
    assert [row.key for row in table if not row.meaning or not row.example or not row.type] == []
    takes_settings = any(row.key == "--set" for row in table)
    assert takes_settings == (command in SOURCES)
    shown = answer(["show", "settings", *command.split(), "--json"])
    assert [row["key"] for row in shown["settings"]] == [row.key for row in table]


@pytest.mark.parametrize("command", SOURCES)
def test_examples_of_settings_are_allowed_and_defaults_are_the_functions(command: str) -> None:
    source, model = SOURCES[command], model_of(command)
    for row in rows(command, COMMANDS[command]):
        if row.key in model.model_fields:
            held = read_settings(model, read_pairs([row.example.removeprefix("-s ")]), command)
            assert set(held) == set(model.model_fields)
    if source.names:
        parameters = inspect.signature(load_target(source.target)).parameters
        assert {name: read_settings(model, {}, command)[name] for name in source.names} == {
            name: parameters[name].default for name in source.names
        }


@pytest.mark.parametrize("line", FORMER, ids=[line.partition(":")[0] for line in FORMER])
def test_every_former_option_still_works_or_names_the_new_way(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, _, options = line.partition(":")
    now = COMMANDS.get(command)
    if command in OLD_COMMANDS:
        assert main([*command.split(), "x"]) == 2 and OLD_COMMANDS[command] in capsys.readouterr().err
        return
    command = {"paths import": "links import", "paths make": "links make"}.get(command, command)
    now = COMMANDS.get(command)
    kept = {"--board"} | {name for parameter in now.params for name in parameter.opts} if now else {"--out"}
    for option in set(options.split()) - kept - {"--json"}:
        assert main([*command.split(), option, "1"]) == 2, option
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and " now" in error, error


def test_the_settings_that_held_are_printed(tmp_path: Path, answer) -> None:
    file = tmp_path / "few.yaml"
    file.write_text("warmup_rtts: 5\nwindow_rtts: 9\n")
    attack = ["attack", "copa", "--adversary", "kind", "--budget", "100000", "--out", str(tmp_path / "attack"), "--json"]
    data = answer([*attack, "-s", "window_rtts=7", "-s", str(file)])
    assert (data["settings"]["window_rtts"], data["window_rtts"], data["settings"]["warmup_rtts"]) == (7, 7, 5)
    assert data["settings"]["calm_rtts"] == 0


def printing_functions(command: str) -> list[str]:
    """Return the source of each function below a command that prints its JSON, with a setting or not."""
    queue = [inspect.unwrap(COMMANDS[command].callback)]
    module = inspect.getmodule(queue[0])
    for function in queue:
        queue += [called for name in function.__code__.co_names if inspect.isfunction(called := getattr(module, name, None))
                  and called.__module__ == module.__name__ and called not in queue]  # fmt: skip
    return [text for text in map(inspect.getsource, queue) if re.search(r"\bprint_(json|answer)\(", text)]


@pytest.mark.parametrize("command", SOURCES)
def test_every_answer_of_a_command_says_the_settings_that_held(command: str) -> None:
    texts = printing_functions(command)
    assert texts and [text for text in texts if '"settings": ' not in text] == []


def test_settings_are_in_lists_beside_pictures_and_in_the_live_suite(
    tmp_path: Path, answer: Callable[[list[str]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = str(tmp_path / "run.npz")
    legal_trace("ccac", 7, n_steps=12).save(trace)
    assert answer(["trace", "check", trace, "-s", "tolerance=1e-6", "--json"])[0]["settings"] == {"tolerance": 1e-6}
    drawn = answer(
        ["ode", "equilibrium", "bbr1", "--flows", "2", "--plot", str(tmp_path / "p.svg"), "-s", "plane=shares", "--json"]
    )
    assert drawn["settings"]["plane"] == "shares" and "axes" in drawn
    monkeypatch.setattr("ccenv.live.kernel_records.run_suite", lambda *_, **__: {"kernel": "0", "rows": []})
    assert answer(["bench", "run", "live-worst-case", "--json"])["settings"]["backend"] == "local"


def test_groups_are_put_into_a_config() -> None:
    data: dict[str, Any] = {"ppo": {"gamma": 0.9, "hidden": [64]}}
    assert put(data, read_pairs(["ppo.hidden=[4, 4]", "seed=1"])) == {"ppo": {"gamma": 0.9, "hidden": [4, 4]}, "seed": 1}
    with pytest.raises(InputError, match="not valid YAML"):
        put({}, read_pairs(["ppo=[1"]))
