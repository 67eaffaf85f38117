"""``ccenv live`` (scenarios, attacks and records on the real TCP stack) and ``ccenv export`` (belief programs as C)."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ccenv.cli.completion import configs, names
from ccenv.cli.shared import (
    JsonOption,
    buffer_option,
    jitter_option,
    out_option,
    print_json,
    print_table,
    print_text,
    rate_option,
    rtt_option,
    seconds_option,
)

if TYPE_CHECKING:
    from ccenv.live import LiveResult

EXIT_NOT_VALID = 1
DOCS = "Run again or see docs/live.md"


class _Scenarios(TyperGroup):
    """``ccenv live NAME`` runs a scenario if NAME is no sub-command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Scenarios,
    help="Run senders of the real TCP stack through an emulated network (Linux): `ccenv live SCENARIO`.\n\n"
    "Example: ccenv live reno_hold --json",
)


@app.command()
def run(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO", autocompletion=configs("live"), help="YAML file or shipped name (ccenv list configs)."
        ),
    ],
    *,
    seed: Annotated[int | None, typer.Option(help="Of the emulator's random numbers, instead of the scenario's.")] = None,
    duration: Annotated[float | None, seconds_option("--duration", "Instead of the scenario's.")] = None,
    tries: Annotated[
        int | None,
        typer.Option(min=1, help="Runs while packets are written late; by default what fits into two minutes, 12 at most."),
    ] = None,
    beside: Annotated[bool, typer.Option("--beside", help="Run the engine that simulates it, too.")] = False,
    control: Annotated[bool, typer.Option("--control", help="First without jitter; two flows again in swapped roles.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it, with --beside both, into a .png or .svg file.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the run as a trace (.npz) for `ccenv trace check`.")] = None,
    json: JsonOption = False,
) -> int:
    """Run a scenario in real time; `ccenv live SCENARIO` is short for it.

    Exit code 1 if the run is not valid: packets were written late, so it is no evidence about its senders. Such a run is
    repeated; the answer has the number of the try and the outcomes of the earlier ones.

    Example: ccenv live reno_hold --json
    """
    from ccenv.live import load_live_scenario, valid_run
    from ccenv.live.comparison import plot_beside, simulate_live
    from ccenv.live.kernel_records import control_scenarios

    settings = load_live_scenario(scenario)
    changed = {name: value for name, value in (("seed", seed), ("duration_s", duration)) if value is not None}
    if changed:
        from ccenv.live import read_live_scenario

        settings = read_live_scenario({**settings.model_dump(), **changed}, settings.name)
    controls = [(name, valid_run(one, tries).summary()) for name, one in control_scenarios(settings)] if control else []
    result = valid_run(settings, tries)
    if trace is not None:
        result.trace().save(trace)
    summary = result.summary()
    engine = simulate_live(settings) if beside else None
    if engine is not None:
        summary["beside"] = engine.summary
    if plot is not None and engine is not None:
        plot_beside(plot, result, engine)
    elif plot is not None:
        result.run.plot(plot)
    if control:
        summary["control"] = [{"run": name, **one} for name, one in controls]
    if json:
        print_json(summary)
    else:
        _print(result, summary)
    return _exit_code(summary["why_not_valid"])


@app.command()
def attack(
    sender: Annotated[str, typer.Argument(metavar="NAME", help="A kernel's congestion control or a program: reno, cc_qdel.")],
    *,
    moves: Annotated[str | None, typer.Option(help="A file of `ccenv attack`, instead of the shipped one.")] = None,
    calm: Annotated[bool, typer.Option(help="Also run without the moves.")] = True,
    plot: Annotated[Path | None, typer.Option(help="Draw live and simulated into a .png or .svg file.")] = None,
    json: JsonOption = False,
) -> int:
    """Play an attack that was found in the engine against the real stack.

    Exit code 1 if no try is valid.

    Example: ccenv live attack reno
    """
    from ccenv.live.attacks import moves_against, play_attack
    from ccenv.live.comparison import COUNTERPARTS
    from ccenv.live.scenario import KERNEL

    file = moves_against(sender, moves)
    data = play_attack(f"{KERNEL}{sender}" if sender in COUNTERPARTS else sender, file, calm=calm, plot=plot)
    if json:
        print_json(data)
    else:
        columns = [key for key in ("calm", "live", "simulated") if key in data]
        title = f"{sender}: share of a link of {data['link_rate_mbps']:g} Mbit/s, moves of {data['found_by']}"
        print_table(title, ["without jitter" if c == "calm" else c for c in columns], [[data[c] for c in columns]])
    return _exit_code(data["why_not_valid"])


