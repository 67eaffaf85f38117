"""The report page of a run: funnel, times, solutions as pseudo-code with proved bounds and their behaviour in the engine."""

from __future__ import annotations

import math
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import make_folder, write_atomic
from ccenv.proofs.synthesis.result import summary

_WIDEST_REM = 24.0


def check_report(file: FilePath) -> None:
    """Raise unless a page can be written under this name: InputError for another ending, MissingExtraError without Jinja2."""
    if file.suffix != ".html":
        raise InputError(f"--report is {str(file)!r}; the page ends in '.html'")
    require_extra("jinja2", "board")


def write_report(data: dict[str, Any], file: FilePath) -> None:
    """Write the page; bars are logarithmic.

    Args:
        data: the answer, optionally with ``ranking`` and ``engine``.
        file: where to write.

    Raises:
        InputError: for a file that does not end in .html.
        MissingExtraError: without Jinja2.
    """
    check_report(file)
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ccenv.proofs.synthesis"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    stages = [(name.replace("_", " "), n) for name, n in data["funnel"].items()]
    largest = math.log10(1 + max(n for _, n in stages))
    funnel = [(name, n, round(_WIDEST_REM * math.log10(1 + n) / largest, 2)) for name, n in stages]
    bounds = {row["name"]: row["summary"] for row in data.get("ranking", [])}
    for name, suite in data.get("lemmas", {}).get("solutions", {}).items():
        bounds[name] = f"{bounds[name]}; {suite['summary']}"
    page = environment.get_template("report.html")
    text = page.render(data=data, line=summary(data), funnel=funnel, bounds=bounds, engine=data.get("engine", {}))
    make_folder(file.parent)
    write_atomic(file, text.encode())
