"""``ccenv live`` (scenarios and attacks on the real TCP stack) and ``ccenv export`` (belief programs as C)."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ccenv.base.errors import InputError, unknown_name
from ccenv.base.files import write_atomic
from ccenv.cli.completion import configs, names
from ccenv.cli.options import JsonOption, SettingsOption, argument, out_option, settings
from ccenv.cli.output import about_run, print_json, print_table, print_text, progress_bar

if TYPE_CHECKING:
    from ccenv.live import LiveResult

EXIT_NOT_VALID = 1
DOCS = "Run again or see docs/live.md"
VirtualOption = Annotated[
    bool, typer.Option("--virtual", help="On Linux in virtual time (user-mode; emulated for programs): repeatable, without root.")
]


class _Scenarios(TyperGroup):
    """``ccenv live NAME`` runs a scenario if NAME is no sub-command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from ccenv.cli.settings import former_command

        if args and (former := former_command(f"live {args[0]}")):
            raise InputError(former)
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
    scenario: Annotated[str, argument("SCENARIO", "YAML file or shipped name (ccenv list configs).", configs("live"))],
    *,
    virtual: VirtualOption = False,
    beside: Annotated[bool, typer.Option("--beside", help="Run the engine that simulates it, too.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it, with --beside both, into a .png or .svg file.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the run as a trace (.npz) for `ccenv trace check`.")] = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Run a scenario in real time, or in virtual time; `ccenv live SCENARIO` is short for it.

    Exit code 1 if the run is not valid: packets were written late, so it is no evidence about its senders. Such a run is
    repeated; the answer has the number of the try and the outcomes of the earlier ones.

    Example: ccenv live reno_hold --json; ccenv live cubic_beside_bbr --virtual; ccenv live run reno_hold -s duration_s=5s
    """
    from ccenv.base.figure import require_picture
    from ccenv.live import load_live_scenario, run_live, valid_run
    from ccenv.live.comparison import plot_beside, simulate_live
    from ccenv.live.kernel_records import control_scenarios
    from ccenv.live.scenario import kernel_cca

    held, tested = settings("live run", set_), load_live_scenario(scenario)
    changed = {name: held[name] for name in ("seed", "duration_s") if held[name] is not None}
    if changed:
        from ccenv.live import read_live_scenario

        tested = read_live_scenario({**tested.model_dump(), **changed}, tested.name)
    control = held["control"]
    if plot is not None:
        require_picture(plot)

    entry: Callable[..., LiveResult] = run_live
    play = partial(valid_run, tries=held["tries"])
    if virtual:
        from ccenv.live.virtual.run import run_virtual

        entry = run_virtual
        play = partial(run_virtual, cpu_s=held["cpu_s"], wall_s=held["wall_s"], kernel=held["kernel"])

    engine = simulate_live(tested) if beside else None
    controls = [(name, play(one).summary()) for name, one in control_scenarios(tested)] if control else []
    result = play(tested)
    if trace is not None:
        result.trace().save(trace)
    summary = result.summary()
    if engine is not None:
        summary["beside"] = engine.summary
    if plot is not None and engine is not None:
        plot_beside(plot, result, engine)
    elif plot is not None:
        result.run.plot(plot)
    if control:
        summary["control"] = [{"run": name, **one} for name, one in controls]
    if json:
        senders = (flow.sender for flow in tested.flows if kernel_cca(flow.sender) is None)
        print_json(summary | {"settings": held} | about_run(result.scenario, senders, entry))
    else:
        _print(result, summary)
    return exit_code(summary["why_not_valid"])


@app.command()
def attack(
    sender: Annotated[str, argument("NAME", "A kernel's congestion control or a program: reno, cc_qdel.")],
    *,
    virtual: VirtualOption = False,
    plot: Annotated[Path | None, typer.Option(help="Draw live and simulated into a .png or .svg file.")] = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Play an attack that was found in the engine against the real stack; with --virtual search against the kernel itself.

    A search in virtual time goes on where it was interrupted. Exit code 1 if no try is valid, or a found run is not legal.

    Example: ccenv live attack reno
    Example: ccenv live attack cubic --virtual -s runs=100
    """
    from ccenv.live.attacks import moves_against, play_attack
    from ccenv.live.comparison import COUNTERPARTS
    from ccenv.live.scenario import KERNEL

    held = settings("live attack", set_)
    if virtual:
        return _search(sender, held, plot, json)
    file = moves_against(sender, held["moves"])
    data = play_attack(f"{KERNEL}{sender}" if sender in COUNTERPARTS else sender, file, calm=held["calm"], plot=plot)
    if json:
        print_json(data | {"settings": held})
    else:
        columns = [key for key in ("calm", "live", "simulated") if key in data]
        title = f"{sender}: share of a link of {data['link_rate_mbps']:g} Mbit/s, moves of {data['found_by']}"
        print_table(title, ["without jitter" if c == "calm" else c for c in columns], [[data[c] for c in columns]])
    return exit_code(data["why_not_valid"])