@app.command()
def load(
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM", autocompletion=names("agents"), help="A belief program: a registered name or a .json file."
        ),
    ],
    *,
    name: Annotated[str | None, typer.Option(help="In the kernel, at most 15 characters; by default the program's.")] = None,
    rtt: Annotated[float | None, rtt_option("Rm where it is known; by default the smallest RTT measured.")] = None,
    jitter: Annotated[float, jitter_option("D: by how much feedback may be late.")] = 0.0,
    chooser: Annotated[str | None, typer.Option(help="Of a contract: lo, middle, hi, user or policy; else its own.")] = None,
    json: JsonOption = False,
) -> None:
    """Register a program as a congestion control of this kernel until Ctrl-C. Needs root and a compiler.

    Others may then choose it by name. It is unregistered when this command ends, also after a kill.

    Example: ccenv live load cc_probe_drain
    """
    import signal

    from ccenv.live.export import export_bpf
    from ccenv.live.export.bpf import COMPILED, USER, compile_bpf, kernel_name, load_exported
    from ccenv.live.requirements import require_bpf
    from ccenv.live.system.chooser import serve_for_ever
    from ccenv.live.system.loader import Program

    exported, chosen, contract = load_exported(program, chooser)
    loaded_name = kernel_name(exported.name if name is None else name)
    text = export_bpf(exported, name=loaded_name, rtt_s=rtt, jitter_s=jitter, chooser=chosen)
    require_bpf()
    loaded = Program(loaded_name, compile_bpf(text))

    def tell() -> None:
        if json:
            named = {} if chosen is None else {"chooser": chosen if isinstance(chosen, str) else COMPILED}
            print_json({"loaded": loaded_name, "program": exported.name, **named})
        else:
            print_text(f"loaded {loaded_name}; Ctrl-C unloads it")

    try:
        if chosen == USER and contract is not None:
            serve_for_ever(contract, *loaded.chooser_files(), ready=tell)
        tell()
        signal.pause()
    finally:
        loaded.close()


@app.command()
def suite(
    *,
    out: Annotated[Path | None, out_option("The record (.json).", "FILE")] = None,
    sender: Annotated[list[str] | None, typer.Option(help="A part of the suite's senders. Repeatable.")] = None,
    json: JsonOption = False,
) -> int:
    """Run the suite live-worst-case: stored attacks against this kernel's senders and exported programs. Minutes; needs root.

    Exit code 1 if a run is not valid after several tries.

    Example: ccenv live suite -o live-worst-case.json
    """
    from ccenv.live.kernel_records import FORMAT, SENDERS, SUITE, run_suite

    record = run_suite(sender or SENDERS, told=lambda name: print(f"ccenv: {SUITE}: {name}", file=sys.stderr))
    if out is not None:
        FORMAT.write(out, record)
    if json:
        print_json(record)
    else:
        rows = [[row["sender"], row["calm"], row["live"], row["simulated"], row["valid"]] for row in record["rows"]]
        print_table(f"{SUITE}, Linux {record['kernel']}", ["sender", "without jitter", "attacked", "simulated", "valid"], rows)
    return _exit_code([f"{row['sender']}: {reason}" for row in record["rows"] for reason in row["why_not_valid"]])


