"""Pictures of games: belief sets in the plane of rate and buffer ([CCmatic] figure 5), steps to converge, learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.base.figure import finish, panels, save
from ccenv.proofs.games.boards import Boards
from ccenv.proofs.games.bounds import bounds_along
from ccenv.proofs.games.game import UNLIMITED

_PANELS = 12
_ACROSS = 4


def draw_line(boards: Boards, rows: Sequence[dict[str, Any]], file: FilePath) -> None:
    """Draw the exact belief set before each turn of a line of play that changed it, its bounds, and those of the engine.

    Raises InputError for another ending; CcenvError if the file cannot be written.

    Args:
        boards: of the game.
        rows: of ``ccenv.proofs.games.players.line``.
        file: ending in ``.png`` or ``.svg``; equal lines make equal files.
    """
    from matplotlib.patches import Rectangle

    game, known = boards.game, bounds_along(boards, rows)
    sets = [{(rate, buffer) for rate, buffer, *_ in boards.members(row["board"])} for row in rows]
    chosen = [place for place in range(len(rows)) if place == 0 or sets[place] != sets[place - 1]][:_PANELS]
    every = sorted({buffer for _, buffer in game.paths})
    height = {buffer: place for place, buffer in enumerate(every)}
    across = min(_ACROSS, max(1, len(chosen)))
    down = -(-max(1, len(chosen)) // across)
    figure, axes = panels(down, across, (2.4 * across, 0.7 + 2.1 * down), sharex=True, sharey=True)
    for ax, place in zip(axes, chosen, strict=False):
        row, inside, engine = rows[place], sets[place], known[place]
        for paths, marker, colour, size in ((set(game.paths) - inside, ".", "0.75", 4), (inside, "s", "C0", 7)):
            ax.plot([rate for rate, _ in paths], [height[buffer] for _, buffer in paths], marker, color=colour, markersize=size)
        low, high = min(height[b] for _, b in inside), max(height[b] for _, b in inside)
        corner, width = (row["C_L"] - 0.4, low - 0.4), row["C_U"] - row["C_L"] + 0.8
        ax.add_patch(Rectangle(corner, width, high - low + 0.8, fill=False, color="C1", linewidth=1.2, label="exact bounds"))
        right = min(engine["C_U"], game.rates[-1] + 0.6)
        ax.axvspan(engine["C_L"], right, color="C2", alpha=0.15, label="engine's C_L to C_U")
        least = [engine["line"] - rate for rate in game.rates]  # (6.3) with T* = Rm
        if max(least) > 0:
            ax.plot(game.rates, np.interp(least, every, range(len(every))), ":", color="C2", label="engine's (6.3)")
        ax.set_title(f"step {row['step']}: sends {row['sent']}", fontsize="small")
        ax.set_yticks(range(len(every)), ["inf" if buffer >= UNLIMITED else str(buffer) for buffer in every])
        ax.set_xticks(game.rates)
        finish(ax)
    for ax in axes[len(chosen) :]:
        ax.set_visible(False)
    axes[0].legend(frameon=False, fontsize=5)
    figure.supxlabel("C (packets a step)", fontsize="small")
    figure.supylabel("buffer (packets)", fontsize="small")
    figure.suptitle(f"{game.name}: paths that are still possible, and their bounds", fontsize="medium")
    save(figure, file)


def draw_steps(rows: Sequence[dict[str, Any]], file: FilePath) -> None:
    """Draw steps to converge beside F^-1 of theorem 6.1, a panel for each allowance.

    Args:
        rows: of ``ccenv.proofs.games.values.theorem_rows``.
        file: as for :func:`draw_line`.
    """
    losses = list(dict.fromkeys(row["loss"] for row in rows))
    figure, axes = panels(1, len(losses), (2.6 * len(losses), 3.6), sharex=True, sharey=True)
    for ax, loss in zip(axes, losses, strict=True):
        of_loss = [row for row in rows if row["loss"] == loss]
        for network in dict.fromkeys(row["network"] for row in of_loss):
            found = [(row["rate"], row["steps"]) for row in of_loss if row["network"] == network and row["steps"] is not None]
            ax.plot(*zip(*found, strict=True), ".-", label=network)
        ramp = {row["rate"]: row["ramp_steps"] for row in of_loss}
        ax.plot([*ramp], [*ramp.values()], "--", color="black", label="F^-1 (Rm for beta_s)")
        ax.set_title(f"loss a step: {loss}", fontsize="small")
        finish(ax, "C (packets a step)", size="small")
    axes[0].set_ylabel("steps until smaller rates are excluded", fontsize="small")
    axes[0].legend(frameon=False, fontsize=6)
    save(figure, file)


def draw_learning(name: str, value: float, curve: Sequence[dict[str, Any]], file: FilePath) -> None:
    """Draw the regret of a policy while it learns, beside the value of the game.

    Args:
        name: of what learns.
        value: of the game.
        curve: rows with ``steps``, ``regret`` and ``worst`` (against the optimal and the worst network).
        file: as for :func:`draw_line`.
    """
    figure, (ax,) = panels(1, 1, (6, 3.4))
    for key, label in (("worst", "against its worst network"), ("regret", "against the optimal network")):
        ax.plot([row["steps"] for row in curve], [row[key] for row in curve], label=label)
    ax.axhline(value, color="black", linewidth=1, label=f"value of the game: {value:g}")
    finish(ax, "steps", "regret (packets)", zero=True, frameon=False, title=name)
    save(figure, file)
