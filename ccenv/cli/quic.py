"""``ccenv quic``: senders of QUIC stacks in virtual time under legal networks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.completion import names
from ccenv.cli.options import (
    JsonOption,
    argument,
    buffer_option,
    choices,
    jitter_option,
    option,
    out_option,
    rate_option,
    rtt_option,
    seconds_option,
)
from ccenv.cli.output import print_answer, print_json, print_table, print_text, progress_bar

EXIT_NOT_LEGAL = 1
app = typer.Typer(help="Run senders of QUIC stacks in virtual time under legal networks.\n\nExample: ccenv quic run cubic --json")

SenderArgument = Annotated[str, argument("SENDER", "A congestion control of the stack, or a belief program.", names("agents"))]
StackOption = Annotated[str, option("The QUIC stack.", choices("aioquic", "picoquic", "quinn"))]


@app.command()
def run(
    sender: SenderArgument,
    *,
    stack: StackOption = "aioquic",
    against: Annotated[str | None, option("A second flow's sender.", metavar="SENDER")] = None,
    moves: Annotated[Path | None, typer.Option(help="Moves of an attack (.moves.npz); their path holds. Without: calm.")] = None,
    rate: Annotated[float, rate_option("Of the link.")] = 48.0,
    rtt: Annotated[float | None, rtt_option("Propagation round trip; 40 ms by default.")] = None,
    jitter: Annotated[float | None, jitter_option("D of the network; that of the RTT by default.")] = None,
    buffer: Annotated[str, buffer_option("Drop-tail buffer.")] = "6bdp",
    duration: Annotated[float, seconds_option("--duration", "In virtual time; its second half is measured.")] = 4.8,
    queue_handshake: Annotated[
        bool, typer.Option("--queue-handshake", help="Let the handshake, too, pass through the link.")
    ] = False,
    out: Annotated[Path | None, out_option("The run as a trace (.npz), or the sender's log (.qlog).", "FILE")] = None,
    json: JsonOption = False,
) -> int:
    """Run a sender of a QUIC stack through a legal network, in virtual time: no sockets, no root, the same each time.

    Exit code 1 if the run was not legal, or an exported program differs from its reference.

    Example: ccenv quic run cc_probe_drain --stack aioquic --json
    """
    from ccenv.quic.run import make_run

    if rtt is None:
        rtt = 0.04
    result = make_run(
        stack, [sender] if against is None else [sender, against], rate_mbps=rate, rtt_s=rtt, jitter_s=jitter, buffer=buffer,
        duration_s=duration, moves=moves, log=out is not None and out.suffix == ".qlog", bypass=not queue_handshake,
    )  # fmt: skip
    if out is not None:
        result.save(out)
    summary = result.summary()
    if json:
        print_json(summary)
    else:
        told = [[name, value if isinstance(value, (int, float)) else str(value)] for name, value in summary.items()]
        print_table(", ".join(summary["senders"]), ["run", summary["network"]], told)
    return 0 if summary["legal"] and summary.get("twin", True) else EXIT_NOT_LEGAL


@app.command()
def attack(
    sender: SenderArgument,
    *,
    stack: StackOption = "aioquic",
    search: Annotated[bool, typer.Option("--search", help="Also search against the stack itself.")] = False,
    budget: Annotated[float, seconds_option("--budget", "CPU time of the search.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the search.")] = 0,
    json: JsonOption = False,
) -> int:
    """Play moves that an attack found in the engine against a sender of a stack, and search for worse ones.

    Exit code 1 if a run was not legal, or an exported program differs from its reference.

    Example: ccenv quic attack cubic --stack aioquic --json
    """
    from ccenv.quic.attack import attack_quic

    with progress_bar("quic attack") as told:
        data = attack_quic(stack, sender, search=search, budget_s=budget, seed=seed, told=told)
    if json:
        print_json(data)
    else:
        rows = [[one["found_against"], one["simulated"], one["calm"], one["utilisation"]] for one in data["shipped_moves"]]
        print_table(f"{stack}:{sender}", ["moves found against", "simulated", "calm", "attacked"], rows)
        legal = "legal" if data["legal"] else "NOT LEGAL"
        print_text(f"worst {data['worst']:.3f} by {data['worst_network']}; {data['runs']} runs, {legal}")
    return 0 if data["legal"] and data.get("twin", True) else EXIT_NOT_LEGAL


@app.command()
def explain(
    log: Annotated[Path, argument("FILE.qlog", "Log of a sender: JSON or JSON-SEQ.")],
    *,
    rtt: Annotated[float, rtt_option("Propagation round trip.")],
    rate: Annotated[float | None, rate_option("Of the link; by default the one that needs the least D.")] = None,
    jitter: Annotated[float | None, jitter_option("D of the network, ACK delays included; by default the least one.")] = None,
    out: Annotated[Path | None, out_option("Beliefs over time, and the least D for each rate (.png, .svg).", "FILE")] = None,
    json: JsonOption = False,
) -> int:
    """Tell what a sender's log proves: whether a legal network explains it, the least D for each rate, bounds of the rate.

    Exit code 1 if no legal network of that rate and D explains it.

    Example: ccenv quic explain run.qlog --rtt 40ms -o explain.png --json
    """
    from ccenv.quic.explain import explain as explain_log

    data = explain_log(log, rtt_s=rtt, rate_mbps=rate, jitter_s=jitter, out=out)
    if json:
        print_json(data)
    else:
        rows = [[one["rate_mbps"], one["least_D_ms"]] for one in data["frontier"]]
        print_table(f"{log}: {data['acks']} ACKs, {data['lost']} packets lost", ["rate (Mbit/s)", "least D (ms)"], rows)
        verdict = "a legal network explains it" if data["legal"] else "NO legal network explains it"
        print_text(f"at {data['rate_mbps']:.4g} Mbit/s {verdict}; C_L {data['C_L']}, C_U {data['C_U']} Mbit/s")
    return 0 if data["legal"] else EXIT_NOT_LEGAL


@app.command()
def build(json: JsonOption = False) -> None:
    """Build quinn for this machine, from Debian's crates, without a network: apt install cargo librust-quinn-proto-dev.

    Example: ccenv quic build
    """
    from ccenv.quic.stacks.quinn import build as build_quinn

    file = build_quinn()
    print_answer({"stack": "quinn", "file": file}, f"built {file}", json)
