"""The frontier: widths of contracts against the utilisation that stays proved, as a page and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.contract.widen import RESULT
from ccenv.errors import InputError
from ccenv.files import make_folder, write_atomic

_COLUMNS = ("program", "utilisation", "settle", "T", "width_log2", "asked", "finished", "seconds")


def write_report(folders: Sequence[FilePath], out: FilePath) -> list[FilePath]:
    """Write contracts.md and frontier.svg.

    Args:
        folders: of ``ccenv contract widen``.
        out: where the two go.

    Returns:
        list: the files.

    Raises:
        InputError: for a folder without a result, or a damaged one.
    """
    results = [_read(folder) for folder in folders]
    make_folder(out)
    page, picture = out / "contracts.md", out / "frontier.svg"
    write_atomic(picture, _picture(results))
    write_atomic(page, _page(results).encode())
    return [page, picture]


def _read(folder: FilePath) -> dict[str, Any]:
    file = folder / "result.json"
    data = RESULT.read(file)
    missing = [key for key in (*_COLUMNS[1:], "verified", "directions", "pseudo_code") if key not in data]
    if missing or not isinstance(data.get("program"), dict):
        raise InputError(f"{file}: {(missing or ['program'])[0]!r} is missing; run ccenv contract widen again")
    return data


def _page(results: Sequence[dict[str, Any]]) -> str:
    lines = [
        "# Widths of contracts",
        "",
        "Width is the mean of log2(hi / lo) over the beliefs of a nominal run. A contract that is not finished may be wider.",
        "",
        "![width against utilisation](frontier.svg)",
        "",
        "| " + " | ".join(_COLUMNS) + " |",
        "| " + " | ".join("---" for _ in _COLUMNS) + " |",
    ]
    lines += ["| " + " | ".join(_cell(data, column) for column in _COLUMNS) + " |" for data in results]
    for data in results:
        state = "" if data["verified"] else f" (not proved: {data.get('reason', '')})"
        lines += ["", f"## {_name(data)} at {data['utilisation']:g}{state}", "", "```", str(data["pseudo_code"]), "```"]
    return "\n".join(lines) + "\n"


def _cell(data: dict[str, Any], column: str) -> str:
    value = _name(data) if column == "program" else data[column]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _name(data: dict[str, Any]) -> str:
    return str(data["program"].get("name", "?"))


def _picture(results: Sequence[dict[str, Any]]) -> bytes:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    from ccenv.network.plots import picture

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for name in sorted({_name(data) for data in results}):
        points = sorted((data["utilisation"], data["width_log2"]) for data in results if _name(data) == name and data["verified"])
        axes.plot([u for u, _ in points], [w for _, w in points], marker="o", label=name)
    axes.set_xlabel("proved utilisation")
    axes.set_ylabel("width: mean log2(hi / lo)")
    if axes.lines:
        axes.legend()
    return picture(figure, ".svg")
