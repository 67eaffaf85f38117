"""``ccenv bench``: run suites and measure speed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.base.errors import InputError, UnknownNameError, unknown_name
from ccenv.base.files import make_folder
from ccenv.cli.completion import names
from ccenv.cli.options import (
    JsonOption,
    ProcessesOption,
    SettingsOption,
    argument,
    choices,
    fresh_option,
    option,
    out_option,
    settings,
)
from ccenv.cli.output import print_json, print_table, print_text, progress_bar

if TYPE_CHECKING:
    from ccenv.benchmarks.suite.base import SuiteBase

app = typer.Typer(help="Run benchmark suites and measure speed (docs/benchmarks.md).\n\nExample: ccenv bench run quick")

EXIT_FAILED = 1
PARTS = {
    "ode": "the fluid models",
    "packet": "the packet engine",
    "envs": "duels, shared policies, packet environments",
    "train": "PPO, and the kernel with policies",
    "synth": "synthesis: shipped queries, one by plain CEGIS",
}


@app.command()
def run(
    name: Annotated[str, argument("SUITE", "A shipped suite (ccenv list suites) or a YAML file.", names("suites"))],
    *,
    out: Annotated[Path | None, out_option("Folder of the results; runs/bench/SUITE by default.")] = None,
    agent: Annotated[
        list[str] | None, option("A further sender: name, FILE.py, program or trained policy. Repeatable.", names("agents"))
    ] = None,
    adversary: Annotated[
        list[str] | None, option("A further adversary: name or FILE.py. Repeatable.", names("adversaries"))
    ] = None,
    metric: Annotated[list[str] | None, option("A further metric: name or FILE.py. Repeatable.", names("metrics"))] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only cells scenario/agent/adversary/seed that match, e.g. 'deep/*'. Repeatable.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Largest number of unfinished cells to play.")] = None,
    jobs: ProcessesOption = None,
    fresh: Annotated[bool, fresh_option("Discard finished cells.")] = False,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Run a suite; finished cells are kept. Writes cells.jsonl, manifest.json, summary.png and the worst traces.

    Exit code 1 if a sender from a file of yours failed; the others are played.

    Example: ccenv bench run quick --agent runs/quick_sender-0

    ccenv bench run quick --agent mine.py --adversary storm.py --metric rtt_spread.py
    """
    from ccenv.benchmarks.results import RUNS, equal_seeds, read_suite
    from ccenv.benchmarks.run.runner import as_suite, run_suite
    from ccenv.benchmarks.store import load_cells
    from ccenv.cli.catalog import KERNEL, LIVE, PLAYED

    held = settings("bench run", set_)
    if name in PLAYED:
        excluded = {"--agent": agent, "--adversary": adversary, "--metric": metric, "--limit": limit, "--jobs": jobs}
        excluded |= {f"-s {key}": held[key] for key in ("half_width", "beside")}
        excluded |= {"--fresh": fresh} if name == LIVE else {}
        if others := [option for option, value in excluded.items() if value is not None and value is not False]:
            raise InputError(f"{name} plays {PLAYED[name]}: leave out {others[0]}")
        if name == LIVE:
            return _run_live(only, out, held, json)
        run_stacks = _run_kernel if name == KERNEL else _run_quic
        return run_stacks(out or RUNS / name, only or (), held, json, fresh=fresh)
    try:
        suite = as_suite(name)
    except UnknownNameError as error:
        is_file = Path(name).name != name or Path(name).suffix
        raise error if is_file else unknown_name("suite", name, names("suites")("")) from None
    folder = out or RUNS / (suite.name if held["half_width"] is None else f"{suite.name}-adaptive")
    with progress_bar(f"suite {suite.name}") as show:
        manifest = run_suite(
            name,
            folder,
            extra_agents=agent or (),
            extra_adversaries=adversary or (),
            extra_metrics=metric or (),
            only=only or (),
            limit=limit,
            half_width=held["half_width"],
            beside=held["beside"],
            backend=held["backend"],
            workers=jobs,
            fresh=fresh,
            progress=show,
        )
    if json:
        numbers = {"players": manifest["agents"], "agents": manifest["table"]} if suite.table else {}
        print_json({"out": folder, **manifest, **numbers, "settings": held})
    else:
        print_summary(read_suite(manifest, str(folder)), manifest)
        if same := equal_seeds(load_cells(folder)):
            listed = ", ".join(same[:3]) + (f" and {len(same) - 3} more" if len(same) > 3 else "")
            print(f"ccenv: {listed}: all seeds give one result, nothing is random there", file=sys.stderr)
        print_text(f"wrote {folder}")
    failed = {one["agent"]: one for one in manifest["failed"]}
    for agent_name, one in failed.items():
        print(f"ccenv: {agent_name}: {one['error']}", file=sys.stderr)
    return EXIT_FAILED if failed else 0


