"""Pictures of a league: the payoff matrix, and exploitability by round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.base.files import write_atomic
from ccenv.network.figure import picture

MOST_NUMBERS = 12  # players of a side up to which the matrix has numbers in it
DARK = 0.5  # part of the colour scale below which numbers are white


def draw_payoffs(file: FilePath, senders: Sequence[str], networks: Sequence[str], matrix: np.ndarray) -> None:
    """Write the payoff matrix as a picture: senders down, networks across.

    Args:
        file: its ending says the format.
        senders: names of the rows.
        networks: names of the columns.
        matrix: (S, N) payoffs.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.5 + 0.45 * len(networks), 2.0 + 0.35 * len(senders)), layout="constrained")
    ax = figure.add_subplot()
    shown = ax.imshow(matrix, cmap="viridis", aspect="auto")
    low, high = shown.get_clim()
    if max(matrix.shape) <= MOST_NUMBERS:
        for (i, j), value in np.ndenumerate(matrix):
            colour = "white" if high == low or (value - low) / (high - low) < DARK else "black"
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize="x-small")
    ax.set_xticks(range(len(networks)), networks, rotation=60, ha="right")
    ax.set_yticks(range(len(senders)), senders)
    ax.set_xlabel("network")
    ax.set_ylabel("sender")
    figure.colorbar(shown, label="payoff of the sender")
    write_atomic(file, picture(figure, file.suffix))


def draw_curve(file: FilePath, rounds: Sequence[dict[str, Any]]) -> None:
    """Write exploitability by round with its intervals, and what the hold-outs leave the senders in the mean, as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 5.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    numbers = [one["round"] for one in rounds]
    values = [one["exploitability"] for one in rounds]
    above.fill_between(numbers, [one["interval"][0] for one in rounds], [one["interval"][1] for one in rounds], alpha=0.25)
    above.plot(numbers, values, marker="o")
    above.set_ylabel("exploitability")
    above.set_ylim(bottom=min(0.0, above.get_ylim()[0]))
    for name in rounds[0]["hold_outs"]["mean"]:
        below.plot(numbers, [one["hold_outs"]["mean"][name] for one in rounds], marker="o", label=name)
    below.plot(numbers, [np.mean(one["network_payoffs"]) for one in rounds], color="black", linestyle=":", label="answer")
    below.set_ylabel("utilisation - loss")
    below.set_xlabel("round")
    below.legend(fontsize="small")
    for ax in (above, below):
        ax.grid(alpha=0.25)
    write_atomic(file, picture(figure, file.suffix))
