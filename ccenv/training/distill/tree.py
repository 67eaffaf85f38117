"""Trees with open numbers: a small CART with linear leaves on the inputs of a belief program, shapes, and their search.

The CART minimises the relative squared error ([Breiman et al. 1984]); their search is by cross-entropy (Rubinstein 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from ccenv.agents.interface.interface import N_OBSERVATION, SENDER_V0
from ccenv.agents.programs import Branch, Expression, Leaf, Program, Rule
from ccenv.envs.curve.task import ACTION_RANGE_LOG2

LEAF_STEP = Fraction(1, 20)  # grid of a in rate = a C_L + b MSS/Rm
MSS_STEP = Fraction(1, 4)  # grid of b
LARGEST_RATE = Fraction(8)  # of a, as for a learned policy


@dataclass(frozen=True)
class Guard:
    """A type of condition with one open number in [low, high] on a grid, or none (``step`` is None)."""

    name: str
    step: Fraction | None
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(0)

    def condition(self, number: float) -> Expression | str:
        if self.step is None:
            return self.name
        x = min(self.high, max(self.low, on_grid(number, self.step)))
        if self.name == "ratio":
            return Expression((("C_U", Fraction(1)), ("C_L", -x)))
        if self.name == "slow":
            return Expression((("MSS/Rm", Fraction(1)), ("C_L", -x)))
        return Expression((("qdel_L", Fraction(1)), *([("Rm", -x)] if x else [])))


RATIO = Guard("ratio", Fraction(1, 20), Fraction(21, 20), Fraction(50))  # C_U > x C_L
DELAY = Guard("delay", Fraction(1, 20), Fraction(0), Fraction(8))  # qdel_L > x Rm
WHOLE_DELAY = Guard(
    "delay", Fraction(1), Fraction(0), Fraction(4)
)  # the same in whole Rm, as a grid of one sample per Rm reads it
SLOW = Guard("slow", Fraction(1, 100), Fraction(1, 100), Fraction(2))  # MSS/Rm > x C_L: C_L is only a few segments
UTILISED = Guard("utilised", None)
LOSS = Guard("loss", None)


@dataclass(frozen=True)
class Split:
    """A guard and its two subtrees."""

    guard: Guard
    then: Template
    otherwise: Template


@dataclass(frozen=True)
class Slot:
    """A leaf: rate = a C_L + b MSS/Rm with both numbers open."""


Template: TypeAlias = Split | Slot


def parts(template: Template) -> Iterator[Template]:
    """Yield splits and slots in the order of their numbers: parents first, ``then`` before ``otherwise``."""
    yield template
    if isinstance(template, Split):
        yield from parts(template.then)
        yield from parts(template.otherwise)


def size(template: Template) -> int:
    return sum(2 if isinstance(p, Slot) else int(p.guard.step is not None) for p in parts(template))


def depth(template: Template) -> int:
    """Return the largest number of conditions on the way to a leaf."""
    return 0 if isinstance(template, Slot) else 1 + max(depth(template.then), depth(template.otherwise))


def build(template: Template, numbers: np.ndarray, name: str, source: str = "") -> Program:
    """Return the program with every number, in the order of ``parts``, rounded to its grid."""
    rest = iter(numbers.tolist())

    def rule(part: Template) -> Rule:
        if isinstance(part, Slot):
            return _leaf(next(rest), next(rest))
        condition = part.guard.condition(next(rest) if part.guard.step is not None else 0.0)
        then = rule(part.then)
        return Branch(condition, then, rule(part.otherwise))

    return Program(name, rule(template), source)


def _leaf(a: float, b: float) -> Leaf:
    slope, offset = min(LARGEST_RATE, max(Fraction(0), on_grid(a, LEAF_STEP))), on_grid(b, MSS_STEP)
    terms = [(name, value) for name, value in (("C_L", slope), ("MSS/Rm", offset)) if value]
    # Without terms the rate is the minimum of line 7.
    return Leaf(Expression(tuple(terms) or (("MSS/Rm", Fraction(1)),)))


def on_grid(value: float, step: Fraction) -> Fraction:
    """Return the nearest multiple of a step."""
    return round(value / float(step)) * step


def initial_spread(template: Template) -> np.ndarray:
    """Return the initial standard deviation of a search, per number."""
    out: list[float] = []
    for part in parts(template):
        if isinstance(part, Slot):
            out += [0.2, 0.7]
        elif part.guard.step is not None:
            out.append(0.6 if part.guard is WHOLE_DELAY else 0.02 if part.guard is SLOW else 0.4)
    return np.array(out)


def safety_shell(levels: int) -> tuple[Template, np.ndarray]:
    """Return the initial shape of proofs, with plain numbers.

    A drain leaf is tested first. Below it, ``levels`` guards on C_U / C_L separate wide beliefs from tight ones; in each zone
    ``utilised`` decides between keeping the rate and a probe, so an overshoot lasts about one step.
    """
    zone = Split(UTILISED, Slot(), Slot())
    shape: Template = zone
    numbers = [1.0, 0.0, 1.1, 0.5]
    for level in range(levels):
        shape = Split(RATIO, zone, shape)
        numbers = [1.75 + 0.75 * level, 1.0, 0.0, 1.5 + 0.25 * level, 1.0, *numbers]
    return Split(WHOLE_DELAY, Slot(), shape), np.array([0.0, 0.6, 0.0, *numbers])


def ladder(depth: int) -> tuple[Template, np.ndarray]:
    """Return a shape that scores well on nominal paths, with plain numbers; depth is at least 3.

    Two drain leaves are tested first. Below them is a ladder of guards on C_U / C_L: the wider the beliefs, the higher the rate.
    Only tight beliefs test ``utilised``, which could hold a sender below the link rate while its beliefs are wide.
    """
    rungs: Template = Slot()
    numbers = [2.0, 0.0]
    for rung in range(depth - 2):
        rungs = Split(RATIO, rungs, Slot())
        numbers = [6.0 - rung * 4.0 / (depth - 2), *numbers, 1.2, 0.0]
    shape = Split(RATIO, rungs, Split(UTILISED, Slot(), Slot()))
    drain = Split(DELAY, Slot(), Slot())
    return Split(DELAY, drain, shape), np.array([0.0, 1.0, 0.5, 0.0, 0.75, 0.0, 1.7, *numbers, 0.95, 0.0, 1.05, 0.0])


GUARDS: tuple[Guard, ...] = (RATIO, DELAY, SLOW, UTILISED, LOSS)
_SIGNALS = ("bounds_log2", "qdel_lower", "segment_log2", "utilised", "lost_share")
_COLUMNS = {name: SENDER_V0.signals.index(name) for name in _SIGNALS}
_RIDGE = 1e-5
SMALLEST_GAIN = 1e-3  # a split must lower the error by this share
NOTHING = 1e-6  # and by this much per sample


@dataclass(frozen=True)
class Samples:
    """States and the teacher's rates, in units of C_L."""

    features: np.ndarray  # (n, len(GUARDS)): C_U / C_L, qdel_L / Rm, MSS / (C_L Rm), utilised, loss
    rate: np.ndarray  # (n,) the teacher's rate / C_L