def _run_live(only: list[str] | None, out: Path | None, held: dict[str, Any], json: bool) -> int:
    """Run the live suite, of ``--only`` its senders; exit code 1 if a run is not valid after several tries."""
    from ccenv.cli.live import exit_code
    from ccenv.live.kernel_records import FORMAT, SENDERS, SUITE, run_suite

    record = run_suite(only or SENDERS, told=lambda name: print(f"ccenv: {SUITE}: {name}", file=sys.stderr))
    if out is not None:
        FORMAT.write(out if out.suffix == ".json" else out / f"{SUITE}.json", record)
    if json:
        print_json(record | {"settings": held})
    else:
        rows = [[row["sender"], row["calm"], row["live"], row["simulated"], row["valid"]] for row in record["rows"]]
        print_table(f"{SUITE}, Linux {record['kernel']}", ["sender", "without jitter", "attacked", "simulated", "valid"], rows)
    return exit_code([f"{row['sender']}: {reason}" for row in record["rows"] for reason in row["why_not_valid"]])


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
    if intervals := manifest.get("interval"):
        columns = ["agent", "score", "half-width", "reached", "runs", "forecast after the first round"]
        rows = [[n, i["iqm"], i["half_width"], i["reached"], i["n_runs"], i["forecast"]] for n, i in intervals.items()]
        print_table("runs that the interval took", columns, rows)
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


def _run_quic(folder: Path, only: Sequence[str], held: dict[str, Any], json: bool, *, fresh: bool) -> int:
    """Run the suite of QUIC stacks; exit code 1 if a run was not legal, or a program differs from its reference."""
    from ccenv.cli.catalog import QUIC
    from ccenv.quic.suite import COLUMNS, plot, run_suite

    make_folder(folder)
    with progress_bar(f"suite {QUIC}") as show:
        record = run_suite(folder / "record.json", only, show, fresh=fresh)
    plot(record, folder / "summary.png")
    if json:
        print_json({"out": folder, **record, "settings": held})
    else:
        print_table(QUIC, COLUMNS, [[row[column] for column in COLUMNS] for row in record["rows"]])
        for reason in record["missing"].values():
            print_text(reason)
    return EXIT_FAILED if any(False in (row["legal"], row["twin"]) for row in record["rows"]) else 0


def _run_kernel(folder: Path, only: Sequence[str], held: dict[str, Any], json: bool, *, fresh: bool) -> int:
    """Run the suite of the kernel in virtual time, beside the packet engine."""
    from ccenv.cli.catalog import KERNEL
    from ccenv.live.virtual.suite import QUANTITIES, run_suite

    make_folder(folder)
    with progress_bar(f"suite {KERNEL}") as show:
        record = run_suite(folder / "record.json", only, show, fresh=fresh)
    if json:
        print_json({"out": folder, **{key: value for key, value in record.items() if key != "runs"}, "settings": held})
        return 0
    sides = ("kernel", "engine")
    columns = ["case", *(f"{name}, {side}" for name in QUANTITIES[:3] for side in sides), "beyond the bands"]
    rows = [
        [row["case"], *(row[side][name] if side in row else None for name in QUANTITIES[:3] for side in sides),
         ", ".join(row["beyond"]) if "beyond" in row else "not simulated"]
        for row in record["cases"]
    ]  # fmt: skip
    print_table(f"{KERNEL}: inside all bands in {record['inside']} of {record['of']} cases", columns, rows)
    print_text("; ".join(f"{name} inside in {count}" for name, count in record["inside_per_quantity"].items()))
    return 0


@app.command()
def report(folder: Annotated[Path, argument("DIR", "Folder of a run of a suite.")], *, json: JsonOption = False) -> None:
    """Write the report of a run: report.html with the paper's figures from our data, and how published values agree.

    Example: ccenv bench report runs/bench/starvation
    """
    from ccenv.benchmarks.report.page import build_report

    result = build_report(folder)
    if json:
        print_json(result)
        return
    for agreement, count in result["agreement"].items():
        print_text(f"{count} published values: {agreement}")
    print_text(f"wrote {result['page']}")


@app.command()
def speed(
    parts: Annotated[
        list[str] | None,
        argument(
            "[PART]...", "What else to measure: " + "; ".join(f"{part}: {what}" for part, what in PARTS.items()), choices(*PARTS)
        ),
    ] = None,
    packet: Annotated[bool, typer.Option("--packet", help="Also measure the packet engine.")] = False,
    envs: Annotated[bool, typer.Option("--envs", help="Also measure duels, shared policies, packet environments.")] = False,
    save: Annotated[bool, typer.Option("--save", help="Also write a record into benchmarks/speed/.")] = False,
    json: JsonOption = False,
) -> None:
    """Measure engine, environments, start and memory on this machine (docs/benchmarks.md, Speed).

    Example: ccenv bench speed --json; ccenv bench speed ode train
    """
    from ccenv.benchmarks.speed import measure, save_record

    asked = {*(parts or ()), *(["packet"] if packet else []), *(["envs"] if envs else [])}
    for part in sorted(asked - PARTS.keys()):
        raise unknown_name("part", part, PARTS)
    result = measure(asked)
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
