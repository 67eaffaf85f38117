"""``ccenv bench``: run suites and measure speed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.cli.completion import names
from ccenv.cli.shared import JsonOption, ProcessesOption, fresh_option, out_option, print_json, print_table, print_text

if TYPE_CHECKING:
    from ccenv.benchmarks.suite.base import SuiteBase

app = typer.Typer(help="Run benchmark suites and measure speed (docs/benchmarks.md).\n\nExample: ccenv bench run quick")

EXIT_FAILED = 1
QUIC = "quic-v1"  # of real stacks, which no cell of the engines holds


@app.command()
def run(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SUITE", autocompletion=names("suites"), help="A shipped suite (ccenv list suites) or a YAML file."
        ),
    ],
    *,
    out: Annotated[Path | None, out_option("Folder of the results; runs/bench/SUITE by default.")] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=names("agents"), help="A further sender: name, FILE.py, program or trained policy. Repeatable."
        ),
    ] = None,
    adversary: Annotated[
        list[str] | None,
        typer.Option(autocompletion=names("adversaries"), help="A further adversary: name or FILE.py. Repeatable."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(autocompletion=names("metrics"), help="A further metric: name or FILE.py. Repeatable.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only cells scenario/agent/adversary/seed that match, e.g. 'deep/*'. Repeatable.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Largest number of unfinished cells to play.")] = None,
    backend: Annotated[str, typer.Option(help="local | processes | ray; the results are the same.")] = "local",
    jobs: ProcessesOption = None,
    fresh: Annotated[bool, fresh_option("Discard finished cells.")] = False,
    json: JsonOption = False,
) -> int:
    """Run a suite; finished cells are kept. Writes cells.jsonl, manifest.json, summary.png and the worst traces.

    Exit code 1 if a sender from a file of yours failed; the others are played.

    Example: ccenv bench run quick --agent runs/train/quick_sender

    ccenv bench run quick --agent mine.py --adversary storm.py --metric rtt_spread.py
    """
    from ccenv.benchmarks.results import RUNS, read_suite
    from ccenv.benchmarks.run.runner import as_suite, run_suite
    from ccenv.cli.shared import progress_bar

    if name == QUIC:
        return _run_quic(out or RUNS / QUIC, only or (), json)
    suite = as_suite(name)
    folder = out or RUNS / suite.name
    with progress_bar(f"suite {suite.name}") as show:
        manifest = run_suite(
            name,
            folder,
            extra_agents=agent or (),
            extra_adversaries=adversary or (),
            extra_metrics=metric or (),
            only=only or (),
            limit=limit,
            backend=backend,
            workers=jobs,
            fresh=fresh,
            progress=show,
        )
    if json:
        numbers = {"players": manifest["agents"], "agents": manifest["table"]} if suite.table else {}
        print_json({"out": folder, **manifest, **numbers})
    else:
        print_summary(read_suite(manifest, str(folder)), manifest)
        print_text(f"wrote {folder}")
    failed = {one["agent"]: one for one in manifest["failed"]}
    for agent_name, one in failed.items():
        print(f"ccenv: {agent_name}: {one['error']}", file=sys.stderr)
    return EXIT_FAILED if failed else 0


def print_summary(suite: SuiteBase, manifest: dict[str, Any]) -> None:
    """Print the table of a run: nominal score with interval, means against the nominal adversary, worst case."""
    score, worst = suite.measure(suite.score.metric), suite.measure(suite.worst_case.metric)
    measures = [suite.measure(name) for name in suite.metrics if name != score.name]
    columns = ["agent", f"{score.label} (IQM, 95 %)"]
    columns += [f"{metric.label} ({metric.unit})" if metric.unit else metric.label for metric in measures]
    columns += [f"worst {worst.label}", "found by"]
    rows = []
    for entry in manifest["summary"]:
        means, nominal, case = entry["against"][suite.score.adversary], entry["score"], entry["worst_case"]
        interval = f"{nominal['iqm']:.3f} [{nominal['low']:.3f}, {nominal['high']:.3f}]" if nominal else ""
        found_by = f"{case['adversary']} in {case['scenario']}, seed {case['seed']}" if case else ""
        rows.append([entry["agent"], interval, *(means[m.name] for m in measures), case["value"] if case else None, found_by])
    title = f"suite {suite.name} version {suite.version}, means against {suite.score.adversary}; {manifest['n_cells']} cells"
    print_table(title, columns, rows)
    if suite.table:
        numbers = [[agent, *values.values()] for agent, values in manifest["table"].items()]
        print_table("what the suite is about", ["agent", *suite.table], numbers)
    if manifest["references"]:
        print_table(
            "beside the source",
            ["statement", "published", "here", "ratio", "agreement"],
            [[r["name"], r["claim"], r["measured"], r["ratio"], r["agreement"]] for r in manifest["references"]],
        )
    n_failed = len(manifest["failed"])
    if n_failed:
        print_text(f"{n_failed} cells failed")
    if manifest["n_missing"] > n_failed:
        print_text(f"{manifest['n_missing'] - n_failed} cells are missing: run again without --only and --limit")


def _run_quic(folder: Path, only: Sequence[str], json: bool) -> int:
    """Run the suite of QUIC stacks; exit code 1 if a run was not legal, or a program differs from its reference."""
    from ccenv.cli.shared import progress_bar
    from ccenv.quic.suite import COLUMNS, FORMAT, plot, run_suite

    with progress_bar(f"suite {QUIC}") as show:
        record = run_suite(only, show)
    folder.mkdir(parents=True, exist_ok=True)
    FORMAT.write(folder / "record.json", record)
    plot(record, folder / "summary.png")
    if json:
        print_json({"out": folder, **record})
    else:
        print_table(QUIC, COLUMNS, [[row[column] for column in COLUMNS] for row in record["rows"]])
        for reason in record["missing"].values():
            print_text(reason)
    return EXIT_FAILED if any(not row["legal"] or row["twin"] is False for row in record["rows"]) else 0


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run of a suite.")],
    *,
    record: Annotated[Path | None, typer.Option(help="Also write numbers and small pictures into a folder of records.")] = None,
    json: JsonOption = False,
) -> None:
    """Write the report of a run: report.html with the paper's figures from our data, and how published values agree.

    Example: ccenv bench report runs/bench/starvation
    """
    from ccenv.benchmarks.report.page import build_report

    result = build_report(folder)
    if record is not None:
        from ccenv.benchmarks.report.records import write_record

        result["record"] = write_record(folder, record)
    if json:
        print_json(result)
        return
    for agreement, count in result["agreement"].items():
        print_text(f"{count} published values: {agreement}")
    print_text(f"wrote {result['page']}")


@app.command()
def speed(
    ode: Annotated[bool, typer.Option("--ode", help="Also measure the ODE models.")] = False,
    packet: Annotated[bool, typer.Option("--packet", help="Also measure the packet engine.")] = False,
    envs: Annotated[bool, typer.Option("--envs", help="Also measure duels, shared policies, packet environments.")] = False,
    train: Annotated[bool, typer.Option("--train", help="Also measure PPO and the kernel with policies.")] = False,
    synth: Annotated[bool, typer.Option("--synth", help="Also measure synthesis: shipped queries, one by plain CEGIS.")] = False,
    save: Annotated[bool, typer.Option("--save", help="Also write a record into benchmarks/speed/.")] = False,
    json: JsonOption = False,
) -> None:
    """Measure engine, environments, start and memory on this machine (docs/benchmarks.md, Speed).

    Example: ccenv bench speed --json
    """
    from ccenv.benchmarks.speed import measure, save_record

    result = measure(ode=ode, packet=packet)
    if envs:
        from ccenv.benchmarks.speed import measure_clients

        result |= measure_clients()
        from ccenv.benchmarks.speed import measure_packet_envs as measure_packets

        result |= measure_packets()
    if train:
        from ccenv.benchmarks.speed import measure_training

        result |= measure_training()
    if synth:
        from ccenv.benchmarks.speed import measure_synthesis

        result |= measure_synthesis()
    if save:
        result = {**result, "record": str(save_record(result))}
    if json:
        print_json(result)
    else:
        print_table(
            "speed",
            ["what", "value"],
            [(name, str(value) if isinstance(value, dict) else value) for name, value in result.items()],
        )