def make_features(observations: np.ndarray) -> np.ndarray:
    """Return the inputs of guards and leaves from Sender-v0 observations (n, N_OBSERVATION)."""
    if observations.shape[1] != N_OBSERVATION:
        raise ValueError(f"observations of {observations.shape[1]} elements; {N_OBSERVATION} are needed")
    bounds, delay, segment, utilised, lost = (observations[:, _COLUMNS[name]] for name in _SIGNALS)
    ratio = np.exp2(bounds.astype(float))
    mss = (np.exp2(segment.astype(float)) - 1.0) / 4.0
    return np.stack([ratio, delay, mss, utilised, lost > 0], axis=1).astype(float)


def action_rates(actions: np.ndarray, mss: np.ndarray) -> np.ndarray:
    """Return rate / C_L of actions in [-1, 1]; at least MSS/Rm."""
    rates: np.ndarray = np.maximum(np.exp2(ACTION_RANGE_LOG2 * np.clip(actions, -1, 1)), mss)
    return rates


def grow(samples: Samples, depth: int, smallest_leaf: int = 50) -> tuple[Template, np.ndarray]:
    """Grow a tree of at most a depth; return it and its numbers in the order of ``parts``."""
    tree, numbers = _grow(samples, np.arange(len(samples.rate)), depth, smallest_leaf)
    return tree, np.array(numbers)


