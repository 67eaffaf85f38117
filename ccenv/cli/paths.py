"""``ccenv paths``: traces of links of varying rate: read, check, make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ccenv.cli.shared import out_option, quantity_option, seconds_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text
from ccenv.base.units import MBPS

app = typer.Typer(help="Traces of links of varying rate (docs/links.md).\n\nExample: ccenv paths import trace.csv --json")


@app.command("import")
def import_trace(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A Mahimahi file, a CSV of rates or opportunities, or JSON.")],
    *,
    max_gap: Annotated[float, seconds_option("--max-gap", "Longest time between two rows; more is a gap.")] = 60.0,
    out: Annotated[Path | None, out_option("Write it as ccenv's own JSON, which scenarios read faster.")] = None,
    json: JsonOption = False,
) -> None:
    """Read a trace of a link's rate, tell its format and what it is like; a wrong one is one line and exit code 2.

    Example: ccenv paths import trace.csv -o mylink.json
    """
    from ccenv.network.links import read_trace, save_trace

    found = read_trace(trace, max_gap)
    if out is not None:
        save_trace(out, found.trace, f"imported from {trace.name}")
    answer = {"file": str(trace), "format": found.format, "columns": list(found.columns), "lines": found.lines}
    _show({**answer, **found.trace.summary(), "written": None if out is None else str(out)}, json)


@app.command("make")
def make_trace(
    kind: Annotated[str, typer.Argument(help="cellular, leo or wifi.")],
    *,
    out: Annotated[Path, out_option("JSON file to write.")],
    mean_mbps: Annotated[float, quantity_option("--mean", MBPS, "Mean rate.", "--mean-mbps")] = 20.0,
    length: Annotated[float | None, seconds_option("--length", "After which it begins again.")] = None,
    seed: Annotated[int, typer.Option(help="Of its random numbers.")] = 0,
    json: JsonOption = False,
) -> None:
    """Make a trace by a generator and write it as a file.

    Example: ccenv paths make cellular --mean-mbps 20 --seed 1 -o cellular.json
    """
    from ccenv.base.errors import InputError
    from ccenv.network.links import save_trace
    from ccenv.simulation import made_trace

    if not 0 <= seed < 2**53:
        raise InputError(f"seed {seed} is not in [0, 2**53)")
    given = {"kind": kind, "mean_Bps": mean_mbps * 125_000.0, **({} if length is None else {"length_s": length})}
    trace = made_trace(given, seed)
    save_trace(out, trace, f"ccenv paths make {kind} --mean-mbps {mean_mbps:g} --seed {seed}")
    _show({"kind_of_link": kind, "seed": seed, **trace.summary(), "written": str(out)}, json)


def _show(answer: dict[str, Any], json: bool) -> None:
    if json:
        print_json(answer)
        return
    print_table("trace", ["what", "value"], [(key, value) for key, value in answer.items() if value is not None])
    if answer["written"]:
        print_text(f"wrote {answer['written']}")
