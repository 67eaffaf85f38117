"""``ccenv export``: a belief program as C for the kernel's congestion controls."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.completion import names
from ccenv.cli.shared import jitter_option, out_option, rtt_option
from ccenv.cli.output import JsonOption, print_json, print_text

TARGETS = ("bpf",)


def command(
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM",
            autocompletion=names("agents"),
            help="A belief program or a contract: a registered name or a .json file.",
        ),
    ],
    *,
    out: Annotated[Path, out_option("C (.c), or a compiled object (.o; needs clang).", "FILE")],
    target: Annotated[str, typer.Option(help="What to write for; bpf is Linux 5.17 or newer.")] = "bpf",
    name: Annotated[str | None, typer.Option(help="In the kernel, at most 15 characters; by default the program's.")] = None,
    rtt: Annotated[float | None, rtt_option("Rm where it is known; by default the smallest RTT measured.")] = None,
    jitter: Annotated[float, jitter_option("D: by how much feedback may be late.")] = 0.0,
    chooser: Annotated[
        str | None, typer.Option(help="Of a contract: lo, middle, hi, user (a process answers), policy (compiled in).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a belief program as one C file for a BPF congestion control of Linux. Needs no root and no compiler.

    What the file promises, how to compile and load it: docs/live.md.

    Example: ccenv export cc_probe_drain --target bpf -o cc_probe_drain.bpf.c
    """
    from ccenv.base.errors import unknown_name
    from ccenv.live.export import ExportError, export_bpf
    from ccenv.live.export.compile import compile_bpf
    from ccenv.live.export.named import program_named
    from ccenv.base.files import write_atomic

    if target not in TARGETS:
        raise unknown_name("export target", target, TARGETS)
    if out.suffix not in {".c", ".o"}:
        raise ExportError(f"{out}: give a file that ends with .c (C) or .o (compiled)")
    wanted = program_named(program, chooser)
    text = export_bpf(wanted.program, name=name, rtt_s=rtt, jitter_s=jitter, chooser=wanted.chooser)
    content = text.encode("ascii") if out.suffix == ".c" else compile_bpf(text)
    write_atomic(out, content)
    if json:
        print_json({"file": out, "target": target, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
    else:
        print_text(f"wrote {out}")