def _search(sender: str, held: dict[str, Any], plot: Path | None, json: bool) -> int:
    """Search against the kernel in virtual time; return the exit code."""
    from ccenv.live.virtual.attack import ADVERSARIES, attack_virtual

    if plot is not None:
        raise InputError("--plot draws stored moves beside the engine; the worst trace of a search is in its folder")
    with progress_bar(f"live attack {sender}") as show:
        data = attack_virtual(sender, **{**held, "adversaries": held["adversaries"] or ADVERSARIES}, report=show)
    if json:
        print_json(data | {"settings": held})
    else:
        rows = [[name, one["worst_utilisation"], one["legal"]] for name, one in data["by_adversary"].items()]
        calm = f", without jitter {data['calm']:.3f}" if "calm" in data else ""
        print_table(f"{data['sender']}: worst utilisation {data['live']:.3f}{calm}", ["adversary", "worst", "legal"], rows)
    return exit_code(data["why_not_valid"])


@app.command()
def load(
    program: Annotated[str, argument("PROGRAM", "A belief program: a registered name or a .json file.", names("agents"))],
    *,
    set_: SettingsOption = None,
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

    held = settings("live load", set_)
    exported, chosen, shield = load_exported(program, held["chooser"])
    loaded_name = kernel_name(held["name"] or exported.name)
    text = export_bpf(exported, name=loaded_name, rtt_s=held["rtt_s"], jitter_s=held["jitter_s"], chooser=chosen)
    require_bpf()
    loaded = Program(loaded_name, compile_bpf(text))

    def tell() -> None:
        if json:
            named = {} if chosen is None else {"chooser": chosen if isinstance(chosen, str) else COMPILED}
            print_json({"loaded": loaded_name, "program": exported.name, **named, "settings": held})
        else:
            print_text(f"loaded {loaded_name}; Ctrl-C unloads it")

    try:
        if chosen == USER and shield is not None:
            serve_for_ever(shield, *loaded.chooser_files(), ready=tell)
        tell()
        signal.pause()
    finally:
        loaded.close()


def exit_code(reasons: list[str]) -> int:
    """Return 1, and print the first reason, if a run is no evidence about its senders."""
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
    if "hash" in summary:
        print_text(f"{summary['simulated_s_per_cpu_s']:g} simulated s per CPU s; hash {summary['hash'][:16]}")
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
        str, argument("PROGRAM", "A belief program or a shield: a name or a .json file; ever_delay; 4CP.", names("agents"))
    ],
    *,
    out: Annotated[Path, out_option("C (.c), or a compiled object (.o; needs clang).", "FILE")],
    target: Annotated[
        str, typer.Option(help="bpf (Linux 5.17 or newer), or a QUIC stack: quic:aioquic, quic:picoquic, quic:quinn.")
    ] = BPF,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Write a belief program as one C file for a BPF congestion control of Linux or a QUIC stack. Needs no root and no compiler.

    Guarantees of the file, and how to compile and load it: docs/live.md; for QUIC stacks, and their adapters (-o p.py, p.rs):
    docs/quic.md.

    Example: ccenv export cc_probe_drain --target bpf -o cc_probe_drain.bpf.c -s jitter_s=10ms
    """
    from ccenv.live.export import ExportError, export_sender
    from ccenv.live.export.bpf import compile_bpf

    held = settings("export", set_)
    if target.startswith("quic"):
        from ccenv.quic.export import export_quic
        from ccenv.quic.program import load_program

        found, chosen = load_program(program, held["chooser"])
        delays = {"rtt_s": held["rtt_s"], "jitter_s": held["jitter_s"]}
        text = export_quic(target, found, out.suffix, **delays, chooser=chosen)
        _write(out, text.encode("utf-8"), target, held, json)
        return
    if target != BPF:
        raise unknown_name("export target", target, (BPF, "quic:aioquic", "quic:picoquic", "quic:quinn"))
    if out.suffix not in {".c", ".o"}:
        raise ExportError(f"{out}: give a file that ends with .c (C) or .o (compiled)")
    text = export_sender(program, **held)
    content = text.encode("ascii") if out.suffix == ".c" else compile_bpf(text)
    _write(out, content, target, held, json)


def _write(out: Path, content: bytes, target: str, held: dict[str, Any], json: bool) -> None:
    write_atomic(out, content)
    if json:
        about = {"file": out, "target": target, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        print_json(about | {"settings": held})
    else:
        print_text(f"wrote {out}")
