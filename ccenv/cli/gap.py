"""``ccenv gap``: the worst case that searches find, against the bound that the solver proves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ccenv.cli.completion import names
from ccenv.cli.shared import out_option, quantity_option, seconds_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text, to_plain
from ccenv.base.units import STEPS

DEFAULT = (
    *("cc_qdel", "cc_probe_fast", "cc_probe_drain", "cc_probe_slow", "cc_probe_qdel"),
    *("learned_nominal_u54", "learned_nominal_d4"),
    *("copa", "vegas", "reno", "cubic", "bbr1"),
)
EXIT_BELOW = 1


def command(
    senders: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[AGENT]...",
            autocompletion=names("agents"),
            help="Senders; by default the shipped programs and some classics.",
        ),
    ] = None,
    *,
    buffer: Annotated[str, typer.Option(help="large (6 BDP), small (C*D/2) or infinite.")] = "large",
    samples: Annotated[int, typer.Option("--T", help="Length of the envelope's traces in samples one Rm apart.")] = 7,
    budget: Annotated[int, quantity_option("--budget", STEPS, "Engine steps of flows per row.")] = 20_000_000,
    seed: Annotated[int, typer.Option(help="Decides searches and solver.")] = 0,
    time_limit: Annotated[float, seconds_option("--time-limit", "Time per solver call; a longer one proves nothing.")] = 120.0,
    out: Annotated[Path | None, out_option("Write the table as JSON.", "FILE")] = None,
    json: JsonOption = False,
) -> int:
    """Compare the worst utilisation found with the proved bound in proof timing, window by window alike (docs/adversaries.md).

    Exit code 1 if a search found less than what is proved: then the encoder or the engine is wrong.

    Example: ccenv gap cc_qdel cc_probe_drain
    """
    from ccenv.agents import make_sender
    from ccenv.agents.learned.zoo.scenes import trained_on_scenes
    from ccenv.attacks import PANEL, scene_of, scene_set
    from ccenv.attacks.gap import adversary_gap, gap_path
    from ccenv.cli.progress import progress_bar
    from ccenv.base.document import json_bytes
    from ccenv.base.errors import require_extra
    from ccenv.base.files import write_atomic
    from ccenv.base.provenance import machine, versions

    require_extra("z3", "verify")
    with progress_bar("adversary gap") as show:
        rows = adversary_gap(
            senders or DEFAULT,
            buffer=buffer,
            samples=samples,
            budget_flow_steps=budget,
            seed=seed,
            time_limit_s=time_limit,
            report=show,
        )
    path = gap_path(buffer)
    asked: dict[str, Any] = {"buffer": buffer, "T": samples, "budget_flow_steps": budget, "seed": seed}
    asked |= {"adversaries": list(PANEL), "path": path.to_dict(), "scene": scene_of(path), "scene_set": scene_set(scene_of(path))}
    met = {make_sender(spec).name: trained_on_scenes(spec) for spec in senders or DEFAULT}
    told = [row.to_dict() | {"trained_on_scenes": met[row.sender]} for row in rows]
    data = {**asked, "machine": machine(), "versions": versions(), "rows": told}
    if out is not None:
        write_atomic(out, json_bytes(to_plain(data)))
    if json:
        print_json(data)
    else:
        columns = [
            "sender",
            "model",
            "windows",
            "bound",
            "found",
            "ratio",
            "method",
            "searched",
            "cold_start",
            "free_start",
            "legal",
        ]
        table = [[getattr(row, name) for name in columns] + [row.found_in_any_window] for row in rows]
        print_table(f"adversary gap, {buffer} buffer", [*columns, "any window"], table)
        if out is not None:
            print_text(f"wrote {out}")
    return EXIT_BELOW if any(row.holds is False for row in rows) else 0