@app.command()
def record(
    ccas: Annotated[list[str], typer.Argument(metavar="CC...", help="Congestion controls of the kernel, one per flow.")],
    *,
    out: Annotated[Path, out_option("Records, one JSON line each; a line is added.", "FILE")],
    name: Annotated[str | None, typer.Option(help="Of the record; by default its senders, rate and buffer.")] = None,
    rate: Annotated[float, rate_option("Of the link.")] = 20.0,
    rtt: Annotated[float, rtt_option("Propagation round trip.")] = 0.04,
    buffer: Annotated[str, buffer_option("Drop-tail buffer.")] = "1bdp",
    duration: Annotated[float, seconds_option("--duration", "Of the run; its last three quarters are measured.")] = 60.0,
    stagger: Annotated[float, seconds_option("--stagger", "Between the starts of two flows.")] = 0.0,
    thin: Annotated[
        list[str] | None, typer.Option(metavar="FLOW:PACKETS", help="An ACK of this flow for so many packets. Repeatable.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Record this machine's kernel on a plain link, in the format of the packet engine's references.

    A run that is not valid is repeated; nothing is written if no try is valid.

    Example: ccenv live record cubic bbr --rate 50mbps --duration 80s -o kernel.jsonl
    """
    from ccenv.base.units import buffer_units, positive
    from ccenv.live.kernel_records import append_record, make_record, parse_thinning, record_scenario
    from ccenv.network.path import DEFAULT_MSS_BYTES, MBPS_IN_BPS

    bdp_bytes = rate * MBPS_IN_BPS * rtt
    size = positive("--buffer", buffer, buffer_units(bdp_bytes, DEFAULT_MSS_BYTES))
    scenario = record_scenario(
        ccas,
        rate_mbps=rate,
        rtt_ms=1e3 * rtt,
        buffer_bytes=size,
        duration_s=duration,
        stagger_s=stagger,
        thinning=parse_thinning(thin or ()),
    )
    data = make_record(name or f"{'+'.join(ccas)}/{rate:g}/{size / bdp_bytes:g}", scenario, stagger)
    append_record(out, data)
    if json:
        print_json(data)
    else:
        rows = [[c, t, p50, p95, loss] for c, t, p50, p95, loss in zip(
            data["cc"], data["throughput_mbps"], data["rtt_p50_ms"], data["rtt_p95_ms"], data["drop_percent"], strict=True
        )]  # fmt: skip
        print_table(data["name"], ["sender", "payload (Mbit/s)", "RTT p50 (ms)", "p95 (ms)", "drops (%)"], rows)
        print_text(f"added to {out}; mean queue {data['mean_queue_packets']:g} packets")


def _exit_code(reasons: list[str]) -> int:
    if reasons:
        print(f"ccenv: live: not valid: {reasons[0]}. {DOCS}", file=sys.stderr)
    return EXIT_NOT_VALID if reasons else 0


def _print(result: LiveResult, summary: dict[str, Any]) -> None:
    columns = ["flow", "throughput (Mbit/s)", "loss", "mean RTT (ms)", "time-outs"]
    simulated = summary.get("beside", {}).get("flows")
    rows = [
        [f["name"], f["throughput_mbps"], f["loss"], None if f["rtt"] is None else 1e3 * f["rtt"], f["timeouts"]]
        for f in summary["flows"]
    ]
    if simulated:
        columns.insert(2, "simulated (Mbit/s)")
        for row, flow in zip(rows, simulated, strict=True):
            row.insert(2, flow["throughput_mbps"])
    print_table(f"{summary['name']}: {summary['duration_s']:g} s, live", columns, rows)
    emulator, link = summary["emulator"], summary["links"][0]
    error = emulator["release_error_us"]
    print_text(
        f"link used {link['utilisation']:.3f}; {emulator['device']}, {emulator['privileges']}, Linux {emulator['kernel']}; "
        f"release error p50 {error['p50']:g} us, p99 {error['p99']:g} us, max {error['max']:g} us"
    )
    for number, earlier in enumerate(emulator["earlier_tries"], 1):
        print_text(f"try {number} of {emulator['tries']}: {earlier['why_not_valid'][0]}")
    for one in summary.get("control", ()):
        rates = ", ".join(f"{flow['name']} {flow['throughput_mbps']:.4g} Mbit/s" for flow in one["flows"])
        print_text(f"control, {one['run']}: {rates}{'' if one['valid'] else ' (not valid)'}")


BPF = "bpf"


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
    target: Annotated[
        str, typer.Option(help="bpf (Linux 5.17 or newer), or a QUIC stack: quic:aioquic, quic:picoquic, quic:quinn.")
    ] = BPF,
    name: Annotated[str | None, typer.Option(help="In the kernel, at most 15 characters; by default the program's.")] = None,
    rtt: Annotated[float | None, rtt_option("Rm where it is known; by default the smallest RTT measured.")] = None,
    jitter: Annotated[float, jitter_option("D: by how much feedback may be late.")] = 0.0,
    chooser: Annotated[
        str | None, typer.Option(help="Of a contract: lo, middle, hi, user (a process answers), policy (compiled in).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a belief program as one C file for a BPF congestion control of Linux or a QUIC stack. Needs no root and no compiler.

    Guarantees of the file, and how to compile and load it: docs/live.md; for QUIC stacks, and their adapters (-o p.py, p.rs):
    docs/quic.md.

    Example: ccenv export cc_probe_drain --target bpf -o cc_probe_drain.bpf.c
    """
    from ccenv.base.errors import unknown_name
    from ccenv.live.export import ExportError, export_bpf
    from ccenv.live.export.bpf import compile_bpf, load_exported

    if target.startswith("quic"):
        from ccenv.quic.export import export_quic
        from ccenv.quic.program import load_program

        found, chosen = load_program(program, chooser)
        text = export_quic(target, found, out.suffix, rtt_s=rtt, jitter_s=jitter, chooser=chosen)
        _write(out, text.encode("utf-8"), target, json)
        return
    if target != BPF:
        raise unknown_name("export target", target, (BPF, "quic:aioquic", "quic:picoquic", "quic:quinn"))
    if out.suffix not in {".c", ".o"}:
        raise ExportError(f"{out}: give a file that ends with .c (C) or .o (compiled)")
    exported = load_exported(program, chooser)
    text = export_bpf(exported.program, name=name, rtt_s=rtt, jitter_s=jitter, chooser=exported.chooser)
    content = text.encode("ascii") if out.suffix == ".c" else compile_bpf(text)
    _write(out, content, target, json)


def _write(out: Path, content: bytes, target: str, json: bool) -> None:
    from ccenv.base.files import write_atomic

    write_atomic(out, content)
    if json:
        print_json({"file": out, "target": target, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
    else:
        print_text(f"wrote {out}")
