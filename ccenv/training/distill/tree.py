"""A small CART with linear leaves, on what a belief program can read ([Breiman et al. 1984], relative squared error)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.training.distill.template import DELAY, LOSS, RATIO, SLOW, UTILISED, Guard, Slot, Split, Template
from ccenv.agents.interface.observation import N_OBSERVATION
from ccenv.envs.curve.task import ACTION_RANGE_LOG2
from ccenv.agents.interface.interface import SENDER_V0

GUARDS: tuple[Guard, ...] = (RATIO, DELAY, SLOW, UTILISED, LOSS)
_READ = ("bounds_log2", "qdel_lower", "segment_log2", "utilised", "lost_share")
_COLUMNS = {name: SENDER_V0.signals.index(name) for name in _READ}
_RIDGE = 1e-5
SMALLEST_GAIN = 1e-3  # a split must lower the error by this share
NOTHING = 1e-6  # and by this much per sample


@dataclass(frozen=True)
class Samples:
    """States and what the teacher does there, in units of C_L.

    Attributes:
        features: (n, len(GUARDS)): C_U / C_L, qdel_L / Rm, MSS / (C_L Rm), utilised, loss.
        rate: (n,) the teacher's rate / C_L.
    """

    features: np.ndarray
    rate: np.ndarray


def features_of(observations: np.ndarray) -> np.ndarray:
    """Return what guards and leaves read, from Sender-v0 observations (n, N_OBSERVATION)."""
    if observations.shape[1] != N_OBSERVATION:
        raise ValueError(f"observations of {observations.shape[1]} elements; {N_OBSERVATION} are needed")
    bounds, delay, segment, utilised, lost = (observations[:, _COLUMNS[name]] for name in _READ)
    ratio = np.exp2(bounds.astype(float))
    mss = (np.exp2(segment.astype(float)) - 1.0) / 4.0
    return np.stack([ratio, delay, mss, utilised, lost > 0], axis=1).astype(float)


def rate_of(actions: np.ndarray, mss: np.ndarray) -> np.ndarray:
    """Return rate / C_L of actions in [-1, 1]; at least MSS/Rm."""
    rates: np.ndarray = np.maximum(np.exp2(ACTION_RANGE_LOG2 * np.clip(actions, -1, 1)), mss)
    return rates


def grow(samples: Samples, depth: int, smallest_leaf: int = 50) -> tuple[Template, np.ndarray]:
    """Grow a tree of at most a depth.

    Returns:
        tuple: the tree and its numbers as ``template.parts`` orders them.
    """
    tree, numbers = _grow(samples, np.arange(len(samples.rate)), depth, smallest_leaf)
    return tree, np.array(numbers)


def _grow(samples: Samples, rows: np.ndarray, depth: int, smallest: int) -> tuple[Template, list[float]]:
    sums = _sums(samples, rows)
    best_error, chosen = float(_error(sums.sum(axis=0))) * (1 - SMALLEST_GAIN) - NOTHING * len(rows), None
    for column, guard in enumerate(GUARDS if depth > 0 else ()):
        found = _best_split(samples.features[rows, column], sums, guard, smallest)
        if found is not None and found[0] < best_error:
            best_error, chosen = found[0], (column, guard, found[1])
    if chosen is None:
        return Slot(), _fit(sums.sum(axis=0)).tolist()
    column, guard, threshold = chosen
    above = samples.features[rows, column] > threshold
    then, then_numbers = _grow(samples, rows[above], depth - 1, smallest)
    otherwise, other_numbers = _grow(samples, rows[~above], depth - 1, smallest)
    own = [] if guard.step is None else [threshold]
    return Split(guard, then, otherwise), [*own, *then_numbers, *other_numbers]


def _sums(samples: Samples, rows: np.ndarray) -> np.ndarray:
    """Return per sample the moments of the weighted fit of rate = a + b * mss: weights 1 / rate^2."""
    y, m = samples.rate[rows], samples.features[rows, 2]
    w = 1.0 / y**2
    return np.stack([w, w * m, w * m * m, w * y, w * y * m, np.ones_like(y)], axis=1)


def _fit(total: np.ndarray) -> np.ndarray:
    w, wm, wmm, wy, wym = total[:5]
    matrix = np.array([[w, wm], [wm, wmm + _RIDGE * w]])
    return np.linalg.solve(matrix, np.array([wy, wym]))


def _error(total: np.ndarray) -> np.ndarray:
    """Return the relative squared error of the best leaf, for moments (..., 6)."""
    w, wm, wmm, wy, wym, n = np.moveaxis(total, -1, 0)
    wmm = wmm + _RIDGE * w
    determinant = np.maximum(w * wmm - wm * wm, 1e-300)
    a = (wmm * wy - wm * wym) / determinant
    b = (w * wym - wm * wy) / determinant
    error: np.ndarray = n - a * wy - b * wym
    return error


def _best_split(values: np.ndarray, sums: np.ndarray, guard: Guard, smallest: int) -> tuple[float, float] | None:
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    below = np.cumsum(sums[order], axis=0)
    cuts = np.flatnonzero(ordered[1:] > ordered[:-1])
    cuts = cuts[(cuts + 1 >= smallest) & (len(values) - cuts - 1 >= smallest)]
    if not len(cuts):
        return None
    middle = 0.5 * (ordered[cuts] + ordered[cuts + 1])
    if guard.step is not None:
        inside = (middle >= float(guard.low)) & (middle <= float(guard.high))
        cuts, middle = cuts[inside], middle[inside]
        if not len(cuts):
            return None
    left = below[cuts]
    errors = _error(left) + _error(below[-1] - left)
    best = int(np.argmin(errors))
    return float(errors[best]), float(middle[best])


def predict(template: Template, numbers: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return the tree's rate / C_L, with its numbers as they are (not yet on their grids)."""
    out = np.zeros(len(features))
    for rows, at in leaves_of(template, numbers, features):
        out[rows] = np.maximum(numbers[at] + numbers[at + 1] * features[rows, 2], features[rows, 2])
    return out


def fit_leaves(template: Template, numbers: np.ndarray, samples: Samples, smallest_leaf: int = 50) -> np.ndarray:
    """Return the numbers with every leaf that enough samples reach fitted to them; guards stay as they are."""
    fitted = numbers.astype(float)
    for rows, at in leaves_of(template, numbers, samples.features):
        if len(rows) >= smallest_leaf:
            fitted[at : at + 2] = _fit(_sums(samples, rows).sum(axis=0))
    return fitted


def leaves_of(template: Template, numbers: np.ndarray, features: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """Return for each leaf the rows of features that reach it, and where its two numbers stand."""
    found: list[tuple[np.ndarray, int]] = []

    def walk(part: Template, rows: np.ndarray, at: int) -> int:
        if isinstance(part, Slot):
            found.append((rows, at))
            return at + 2
        has_number = part.guard.step is not None
        column = [guard.name for guard in GUARDS].index(part.guard.name)
        above = features[rows, column] > (numbers[at] if has_number else 0.5)
        return walk(part.otherwise, rows[~above], walk(part.then, rows[above], at + has_number))

    walk(template, np.arange(len(features)), 0)
    return found
