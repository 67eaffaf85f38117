"""Programs for QUIC stacks: C that compiles without a warning and keeps no state of its own, adapters, refusals."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from quic_runs import small_path

from ccenv.agents.synthesized import shipped_program
from ccenv.cli.main import main
from ccenv.live.export import ExportError
from ccenv.quic.export import export_quic
from ccenv.quic.run import compile_sender
from ccenv.quic.stacks.aioquic import Aioquic
from ccenv.quic.stacks.stack import QuicError

Capture = pytest.CaptureFixture[str]
GCC = shutil.which("gcc") or shutil.which("cc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="no C compiler on this machine")
WARNINGS = ["-O2", "-Wall", "-Wextra", "-Werror"]


@needs_gcc
@pytest.mark.parametrize("stack", ["aioquic", "picoquic", "quinn"])
@pytest.mark.parametrize("program", ["cc_probe_drain", "learned_shield_u80"])
def test_the_c_compiles_without_warnings(stack: str, program: str, tmp_path: Path) -> None:
    """A program and a shield whose policy is compiled in; of a program nothing is writable that is not a flow's."""
    source = tmp_path / "p.c"
    assert main(["export", program, "--target", f"quic:{stack}", "-s", "jitter_s=40ms", "-o", str(source)]) == 0
    text = source.read_text(encoding="ascii")
    assert not any(word in text for word in ("bpf_map", "@", "host.h"))
    command = [str(GCC), *WARNINGS, "-c", str(source), "-o", str(tmp_path / "p.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    symbols = subprocess.run(["nm", str(tmp_path / "p.o")], capture_output=True, text=True, check=True).stdout
    writable = {line.split()[-1] for line in symbols.splitlines() if f" {line.split()[-2]} " in (" b ", " B ", " d ", " D ")}
    functions = {"picoquic_update_pacing_rate", "picoquic_cc_get_sequence_number"}
    of_the_build = {"ccenv_mtu_at", "ccenv_cwin_at", "ccenv_state_at", "ccenv_algorithm", *functions}
    assert writable <= (of_the_build if stack == "picoquic" else set())


def test_adapters_are_written_for_each_stack_which_widens_D(tmp_path: Path) -> None:
    """ACK policy and timers are in the constants: 10 ms of picoquic, 1 ms of aioquic, and 2 us."""
    program = shipped_program("cc_qdel")
    compile(export_quic("quic:aioquic", program, ".py"), "p.py", "exec")
    assert "impl Controller for Control" in export_quic("quic:quinn", program, ".rs")
    with pytest.raises(ExportError, match=r"for quic:picoquic give a file that ends with \.c$"):
        export_quic("quic:picoquic", program, ".py")
    for stack, jitter_us in (("picoquic", 50_002), ("aioquic", 41_002), ("quinn", 40_002)):
        text = export_quic(f"quic:{stack}", shipped_program("cc_qdel"), ".c", jitter_s=0.04)
        assert f"#define JITTER_US {jitter_us}ULL" in text


def test_a_stack_that_cannot_pace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Aioquic, "pacer", "")
    with pytest.raises(QuicError, match="aioquic cannot pace, and cc_qdel is proved for a paced sender"):
        export_quic("quic:aioquic", shipped_program("cc_qdel"), ".c")
    with pytest.raises(QuicError, match="cannot pace"):
        compile_sender(Aioquic(), "cc_qdel", small_path(), 0.0025)
    assert compile_sender(Aioquic(), "cubic", small_path(), 0.0025) == "cubic"


def test_a_missing_stack_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, capsys: Capture, refused, tmp_path: Path) -> None:
    """No wheel, another version, a foreign library, no cargo: one line each."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CCENV_PICOQUIC", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    foreign = tmp_path / "_binding"
    foreign.mkdir()
    for command, words in (
        (["quic", "run", "cubic", "--stack", "picoquic"], "picoquic is not installed; pip install"),
        (["quic", "run", "cubic", "--stack", "quinn"], "quinn is not built; apt install cargo librust-quinn-proto-dev, then"),
        (["quic", "build"], "cargo is not installed; apt install cargo"),
    ):
        assert main(command) == 2
        assert words in (told := capsys.readouterr().err)
        assert told.count("\n") == 1
    (foreign / "_transport.cpython-312-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    refused(["quic", "run", "cubic", "--stack", "picoquic"], "is another build of picoquic")
    monkeypatch.setattr("ccenv.quic.stacks.stack.version", lambda name: "1.8.0")
    refused(["quic", "run", "cubic"], "aioquic is 1.8.0; 1.7.2 is needed: pip install 'ccenv[quic]'")
