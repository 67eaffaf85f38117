"""Paths as arrays: what a batch of environments needs, one row per environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ccenv.base.errors import InputError, PathError
from ccenv.engine.curve.layout import WORKLOADS
from ccenv.network.path import WORKLOAD_FIELDS, FlowPath, Model, Path, RateChange, RedParameters, Workload, make_grid

NEVER = 2**62  # a step that no run reaches
ROUNDING = 1e-9  # steps: times that are whole steps up to rounding are


@dataclass
class PathArrays:
    """Paths of a batch on one grid density.

    Attributes:
        steps_per_rtt: K.
        dt_s: (B,) step length in seconds.
        link_rate_Bps, link_rate_min_Bps, link_rate_max_Bps: (B,) bytes/s.
        buffer_bytes, mss_bytes: (B,) bytes.
        red_min_bytes, red_max_bytes, red_max_probability, red_weight, has_red: (B,).
        rate_changes: (B, R, 2) step after which a link rate holds, and the rate; n_rate_changes: (B,) how many.
        rtt_steps, jitter_steps, start_step, stop_step: (B, N) steps.
        loss_budget: (B, N) fraction.
        workload: (B, N) codes of layout.WORKLOADS; workload_a, workload_b: (B, N) rate, size, or on and off time.
    """

    steps_per_rtt: int
    dt_s: np.ndarray
    link_rate_Bps: np.ndarray
    link_rate_min_Bps: np.ndarray
    link_rate_max_Bps: np.ndarray
    buffer_bytes: np.ndarray
    mss_bytes: np.ndarray
    red_min_bytes: np.ndarray
    red_max_bytes: np.ndarray
    red_max_probability: np.ndarray
    red_weight: np.ndarray
    has_red: np.ndarray
    rate_changes: np.ndarray
    n_rate_changes: np.ndarray
    rtt_steps: np.ndarray
    jitter_steps: np.ndarray
    start_step: np.ndarray
    stop_step: np.ndarray
    loss_budget: np.ndarray
    workload: np.ndarray
    workload_a: np.ndarray
    workload_b: np.ndarray

    @staticmethod
    def simple(
        *,
        steps_per_rtt: int,
        link_rate_Bps: np.ndarray,
        rtt_s: np.ndarray,
        jitter_steps: np.ndarray,
        buffer_bytes: np.ndarray,
        mss_bytes: np.ndarray,
        n_flows: int = 1,
    ) -> PathArrays:
        """Build arrays of plain paths (bulk flows of equal delays, drop-tail, constant rate). All arguments (B,).

        Raises PathError for numbers that no path can have.
        """
        B = len(link_rate_Bps)
        for name, values in (("link_rate_Bps", link_rate_Bps), ("rtt_s", rtt_s), ("mss_bytes", mss_bytes)):
            if not (np.isfinite(values).all() and (np.asarray(values) > 0).all()):
                raise PathError(f"{name} must be finite and positive")
        if not (np.asarray(buffer_bytes) > 0).all() or (np.asarray(jitter_steps) < 0).any():
            raise PathError("buffer_bytes must be positive and jitter_steps not negative")
        zeros = np.zeros(B)
        per_flow = np.zeros((B, n_flows))
        rate = np.asarray(link_rate_Bps, dtype=np.float64)
        return PathArrays(
            steps_per_rtt=steps_per_rtt,
            dt_s=np.asarray(rtt_s, dtype=np.float64) / steps_per_rtt,
            link_rate_Bps=rate,
            link_rate_min_Bps=rate.copy(),
            link_rate_max_Bps=rate.copy(),
            buffer_bytes=np.asarray(buffer_bytes, dtype=np.float64),
            mss_bytes=np.asarray(mss_bytes, dtype=np.float64),
            red_min_bytes=zeros,
            red_max_bytes=zeros + 1.0,
            red_max_probability=zeros.copy(),
            red_weight=zeros.copy(),
            has_red=np.zeros(B, np.int64),
            rate_changes=np.zeros((B, 1, 2)),
            n_rate_changes=np.zeros(B, np.int64),
            rtt_steps=np.full((B, n_flows), steps_per_rtt, np.int64),
            jitter_steps=np.repeat(np.asarray(jitter_steps, np.int64)[:, None], n_flows, axis=1),
            start_step=np.zeros((B, n_flows), np.int64),
            stop_step=np.full((B, n_flows), NEVER),
            loss_budget=per_flow,
            workload=np.zeros((B, n_flows), np.int64),
            workload_a=per_flow.copy(),
            workload_b=per_flow.copy(),
        )

    @staticmethod
    def from_paths(paths: Sequence[Path], steps_per_rtt: int) -> PathArrays:
        """Put paths on a grid. Raises PathError for delays off the grid, InputError for mixed numbers of flows."""
        counts = {path.n_flows for path in paths}
        if len(counts) != 1:
            raise InputError(f"a batch needs at least one path and one number of flows; got {sorted(counts)}")
        grids = [make_grid(path, steps_per_rtt) for path in paths]
        on_grid = [_changes_on_grid(path, grid.dt_s) for path, grid in zip(paths, grids, strict=True)]
        changes = np.zeros((len(paths), max([1, *map(len, on_grid)]), 2))
        for row, rates in zip(changes, on_grid, strict=True):
            row[: len(rates)] = list(rates.items()) or np.zeros((0, 2))
        active = [[_active_steps(f, g.dt_s) for f in p.flows] for p, g in zip(paths, grids, strict=True)]

        def per_path(get: Callable[[Path], float]) -> np.ndarray:
            return np.array([get(path) for path in paths], dtype=np.float64)

        def per_flow(get: Callable[[FlowPath, float], float], dtype: type = np.float64) -> np.ndarray:
            return np.array([[get(f, g.dt_s) for f in p.flows] for p, g in zip(paths, grids, strict=True)], dtype=dtype)

        return PathArrays(
            steps_per_rtt=steps_per_rtt,
            dt_s=np.array([grid.dt_s for grid in grids]),
            link_rate_Bps=per_path(lambda p: p.link_rate_Bps),
            link_rate_min_Bps=per_path(lambda p: p.link_rate_min_Bps or p.link_rate_Bps),
            link_rate_max_Bps=per_path(lambda p: p.link_rate_max_Bps or p.link_rate_Bps),
            buffer_bytes=per_path(lambda p: p.buffer_bytes),
            mss_bytes=per_path(lambda p: p.mss_bytes),
            red_min_bytes=per_path(lambda p: p.red.min_bytes if p.red else 0.0),
            red_max_bytes=per_path(lambda p: p.red.max_bytes if p.red else 1.0),
            red_max_probability=per_path(lambda p: p.red.max_probability if p.red else 0.0),
            red_weight=per_path(lambda p: p.red.weight if p.red else 0.0),
            has_red=np.array([p.red is not None for p in paths], np.int64),
            rate_changes=changes,
            n_rate_changes=np.array([len(rates) for rates in on_grid], np.int64),
            rtt_steps=np.array([g.rtt_steps for g in grids], np.int64),
            jitter_steps=np.array([g.jitter_steps for g in grids], np.int64),
            start_step=np.array(active, np.int64)[:, :, 0],
            stop_step=np.array(active, np.int64)[:, :, 1],
            loss_budget=per_flow(lambda f, dt: f.loss_budget),
            workload=per_flow(lambda f, dt: WORKLOADS[f.workload.kind], np.int64),
            workload_a=per_flow(lambda f, dt: _workload_numbers(f.workload)[0]),
            workload_b=per_flow(lambda f, dt: _workload_numbers(f.workload)[1]),
        )

    def for_model(self, model: Model) -> PathArrays:
        """Return the arrays as a model plays them: without jitter where it has none; CCAC needs one D for all flows."""
        if not model.has_jitter:
            return replace(self, jitter_steps=np.zeros_like(self.jitter_steps))
        if model.hoards_tokens and (self.jitter_steps != self.jitter_steps[:, :1]).any():
            raise PathError(f"model {model.name!r} has one jitter bound for all flows; the paths give flows different ones")
        return replace(self)

    def copy(self) -> PathArrays:
        """Return arrays that share nothing with these."""
        return replace(self, **{f.name: getattr(self, f.name).copy() for f in fields(self) if f.name != "steps_per_rtt"})

    def slowest_rate_Bps(self) -> np.ndarray:
        """Return the smallest link rate that each environment can see, (B,)."""
        slowest = np.minimum(self.link_rate_Bps, self.link_rate_min_Bps)
        used = np.arange(self.rate_changes.shape[1]) < self.n_rate_changes[:, None]
        lowest: np.ndarray = np.minimum(slowest, np.where(used, self.rate_changes[:, :, 1], np.inf).min(axis=1))
        return lowest

    def put(self, which: np.ndarray, paths: PathArrays, check: Callable[[PathArrays], None]) -> None:
        """Overwrite the rows ``which`` by those of paths, after a check. Raises InputError for another shape."""
        if len(paths.dt_s) != len(which) or paths.rtt_steps.shape[1] != self.rtt_steps.shape[1]:
            raise InputError(
                f"{len(paths.dt_s)} paths of {paths.rtt_steps.shape[1]} flows for "
                f"{len(which)} environments of {self.rtt_steps.shape[1]}"
            )
        if paths.steps_per_rtt != self.steps_per_rtt:
            raise InputError(f"a batch cannot mix step sizes: steps_per_rtt {self.steps_per_rtt} and {paths.steps_per_rtt}")
        check(paths)
        longest = max(self.rate_changes.shape[1], paths.rate_changes.shape[1])
        for target in (self, paths):
            missing = longest - target.rate_changes.shape[1]
            if missing:
                target.rate_changes = np.pad(target.rate_changes, ((0, 0), (0, missing), (0, 0)))
        for field in fields(self):
            if field.name != "steps_per_rtt":
                getattr(self, field.name)[which] = getattr(paths, field.name)

    def path(self, env: int) -> Path:
        dt = float(self.dt_s[env])
        flows = tuple(
            FlowPath(
                rtt_s=float(self.rtt_steps[env, i] * dt),
                jitter_s=float(self.jitter_steps[env, i] * dt),
                start_s=float(self.start_step[env, i] * dt),
                stop_s=np.inf if self.stop_step[env, i] == NEVER else float(self.stop_step[env, i] * dt),
                loss_budget=float(self.loss_budget[env, i]),
                workload=_workload_of(int(self.workload[env, i]), float(self.workload_a[env, i]), float(self.workload_b[env, i])),
            )
            for i in range(self.rtt_steps.shape[1])
        )
        rate, low, high = (float(a[env]) for a in (self.link_rate_Bps, self.link_rate_min_Bps, self.link_rate_max_Bps))
        red = None
        if self.has_red[env]:
            red = RedParameters(
                min_bytes=float(self.red_min_bytes[env]),
                max_bytes=float(self.red_max_bytes[env]),
                max_probability=float(self.red_max_probability[env]),
                weight=float(self.red_weight[env]),
            )
        changes = self.rate_changes[env, : self.n_rate_changes[env]]
        return Path(
            link_rate_Bps=rate,
            buffer_bytes=float(self.buffer_bytes[env]),
            mss_bytes=float(self.mss_bytes[env]),
            flows=flows,
            red=red,
            rate_changes=tuple(RateChange(time_s=float(step * dt), link_rate_Bps=float(c)) for step, c in changes),
            link_rate_min_Bps=low if low != rate else None,
            link_rate_max_Bps=high if high != rate else None,
        )


def _changes_on_grid(path: Path, dt_s: float) -> dict[int, float]:
    """Return the link rate after each step that ends with a change; of changes within one step the last one holds."""
    return {max(1, _steps_up_to(c.time_s, dt_s)): c.link_rate_Bps for c in path.rate_changes}


def _active_steps(flow: FlowPath, dt_s: float) -> tuple[int, int]:
    """Return the steps after which a flow starts and stops; both are the first one if it stops before that ends."""
    start, stop = _steps_up_to(flow.start_s, dt_s), math.floor(min(flow.stop_s / dt_s + ROUNDING, NEVER))
    return (start, stop) if stop > 0 else (max(1, start), 1)


def _steps_up_to(time_s: float, dt_s: float) -> int:
    """Return the first step that ends at a time or after it."""
    return math.ceil(min(time_s / dt_s - ROUNDING, NEVER))


def _workload_numbers(workload: Workload) -> tuple[float, float]:
    first, second, *_ = *(getattr(workload, name) for name in WORKLOAD_FIELDS[workload.kind]), 0.0, 0.0
    return first, second


def _workload_of(code: int, a: float, b: float) -> Workload:
    workload = next(name for name, number in WORKLOADS.items() if number == code)
    return Workload.model_validate({"kind": workload, **dict(zip(WORKLOAD_FIELDS[workload], (a, b), strict=False))})
