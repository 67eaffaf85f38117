"""``ccenv verify theorem``: prove a statement about endless runs, and write its certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.options import fresh_option, out_option, seconds_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text

LIMIT_S = 240.0
OUT = Path("runs/theorem")


def theorem(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A theorem: ccenv list configs names them; or a YAML file.")],
    time_limit: Annotated[float, seconds_option("--time-limit", "Time per solver call; what takes longer is unknown.")] = LIMIT_S,
    seed: Annotated[int, typer.Option(help="Seed of the solver.")] = 0,
    out: Annotated[Path, out_option("Folder for the certificate, or for the trace that breaks a lemma or a claim.")] = OUT,
    fresh: Annotated[bool, fresh_option("Ignore stored answers of the very same query.")] = False,
    json: JsonOption = False,
) -> int:
    """Prove a statement about endless runs: lemmas, and the steps that join them (docs/theorems.md).

    Exit code 0 for verified, with a certificate; 1 for refuted, with a trace that can be repeated for ever; 3 for unknown, with
    the step or the lemma that is missing.

    Example: ccenv verify theorem cc_qdel --json
    """
    from ccenv.errors import InputError, require_extra
    from ccenv.smt.solver.store import Store
    from ccenv.smt.theorems.prove import Prover
    from ccenv.smt.theorems.report import tell
    from ccenv.smt.theorems.theorem import load_theorem

    if not time_limit > 0:
        raise InputError(f"--time-limit is {time_limit}; it must be above 0 seconds")
    require_extra("z3", "verify")
    loaded = load_theorem(name)
    progress = (lambda line: None) if json else (lambda line: print_text(f"  {line}"))
    data = tell(Prover(time_limit, Store(), not fresh, seed, progress).prove(loaded), out)
    if json:
        print_json(data)
    else:
        print_text(data["statement"])
        keys = ("verdict", "reason", "utilisation", "inflight_bdp", "loss_per_rtt", "seconds", "certificate")
        print_table(loaded.theorem.name, ["what", "value"], [(key, str(data[key])) for key in keys if data[key] is not None])
    return {"verified": 0, "refuted": 1}.get(data["verdict"], 3)
