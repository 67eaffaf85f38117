"""The interval of a contract over C_U / C_L, as a picture."""

from __future__ import annotations

import numpy as np

from ccenv.network.figure import picture
from ccenv.agents.programs import INPUTS, Program, interval

C_L_MSS = 100.0
RATIOS = np.linspace(1.0, 4.0, 601)


def interval_picture(contract: Program, suffix: str = ".svg") -> bytes:
    """Draw lower and upper end in units of C_L, after steps that were utilised and after steps that were not.

    Args:
        contract: the contract; a program draws as lines.
        suffix: ``.svg`` or ``.png``.

    Returns:
        bytes: equal contracts give equal bytes. C_L is C_L_MSS segments per Rm, the queueing delay 0; other inputs are C_L.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for utilised, colour, label in ((False, "tab:blue", "not utilised"), (True, "tab:orange", "utilised")):
        ends = np.array([_ends(contract, float(ratio), utilised) for ratio in RATIOS])
        axes.fill_between(RATIOS, ends[:, 0], ends[:, 1], color=colour, alpha=0.4 if utilised else 0.7, linewidth=1, label=label)
    axes.set_xlabel("C_U / C_L")
    axes.set_ylabel("rate / C_L")
    axes.set_ylim(bottom=0)
    axes.legend()
    return picture(figure, suffix)


def _ends(contract: Program, ratio: float, utilised: bool) -> tuple[float, float]:
    inputs = dict.fromkeys(INPUTS, C_L_MSS)
    inputs |= {"C_U": ratio * C_L_MSS, "MSS/Rm": 1.0, "MSS": 1.0, "Rm": 1.0, "qdel_L": 0.0, "qdel_U": 0.0}
    lo, hi, _ = interval(contract, {**inputs, "q_U": 0.0, "q_U/Rm": 0.0, "utilised": utilised, "loss": False})
    return float(lo) / C_L_MSS, float(hi) / C_L_MSS
