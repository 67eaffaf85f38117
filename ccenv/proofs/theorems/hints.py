"""Counterexamples on a fine grid from those of a coarser one: what it shows there is demanded, the rest is open."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.proofs.formulas.encode import Encoding
from ccenv.proofs.solver.terms import Formula, real

LIMIT_S = 10.0
"""A search that follows a hint takes parts of a second; what takes longer is asked without."""

WAYS = (("G", "E", "S"), ("rate",))
"""The curves that are demanded, in turn; what a trace starts with always is."""

_START = ("alpha", "beta", "C_L_0", "C_U_0", "C_L_lambda_0", "q_U_0")
_SERIES = re.compile(r"([A-Z]|rate)_([0-9]+)")


@dataclass(frozen=True)
class Hint:
    """A trace on a coarser grid.

    Attributes:
        values: variable -> exact number.
        times: how many samples the finer grid has for each of its samples.
    """

    values: Mapping[str, Any]
    times: int

    def demands(self, encoding: Encoding, curves: tuple[str, ...]) -> list[Formula]:
        """Return that a trace of the finer grid starts as this one and has its values of some curves at its samples."""
        variables, demanded = encoding.variables.all, []
        for name, value in sorted(self.values.items()):
            found, there = _SERIES.fullmatch(name), name
            if found is not None and found[1] in curves and not (found[1] == "rate" and found[2] == "0"):
                there = f"{found[1]}_{int(found[2]) * self.times}"
            elif name not in _START:
                continue
            if there in variables:
                demanded.append(variables[there] == real(Fraction(value)))
        return demanded
