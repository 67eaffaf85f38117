"""Belief programs as flat arrays, and the scalar kernel that evaluates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccenv.agents.programs.program import INPUT_INDEX, ROUND_OFF, UNIT_OF, Branch, Expression, MAX_RATE_Bps, Program
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import load

# Columns of a node row.
KIND, THEN, ELSE, HOLD, FIRST_COEFFICIENT = range(5)
N_COEFFICIENTS = len(UNIT_OF)
WIDTH = FIRST_COEFFICIENT + 2 * N_COEFFICIENTS

# Values of the KIND column.
LEAF, LINEAR, UTILISED, LOSS = 0.0, 1.0, 2.0, 3.0

_KIND_OF_BOOLEAN = {"utilised": UTILISED, "loss": LOSS}
_IN_UTILISED = INPUT_INDEX["utilised"]
_IN_LOSS = INPUT_INDEX["loss"]
_IN_MIN_RATE = INPUT_INDEX["MSS/Rm"]


@dataclass(frozen=True)
class CompiledProgram:
    """A program for the kernel.

    Attributes:
        nodes: float64 array (n_nodes, WIDTH), row 0 is the root, read-only. Columns: KIND (LEAF, LINEAR, UTILISED, LOSS);
            THEN and ELSE, rows relative to the program's first row; HOLD, intervals; from FIRST_COEFFICIENT on the
            coefficients of the numeric inputs in the order of INPUTS (of the rate in a leaf, of "> 0" in a LINEAR node), and
            after them of a leaf those of the interval's upper end, the same again where the rate is decided.
        probe_window_rtts: T* of C_L_lambda in units of Rm.
    """

    name: str
    nodes: np.ndarray
    probe_window_rtts: int


def compile_program(program: Program) -> CompiledProgram:
    """Turn a program into node rows for ``evaluate``."""
    rules = list(program.rules())
    row_of = {id(rule): row for row, rule in enumerate(rules)}
    nodes = np.zeros((len(rules), WIDTH))
    # A rule object that occurs twice in the tree gets the later of its equal rows: jumps stay forward and correct.
    for row, rule in zip(nodes, rules, strict=True):
        if isinstance(rule, Branch):
            row[THEN], row[ELSE] = row_of[id(rule.then)], row_of[id(rule.otherwise)]
            if isinstance(rule.condition, str):
                row[KIND] = _KIND_OF_BOOLEAN[rule.condition]
            else:
                row[KIND] = LINEAR
                _set_coefficients(row, rule.condition)
        else:
            row[KIND], row[HOLD] = LEAF, rule.hold_rtts
            _set_coefficients(row, rule.rate)
            _set_coefficients(row[N_COEFFICIENTS:], rule.ends[-1])
    nodes.flags.writeable = False
    return CompiledProgram(program.name, nodes, program.probe_window_rtts)


def stack_programs(programs: Sequence[CompiledProgram]) -> tuple[np.ndarray, np.ndarray]:
    """Return several programs as nodes (n, WIDTH) float64, and per program its first row (int64)."""
    counts = np.array([len(p.nodes) for p in programs], dtype=np.int64)
    nodes = np.concatenate([p.nodes for p in programs]) if programs else np.zeros((0, WIDTH))
    return nodes, np.cumsum(counts) - counts


def _set_coefficients(row: np.ndarray, expression: Expression) -> None:
    for name, coefficient in expression.terms:
        row[FIRST_COEFFICIENT + INPUT_INDEX[name]] = float(coefficient)


@kernel
def evaluate(nodes: np.ndarray, first_row: int, inputs: np.ndarray) -> tuple[float, float]:
    """Evaluate a program; the kernel of ``ccenv.agents.programs.decide``.

    ``first_row`` is that of the program's root among the nodes, (n, WIDTH). Inputs are (len(INPUTS),) in the order of INPUTS;
    booleans as 0 or 1; infinite values allowed. Returns the rate in bytes/s within [MSS/Rm, MAX_RATE_Bps], and the number of
    intervals to hold it. Infinities as in ``decide``.
    """
    return evaluate_at(nodes.ctypes.data, first_row, inputs.ctypes.data)


@kernel
def interval(nodes: np.ndarray, first_row: int, inputs: np.ndarray) -> tuple[float, float, float]:
    """Evaluate a shield; the kernel of ``ccenv.agents.programs.interval``. Arguments as of ``evaluate``.

    Returns lower and upper end in bytes/s within [MSS/Rm, MAX_RATE_Bps], and the number of intervals to hold a choice.
    """
    return interval_at(nodes.ctypes.data, first_row, inputs.ctypes.data)


@kernel
def evaluate_at(nodes_at: int, first_row: int, inputs_at: int) -> tuple[float, float]:
    """Evaluate a program as ``evaluate`` does, with both arrays given by address (see ``ccenv.engine.compiled.calls.load``)."""
    at = _leaf_at(nodes_at, first_row, inputs_at)
    rate = max(_weighted_sum(nodes_at, at + FIRST_COEFFICIENT, inputs_at), load(inputs_at, _IN_MIN_RATE))
    return min(rate, MAX_RATE_Bps), load(nodes_at, at + HOLD)


@kernel
def interval_at(nodes_at: int, first_row: int, inputs_at: int) -> tuple[float, float, float]:
    """Evaluate a shield as ``interval`` does, with both arrays given by address."""
    at = _leaf_at(nodes_at, first_row, inputs_at)
    least = load(inputs_at, _IN_MIN_RATE)
    lo = min(max(_weighted_sum(nodes_at, at + FIRST_COEFFICIENT, inputs_at), least), MAX_RATE_Bps)
    hi = min(max(_weighted_sum(nodes_at, at + FIRST_COEFFICIENT + N_COEFFICIENTS, inputs_at), least), MAX_RATE_Bps)
    return lo, max(lo, hi), load(nodes_at, at + HOLD)


@kernel
def rate_in(lo: float, hi: float, position: float) -> float:
    """Return the rate at a position of an interval; the kernel of ``ccenv.agents.programs.rate_at``."""
    if not position > 0.0:  # what is not a number too
        return lo
    rate = lo + min(position, 1.0) * (hi - lo)
    return min(max(rate, lo), hi)


@kernel
def _leaf_at(nodes_at: int, first_row: int, inputs_at: int) -> int:
    at = first_row * WIDTH
    while load(nodes_at, at + KIND) != LEAF:
        node = load(nodes_at, at + KIND)
        if node == LINEAR:
            holds = _positive(nodes_at, at, inputs_at)
        elif node == UTILISED:
            holds = load(inputs_at, _IN_UTILISED) != 0.0
        else:
            holds = load(inputs_at, _IN_LOSS) != 0.0
        at = (first_row + int(load(nodes_at, at + THEN) if holds else load(nodes_at, at + ELSE))) * WIDTH
    return at


@kernel
def _positive(nodes_at: int, at: int, inputs_at: int) -> bool:
    """Tell whether a node's expression is above 0 by more than the round-off of its terms."""
    total, scale = 0.0, 0.0
    for i in range(N_COEFFICIENTS):
        coefficient = load(nodes_at, at + FIRST_COEFFICIENT + i)
        if coefficient != 0.0:  # 0 * inf would be NaN
            term = coefficient * load(inputs_at, i)
            total += term
            scale += abs(term)
    return total > ROUND_OFF * scale if np.isfinite(scale) else total > 0.0


@kernel
def _weighted_sum(nodes_at: int, coefficients: int, inputs_at: int) -> float:
    total = 0.0
    for i in range(N_COEFFICIENTS):
        coefficient = load(nodes_at, coefficients + i)
        if coefficient != 0.0:
            total += coefficient * load(inputs_at, i)
    return -np.inf if np.isnan(total) else total
