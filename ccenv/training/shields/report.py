"""The frontier of shields (width and nominal score over proved utilisation) as data, page and figure; figures of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.programs import INPUTS, Program, interval, parse_program
from ccenv.agents.sender import ProgramSender, ShieldSender
from ccenv.base.errors import InputError
from ccenv.base.figure import markdown, panels, picture
from ccenv.base.files import Format, make_folder, plain, write_atomic
from ccenv.base.provenance import machine, versions
from ccenv.base.renamed import with_keys_of_today
from ccenv.training.evaluation import evaluate_sender
from ccenv.training.shields.widen import RESULT

FORMAT = Format("ccenv-contract-frontier", 1, "a frontier of shields", indent=1)
CHOOSERS = ("lo", "middle", "hi")
PATHS = 1024
_RESULT_KEYS = (
    *("utilisation", "settle", "T", "timeouts", "verified"),
    *("width_log2", "width_at_most", "finished", "asked", "solver_seconds", "reason"),
)


def write_report(folders: Sequence[FilePath], out: FilePath, n_paths: int = PATHS) -> list[FilePath]:
    """Write frontier.json, shields.md and frontier.svg from folders of ``ccenv shield widen``; return the files.

    Raises InputError for a folder without a result, or a damaged one.
    """
    rows = [_row(folder, n_paths) for folder in folders]
    data = plain({"rows": rows, "n_paths": n_paths, "machine": machine(), "versions": versions()})
    make_folder(out)
    record, page, drawn = out / "frontier.json", out / "shields.md", out / "frontier.svg"
    FORMAT.write(record, data)
    write_atomic(drawn, frontier_picture(data))
    write_atomic(page, _page(data).encode())
    return [record, page, drawn]


def read_data(file: FilePath | str) -> dict[str, Any]:
    """Read a record. Raises InputError for another file."""
    return FORMAT.read(FilePath(file))


def make_rows(data: dict[str, Any]) -> list[dict[str, str]]:
    """Return a record as rows of texts, by program and utilisation."""
    return [_cells(row) for row in sorted(data["rows"], key=lambda row: (_name(row), row["utilisation"]))]


def frontier_picture(data: dict[str, Any], suffix: str = ".svg") -> bytes:
    """Draw the width, and the scores of the best constant choice and of the program, over proved utilisation (deterministic)."""
    figure, (width, score) = panels(1, 2, (8, 3.6))
    proved = sorted((row for row in data["rows"] if row["verified"]), key=lambda row: float(row["utilisation"]))
    for number, name in enumerate(dict.fromkeys(_name(row) for row in proved)):
        program_rows, colour = [row for row in proved if _name(row) == name], f"C{number}"
        u = [row["utilisation"] for row in program_rows]
        width.plot(u, [row["width_log2"] for row in program_rows], marker="o", color=colour, label=name)
        score.plot(u, [max(row["scores"].values()) for row in program_rows], marker="o", color=colour, label=name)
        score.plot(u, [row["program_score"] for row in program_rows], linestyle="--", linewidth=1, color=colour)
    width.set(xlabel="proved utilisation", ylabel="width: mean log2(hi / lo)")
    score.set(xlabel="proved utilisation", ylabel="score of the best constant choice (dashed: program)")
    if width.lines:
        width.legend()
    return picture(figure, suffix)


def _row(folder: FilePath, n_paths: int) -> dict[str, Any]:
    file = folder / "result.json"
    data = with_keys_of_today(RESULT.read(file))
    missing = [key for key in (*_RESULT_KEYS, "program", "shield", "directions", "pseudo_code") if key not in data]
    if missing:
        raise InputError(f"{file}: {missing[0]!r} is missing; run ccenv shield widen again")
    program, shield = (parse_program(data[key], f"{file}: {key}") for key in ("program", "shield"))
    scores = {} if not data["verified"] else {name: _score(shield, name, n_paths) for name in CHOOSERS}
    row = {"program": program.name} | {key: data[key] for key in _RESULT_KEYS}
    return row | {"program_score": _score(program, "middle", n_paths), "scores": scores, "pseudo_code": data["pseudo_code"]}


def _score(program: Program, chooser: str, n_paths: int) -> float:
    name = program.name
    sender = ShieldSender(name, program, chooser) if program.is_shield else ProgramSender(name, program)
    return float(asdict(evaluate_sender(sender, n_paths))["score"])


def _name(row: dict[str, Any]) -> str:
    return f"{row['program']}{'' if row['timeouts'] is None else ', with time-outs'}"


def _cells(row: dict[str, Any]) -> dict[str, str]:
    settled = f" (after {row['settle']} Rm)" if row["settle"] else ""
    timing = "no" if row["timeouts"] is None else str(row["timeouts"])
    cells = {"program": f"`{row['program']}`", "time-outs": timing, "utilisation proved": f"{row['utilisation']:g}{settled}"}
    if not row["verified"]:
        return (
            cells
            | dict.fromkeys(("width", "at most", "score of the program", "best constant choice"), "")
            | {"search": f"not proved: {row['reason']}"}
        )
    best = max(row["scores"], key=row["scores"].__getitem__)
    cells |= {"width": f"{row['width_log2']:.3f}", "at most": f"{row['width_at_most']:.3f}"}
    cells |= {
        "score of the program": f"{row['program_score']:.4f}",
        "best constant choice": f"{row['scores'][best]:.4f} ({best})",
    }
    ended = "finished" if row["finished"] else "stopped"
    return cells | {"search": f"{ended}, {row['asked']} queries, {row['solver_seconds']:.0f} s of solver time"}


def _page(data: dict[str, Any]) -> str:
    lines = [
        "# Widths of shields",
        "",
        "Width is the mean of log2(hi / lo) over the beliefs of a nominal run. No shield of the levels searched is wider",
        "around this one than `at most`. A search that was stopped may find a wider one when it goes on.",
        "",
        "![width and score against utilisation](frontier.svg)",
        "",
        markdown(make_rows(data)),
    ]
    for row in data["rows"]:
        state = "" if row["verified"] else f" (not proved: {row['reason']})"
        lines += ["", f"## {_name(row)}, at {row['utilisation']:g}{state}", "", "```", str(row["pseudo_code"]), "```"]
    return "\n".join(lines) + "\n"


C_L_MSS = 100.0
RATIOS = np.linspace(1.0, 4.0, 601)


def interval_picture(shield: Program, suffix: str = ".svg") -> bytes:
    """Draw lower and upper end in units of C_L over C_U / C_L, after utilised and after other steps; a program gives lines.

    C_L is C_L_MSS segments per Rm, the queueing delay is 0, and all other inputs equal C_L. Equal shields give equal bytes.
    """
    figure, (axes,) = panels(1, 1, (6, 3.6))
    for utilised, colour, label in ((False, "tab:blue", "not utilised"), (True, "tab:orange", "utilised")):
        ends = np.array([_ends(shield, float(ratio), utilised) for ratio in RATIOS])
        axes.fill_between(RATIOS, ends[:, 0], ends[:, 1], color=colour, alpha=0.4 if utilised else 0.7, linewidth=1, label=label)
    axes.set(xlabel="C_U / C_L", ylabel="rate / C_L")
    axes.set_ylim(bottom=0)
    axes.legend()
    return picture(figure, suffix)


def _ends(shield: Program, ratio: float, utilised: bool) -> tuple[float, float]:
    inputs = dict.fromkeys(INPUTS, C_L_MSS)
    inputs |= {"C_U": ratio * C_L_MSS, "MSS/Rm": 1.0, "MSS": 1.0, "Rm": 1.0, "qdel_L": 0.0, "qdel_U": 0.0}
    lo, hi, _ = interval(shield, {**inputs, "q_U": 0.0, "q_U/Rm": 0.0, "utilised": utilised, "loss": False})
    return float(lo) / C_L_MSS, float(hi) / C_L_MSS