def _grow(samples: Samples, rows: np.ndarray, depth: int, smallest: int) -> tuple[Template, list[float]]:
    sums = _sums(samples, rows)
    best_error, chosen = float(_error(sums.sum(axis=0))) * (1 - SMALLEST_GAIN) - NOTHING * len(rows), None
    for column, guard in enumerate(GUARDS if depth > 0 else ()):
        split = _best_split(samples.features[rows, column], sums, guard, smallest)
        if split is not None and split[0] < best_error:
            best_error, chosen = split[0], (column, guard, split[1])
    if chosen is None:
        return Slot(), _fit(sums.sum(axis=0)).tolist()
    column, guard, threshold = chosen
    above = samples.features[rows, column] > threshold
    then, then_numbers = _grow(samples, rows[above], depth - 1, smallest)
    otherwise, other_numbers = _grow(samples, rows[~above], depth - 1, smallest)
    threshold_numbers = [] if guard.step is None else [threshold]
    return Split(guard, then, otherwise), [*threshold_numbers, *then_numbers, *other_numbers]


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
    """Return the tree's rate / C_L with its exact numbers, not yet rounded to their grids."""
    out = np.zeros(len(features))
    for rows, offset in find_leaves(template, numbers, features):
        out[rows] = np.maximum(numbers[offset] + numbers[offset + 1] * features[rows, 2], features[rows, 2])
    return out


def fit_leaves(template: Template, numbers: np.ndarray, samples: Samples, smallest_leaf: int = 50) -> np.ndarray:
    """Return the numbers with every leaf refitted that enough samples reach; guards are unchanged."""
    fitted = numbers.astype(float)
    for rows, offset in find_leaves(template, numbers, samples.features):
        if len(rows) >= smallest_leaf:
            fitted[offset : offset + 2] = _fit(_sums(samples, rows).sum(axis=0))
    return fitted


def find_leaves(template: Template, numbers: np.ndarray, features: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """Return for each leaf the rows of features that reach it, and the offset of its two numbers."""
    leaves: list[tuple[np.ndarray, int]] = []

    def walk(part: Template, rows: np.ndarray, offset: int) -> int:
        if isinstance(part, Slot):
            leaves.append((rows, offset))
            return offset + 2
        has_number = part.guard.step is not None
        column = [guard.name for guard in GUARDS].index(part.guard.name)
        above = features[rows, column] > (numbers[offset] if has_number else 0.5)
        return walk(part.otherwise, rows[~above], walk(part.then, rows[above], offset + has_number))

    walk(template, np.arange(len(features)), 0)
    return leaves


Judge = Callable[[Sequence[Program]], np.ndarray]
ELITE_SHARE = 0.2
SMALLEST_SPREAD = 0.05  # share of the first spread; keeps the grid within reach to the end
WIDENING = 1.1


@dataclass(frozen=True)
class Polished:
    """The best program of a search, and the mean of its last distribution."""

    numbers: np.ndarray
    program: Program
    value: float
    mean: np.ndarray


def polish(
    template: Template,
    start: np.ndarray,
    judge: Judge,
    *,
    name: str,
    source: str = "",
    seed: int = 0,
    generations: int = 14,
    population: int = 40,
    reach: float = 1.0,
    report: Callable[[int, float], None] | None = None,
) -> Polished:
    """Search the numbers of a template with the highest value, beginning with ``start``.

    ``judge`` returns values of programs, larger is better, and must be deterministic. ``population`` is the number of programs
    per generation, ``reach`` a factor on the first spread; ``report`` gets the generation and the best value so far.
    """
    rng = np.random.default_rng(seed)
    first = initial_spread(template) * reach
    mean, deviation = start.astype(float), first.copy()
    best_numbers, best_value = mean, -np.inf
    for generation in range(generations):
        tried = mean + deviation * rng.standard_normal((population, len(mean)))
        tried[0] = mean
        tried[1] = best_numbers
        values = judge([build(template, numbers, name, source) for numbers in tried])
        order = np.argsort(-values, kind="stable")
        if values[order[0]] > best_value:
            best_numbers, best_value = tried[order[0]], float(values[order[0]])
        elite = tried[order[: max(2, round(ELITE_SHARE * population))]]
        mean = elite.mean(axis=0)
        deviation = np.maximum(WIDENING * elite.std(axis=0), SMALLEST_SPREAD * first)
        if report is not None:
            report(generation, best_value)
    return Polished(best_numbers, build(template, best_numbers, name, source), best_value, mean)
