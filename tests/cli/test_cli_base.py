"""The command line: one-line errors, exit codes, strict JSON, lazy groups; trace, list, show and doctor."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from legal_traces import legal_trace

from ccenv import __version__
from ccenv.agents import AGENTS
from ccenv.base.config import find_data
from ccenv.base.errors import CcenvError
from ccenv.base.files import plain
from ccenv.base.registry import Entry
from ccenv.cli import main as cli
from ccenv.cli.output import print_table
from ccenv.network.path import MODELS

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def strict(text: str) -> object:
    """Parse JSON that must not hold NaN or Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def legal(tmp_path: Path) -> Path:
    legal_trace("ccac", 7, n_flows=2, n_steps=40, buffer_bdp=0.3).save(tmp_path / "legal.npz")
    return tmp_path / "legal.npz"


@pytest.fixture
def illegal(tmp_path: Path) -> Path:
    trace = legal_trace("cbr_delay", 7, n_steps=40)
    served = trace.S.copy()
    served[25] = trace.E[25] + 9.0
    replace(trace, S=served).save(tmp_path / "illegal.npz")
    return tmp_path / "illegal.npz"


class TestMain:
    def test_help_lists_every_group_and_imports_none(self) -> None:
        code = (
            "import sys; from ccenv.cli.main import main, GROUPS; main(['--help']);"
            "heavy = {'numba', 'torch', 'z3', 'matplotlib', 'scipy', 'ray', *(g.module for g in GROUPS)};"
            "print('LOADED', sorted(heavy & set(sys.modules)))"
        )
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert "LOADED []" in out
        for group in cli.GROUPS:
            assert group.name in out and group.help.split()[0] in out

    def test_installed_command_runs(self) -> None:
        out = subprocess.run([sys.executable, "-m", "ccenv.cli.main", "--version"], capture_output=True, text=True, check=True)
        assert out.stdout == f"ccenv {__version__}\n"

    def test_a_syntax_error_in_a_module_is_one_line(
        self, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "broken_cca.py").write_text("def (:\n", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setitem(AGENTS._entries, "broken", Entry("broken", "broken_cca:sender"))
        code, out, err = run(capsys, "show", "broken", "--kind", "agents")
        assert (code, out, err) == (2, "", f"ccenv: error: {tmp_path}/broken_cca.py:1: invalid syntax\n")

    def test_without_arguments_prints_help(self, capsys: Capture) -> None:
        code, out, err = run(capsys)
        assert (code, err) == (2, "") and "Usage" in out

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, typer.Abort])
    def test_an_interruption_says_how_to_go_on(self, capsys: Capture, monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
        def interrupted(_: Path) -> None:
            raise kind

        monkeypatch.setattr("ccenv.network.trace.load_trace", interrupted)
        code, _, err = run(capsys, "trace", "check", "x.npz")
        assert (code, err.count("\n")) == (130, 1) and "interrupted; run the same command again" in err

    def test_messages_of_several_lines_become_one_and_a_defect_is_no_bad_input(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        errors = iter([CcenvError("first\n  second"), ZeroDivisionError()])

        def fails(_: Path) -> None:
            raise next(errors)

        monkeypatch.setattr("ccenv.network.trace.load_trace", fails)
        assert run(capsys, "trace", "check", "x")[2] == "ccenv: error: first\\n second\n"
        with pytest.raises(ZeroDivisionError):
            cli.main(["trace", "check", "x.npz"])

    def test_every_command_has_help_with_an_example_and_json(self, capsys: Capture) -> None:
        def pages(*command: str) -> list[str]:
            code, out, _ = run(capsys, *command, "--help")
            assert code == 0 and "Example: ccenv" in out, command
            return out.splitlines()

        pages()
        for group in cli.GROUPS:
            text = pages(group.name)
            assert group.help
            if group.attribute != "app":
                assert any("--json" in line for line in text)
                continue
            app = getattr(__import__(group.module, fromlist=["app"]), "app")  # noqa: B009
            for command in app.registered_commands:
                name = command.name or command.callback.__name__.removesuffix("_command").replace("_", "-")
                assert any("--json" in line for line in pages(group.name, name)), (group.name, name)


class TestTrace:
    def test_check_rejects_with_law_place_and_amount(self, capsys: Capture, legal: Path, illegal: Path) -> None:
        told = f"{legal}: legal (ccac, 40 steps, 2 flows)\n"
        assert run(capsys, "trace", "check", str(legal)) == (0, told, "")
        code, out, err = run(capsys, "trace", "check", str(legal), str(illegal))
        assert (code, err) == (1, "") and out.startswith(f"{told}{illegal}: illegal\n")
        line = out.splitlines()[2]
        assert line.startswith("  delivered_within_entered: flow 0, step 25 (t = ") and line.endswith("broken by 9 bytes")

    def test_check_json(self, capsys: Capture, legal: Path, illegal: Path) -> None:
        code, out, _ = run(capsys, "trace", "check", str(legal), str(illegal), "--json")
        assert code == 1
        good, bad = strict(out)  # type: ignore[misc]
        assert good == {"file": str(legal), "model": "ccac", "legal": True, "violations": [], "settings": {"tolerance": 1e-9}}
        assert bad["legal"] is False and bad["violations"][0]["law"] == "delivered_within_entered"
        assert bad["violations"][0]["amount_bytes"] == pytest.approx(9.0)

    def test_check_tolerance(self, capsys: Capture, illegal: Path) -> None:
        assert run(capsys, "trace", "check", str(illegal), "-s", "tolerance=0.9")[0] == 0
        code, _, err = run(capsys, "trace", "check", str(illegal), "-s", "tolerance=2")
        assert (code, err) == (2, "ccenv: error: tolerance is 2.0; it must be in [0, 1)\n")

    def test_show(self, capsys: Capture, legal: Path) -> None:
        shown: Any = strict(run(capsys, "show", str(legal), "--json")[1])
        trace = legal_trace("ccac", 7, n_flows=2, n_steps=40, buffer_bdp=0.3)
        assert shown["steps"] == 40
        assert shown["flows"][1]["delivered_bytes"] == pytest.approx(trace.S[-1, 1])
        assert shown["utilisation"] == pytest.approx(trace.S[-1].sum() / trace.link_rate_Bps[1:].sum() / 0.01)
        assert shown["largest_queue_bytes"] == trace.queue_bytes.max()
        code, out, _ = run(capsys, "show", str(legal))
        assert code == 0 and "ccac" in out and "delivered_bytes" in out

    def test_plot(self, answer, refused, legal: Path, tmp_path: Path) -> None:
        picture = tmp_path / "run.png"
        told = {"file": str(legal), "picture": str(picture)}
        assert answer(["trace", "plot", str(legal), "-o", str(picture), "--json"]) == told
        assert picture.read_bytes().startswith(b"\x89PNG")
        refused(["trace", "plot", str(legal), "-o", str(tmp_path / "run.bmp")], "allowed: .png, .svg")


class TestCatalog:
    def test_models(self, capsys: Capture, answer) -> None:
        assert [item["name"] for item in answer(["list", "models", "--json"])] == list(MODELS)
        assert "App. H" not in run(capsys, "show", "ccac", "--kind", "models")[1]
        assert "waste" in run(capsys, "show", "ccac")[1]
        assert "waste" not in run(capsys, "show", "cbr_delay")[1]

    @pytest.mark.parametrize("tag", [[], ["synthesized"]])
    def test_agents(self, answer, tag: list[str]) -> None:
        shown = answer(["list", "agents", "--json", *(["--tag", *tag] if tag else [])])
        assert [item["name"] for item in shown] == AGENTS.names(*tag)

    def test_every_listed_thing_can_be_shown(self, capsys: Capture) -> None:
        from ccenv.cli.catalog import KINDS

        for kind in KINDS:
            for item in strict(run(capsys, "list", kind, "--json")[1]):  # type: ignore[attr-defined]
                code, out, err = run(capsys, "show", item["name"], "--kind", kind, "--json")
                assert code == 0, err
                shown = strict(out)
                assert isinstance(shown, dict) and (shown["name"], shown["kind"]) == (item["name"], kind)
                assert len(shown["text"]) > 40

    @pytest.mark.parametrize(
        ("name", "words"), [("cc_qdel", ("rate = max(rate, MSS/Rm)", "if qdel_L")), ("reno", ("RFC 5681", "def on_ack"))]
    )
    def test_a_program_is_shown_as_pseudo_code_and_a_classic_cca_as_its_source(self, capsys: Capture, name, words) -> None:
        out = run(capsys, "show", name)[1]
        assert all(word in out for word in words)

    def test_a_config_is_found_with_and_without_its_folder(self, capsys: Capture) -> None:
        full = run(capsys, "show", "ode/validation")[1]
        assert full == run(capsys, "show", "validation")[1]
        assert full.strip() == find_data("ccenv.configs.ode", "validation", ".yaml", "sweep").read_text().strip()

    def test_unknown_names_get_suggestions(self, capsys: Capture) -> None:
        code, _, err = run(capsys, "show", "illinoiss")
        assert (code, err) == (2, "ccenv: error: unknown name 'illinoiss'. Did you mean 'illinois'?\n")
        assert "unknown kind 'model'. Did you mean 'models'" in run(capsys, "show", "reno", "--kind", "model")[2]

    def test_a_name_of_two_things_asks_which(self, refused, monkeypatch: pytest.MonkeyPatch) -> None:
        from ccenv.cli import catalog

        twins = [catalog.Item(f"{folder}/same", "configs", "", (), lambda: "x") for folder in ("train", "sim")]
        monkeypatch.setitem(catalog.KINDS, "configs", lambda: twins)
        refused(
            ["show", "same"], "'same' is the name of train/same (configs) and sim/same (configs): give the full name or --kind"
        )


class TestDoctor:
    def test_finds_this_machine_well(self, capsys: Capture, answer) -> None:
        report = answer(["doctor", "--json"])
        checks = {check["name"]: check for check in report["checks"]}
        assert report["ok"] is True
        assert checks["python"]["found"] == sys.version.split()[0] and checks["numpy"]["found"] == np.__version__
        assert {"platform", "cores", "memory", "kernel cache", "solver z3", "extra [train]"} <= set(checks)
        assert run(capsys, "doctor")[0] == 0

    def test_says_what_to_do_about_what_is_missing(self, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        from importlib import metadata

        real = metadata.version
        gone = {"numba", "torch"}

        def version(name: str) -> str:
            if name in gone:
                raise metadata.PackageNotFoundError(name)
            return "0.1" if name == "scipy" else real(name)

        monkeypatch.setattr("ccenv.cli.doctor.metadata.version", version)
        monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/nowhere")
        monkeypatch.setitem(sys.modules, "z3", None)
        code, out, _ = run(capsys, "doctor", "--json")
        assert code == 1
        report = strict(out)
        assert isinstance(report, dict)
        checks = {check["name"]: check for check in report["checks"]}
        assert report["ok"] is False
        assert checks["numba"]["status"] == "broken" and checks["numba"]["advice"].startswith("pip install 'numba")
        assert (checks["scipy"]["status"], checks["scipy"]["found"]) == ("broken", "0.1")
        assert checks["extra [train]"]["status"] == "missing"
        assert checks["extra [train]"]["advice"] == "pip install 'ccenv[train]'"
        assert checks["kernel cache"]["status"] == "broken"
        assert "NUMBA_CACHE_DIR" in checks["kernel cache"]["advice"]
        assert checks["solver z3"]["status"] == "missing"


class TestOutput:
    def test_json_is_strict(self) -> None:
        @dataclass
        class Record:
            rate_Bps: float
            curve: np.ndarray

        record = Record(float("inf"), np.array([1.0, np.nan, -np.inf]))
        converted = plain({"a": record, "b": np.int64(3), 4: (True, None), "p": Path("x")})
        assert converted == {"a": {"rate_Bps": "inf", "curve": [1.0, None, "-inf"]}, "b": 3, "4": [True, None], "p": "x"}
        json.dumps(converted, allow_nan=False)
        with pytest.raises(TypeError, match="object cannot be written as JSON"):
            plain(object())

    def test_tables_do_not_interpret_their_cells(self, capsys: Capture) -> None:
        print_table("t [b]", ["name", "x"], [["extra [train]", 1.23456], ["n", None]])
        out = capsys.readouterr().out
        assert all(text in out for text in ("extra [train]", "t [b]", "1.235"))
