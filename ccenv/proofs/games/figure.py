"""Pictures of games: belief sets in the plane of rate and buffer ([CCmatic] figure 5) along a run, and learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.files import write_atomic
from ccenv.network.figure import picture, require_picture
from ccenv.proofs.games.boards import Boards
from ccenv.proofs.games.game import UNLIMITED

_PANELS = 12
_ACROSS = 4


def draw_line(boards: Boards, rows: Sequence[dict[str, Any]], file: FilePath) -> None:
    """Draw the exact belief set before each turn of a line of play that changed it, and the bounds that it comes to.

    Args:
        boards: of the game.
        rows: of ``ccenv.proofs.games.players.line``.
        file: ending in ``.png`` or ``.svg``; equal lines make equal files.

    Raises:
        InputError: for another ending.
        CcenvError: if the file cannot be written.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    target = require_picture(file)
    sets = [{(rate, buffer) for rate, buffer, _, _ in boards.members(row["board"])} for row in rows]
    chosen = [place for place in range(len(rows)) if place == 0 or sets[place] != sets[place - 1]][:_PANELS]
    every = sorted({buffer for _, buffer in boards.game.paths})
    height = {buffer: place for place, buffer in enumerate(every)}
    across = min(_ACROSS, max(1, len(chosen)))
    down = -(-max(1, len(chosen)) // across)
    figure = Figure(figsize=(2.4 * across, 0.7 + 2.1 * down), dpi=100, layout="constrained")
    axes = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    for ax, place in zip(axes, chosen, strict=False):
        row, inside = rows[place], sets[place]
        others = [path for path in boards.game.paths if path not in inside]
        ax.plot(*zip(*((rate, height[buffer]) for rate, buffer in inside), strict=True), "s", color="C0", markersize=7)
        if others:
            ax.plot(*zip(*((rate, height[buffer]) for rate, buffer in others), strict=True), ".", color="0.75", markersize=4)
        low, high = min(height[b] for _, b in inside), max(height[b] for _, b in inside)
        corner, width = (row["C_L"] - 0.4, low - 0.4), row["C_U"] - row["C_L"] + 0.8
        ax.add_patch(Rectangle(corner, width, high - low + 0.8, fill=False, color="C1", linewidth=1.2))
        ax.set_title(f"step {row['step']}: sends {row['sent']}", fontsize="small")
        ax.set_yticks(range(len(every)), ["inf" if buffer >= UNLIMITED else str(buffer) for buffer in every])
        ax.set_xticks(boards.game.rates)
    for ax in axes[len(chosen) :]:
        ax.set_visible(False)
    figure.supxlabel("C (packets a step)", fontsize="small")
    figure.supylabel("buffer (packets)", fontsize="small")
    figure.suptitle(f"{boards.game.name}: paths that are still possible, and their bounds", fontsize="medium")
    write_atomic(target, picture(figure, target.suffix))


def draw_learning(name: str, value: float, curve: Sequence[dict[str, Any]], file: FilePath) -> None:
    """Draw the regret of a policy while it learns, beside the value of the game.

    Args:
        name: of what learns.
        value: of the game.
        curve: rows with ``steps``, ``regret`` and ``worst`` (against the optimal and the worst network).
        file: as for :func:`draw_line`.
    """
    from matplotlib.figure import Figure

    target = require_picture(file)
    figure = Figure(figsize=(6, 3.4), dpi=100, layout="constrained")
    ax = figure.subplots()
    steps = [row["steps"] for row in curve]
    ax.plot(steps, [row["worst"] for row in curve], color="C1", label="against its worst network")
    ax.plot(steps, [row["regret"] for row in curve], color="C0", label="against the optimal network")
    ax.axhline(value, color="black", linewidth=1, label=f"value of the game: {value:g}")
    ax.set_xlabel("steps")
    ax.set_ylabel("regret (packets)")
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, fontsize="small", title=name)
    write_atomic(target, picture(figure, target.suffix))
