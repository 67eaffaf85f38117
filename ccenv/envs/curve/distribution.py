"""Sources of episodes: random paths, reproducible from (seed, environment, episode)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field

from ccenv.base.config import StrictModel
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.network.path import DEFAULT_MSS_BYTES, MBPS_IN_BPS, Path, make_path

DRAWN = -1  # of an environment whose paths are drawn, in a batch where others are given
# Indices of the random numbers of an episode.
_KEY, _LINK_RATE, _RTT, _JITTER, _BUFFER, _SEEDED, _C_L, _STAGGER, _DRAWS = range(9)


def _check_range(values: tuple[float, float]) -> tuple[float, float]:
    if not (math.isfinite(values[0]) and math.isfinite(values[1]) and 0 <= values[0] <= values[1]):
        raise ValueError(f"a range needs 0 <= low <= high, both finite, not {list(values)}")
    return values


def _check_positive_range(values: tuple[float, float]) -> tuple[float, float]:
    if not _check_range(values)[0] > 0:
        raise ValueError(f"a range on a logarithmic scale needs low > 0, not {list(values)}")
    return values


Range = Annotated[tuple[float, float], AfterValidator(_check_range)]
LogRange = Annotated[tuple[float, float], AfterValidator(_check_positive_range)]


class PathDistribution(StrictModel):
    """Random paths: bulk flows of equal delays through one drop-tail queue.

    Attributes:
        link_rate_mss_per_rtt: C in segments per Rm, log-uniform.
        rtt_s: Rm in seconds, log-uniform.
        jitter_rtts: D in units of Rm, uniform over the whole steps in the range.
        buffer_bdp: beta in units of C*Rm, log-uniform.
        link_rate_min_share: smallest link rate that the ``strong`` model may choose, as a share of C; C is the largest.
        seeded_share: share of episodes that start at a C_L drawn log-uniformly from [MSS/Rm, C] instead of MSS/Rm.
        mss_bytes: segment size.
    """

    link_rate_mss_per_rtt: LogRange = (5.0, 5000.0)
    rtt_s: LogRange = (0.01, 0.1)
    jitter_rtts: Range = (0.0, 1.0)
    buffer_bdp: LogRange = (0.1, 8.0)
    link_rate_min_share: float = Field(default=1.0, gt=0, le=1)
    seeded_share: float = Field(default=0.5, ge=0, le=1)
    mss_bytes: float = Field(default=DEFAULT_MSS_BYTES, gt=0, allow_inf_nan=False)


@kernel
def draw_numbers(seeds, lanes, episodes, n_draws):  # type: ignore[no-untyped-def]
    """Return numbers (n_draws, n) in [0, 1) that depend only on seed, environment and episode, (n,) each, and their index."""
    out = np.empty((n_draws, len(seeds)))
    for b in range(len(seeds)):
        for draw in range(n_draws):
            out[draw, b] = uniform(seeds[b], lanes[b], episodes[b], draw)
    return out


@dataclass(frozen=True)
class Draws:
    """Initial states of episodes.

    Attributes:
        paths: one row per episode.
        initial_C_L_Bps: (n,) seed of C_L, 0 for a cold start.
        keys: (n,) whole numbers below 2**53 that key the random numbers inside the engine.
        stagger: (n,) in [0, 1): position at which a staggered episode begins.
    """

    paths: PathArrays
    initial_C_L_Bps: np.ndarray
    keys: np.ndarray
    stagger: np.ndarray

    def part(self, rows: slice) -> Draws:
        """Return some of the episodes."""
        if rows == slice(0, len(self.keys)):
            return self
        return Draws(path_rows(self.paths, rows), self.initial_C_L_Bps[rows], self.keys[rows], self.stagger[rows])


class PathSource:
    """Draws the paths of episodes, from a distribution or from a fixed list.

    Args:
        paths: a distribution, one path for all environments, or a list; environment b takes entry b modulo its length.
        steps_per_rtt: K.
        n_flows: number of flows; fixed paths must have it.
    """

    def __init__(self, paths: PathDistribution | Path | Sequence[Path], steps_per_rtt: int, n_flows: int) -> None:
        self.steps_per_rtt = steps_per_rtt
        self.n_flows = n_flows
        self.distribution = paths if isinstance(paths, PathDistribution) else None
        self._fixed: PathArrays | None = None
        if not isinstance(paths, PathDistribution):
            self._fixed = PathArrays.from_paths([paths] if isinstance(paths, Path) else list(paths), steps_per_rtt)
            path_flows = self._fixed.rtt_steps.shape[1]
            if path_flows != n_flows:
                raise InputError(f"paths of {path_flows} flows, but {n_flows} senders")

    @property
    def history_rtts(self) -> float | None:
        """Length of history that the worst path of the distribution needs, in Rm; None for fixed paths."""
        if self.distribution is None:
            return None
        d = self.distribution
        return d.buffer_bdp[1] / d.link_rate_min_share + 2.0 + d.jitter_rtts[1] + 3.0 / self.steps_per_rtt

    def draw(self, seeds: np.ndarray, lanes: np.ndarray, episodes: np.ndarray) -> Draws:
        """Draw episodes as a function of the three keys.

        Args:
            seeds: (n,) whole numbers >= 0.
            lanes: (n,) number of the environment among those of a seed.
            episodes: (n,) number of the episode.
        """
        u = draw_numbers(seeds, lanes, episodes, _DRAWS)
        keys = np.floor(u[_KEY] * 2.0**53)
        if self._fixed is not None:
            return Draws(path_rows(self._fixed, lanes % len(self._fixed.dt_s)), np.zeros(len(seeds)), keys, u[_STAGGER])
        d, K = self.distribution or PathDistribution(), self.steps_per_rtt
        rtt_s = _log_uniform(u[_RTT], d.rtt_s)
        floor_Bps = d.mss_bytes / rtt_s
        link_rate_Bps = _log_uniform(u[_LINK_RATE], d.link_rate_mss_per_rtt) * floor_Bps
        first, last = math.ceil(d.jitter_rtts[0] * K - 1e-9), math.floor(d.jitter_rtts[1] * K + 1e-9)
        if first > last:
            raise InputError(f"jitter_rtts {list(d.jitter_rtts)} holds no whole step of Rm/{K}")
        paths = PathArrays.simple(
            steps_per_rtt=K,
            link_rate_Bps=link_rate_Bps,
            rtt_s=rtt_s,
            jitter_steps=first + np.floor(u[_JITTER] * (last - first + 1)).astype(np.int64),
            buffer_bytes=_log_uniform(u[_BUFFER], d.buffer_bdp) * link_rate_Bps * rtt_s,
            mss_bytes=np.full(len(seeds), d.mss_bytes),
            n_flows=self.n_flows,
        )
        paths.link_rate_min_Bps = d.link_rate_min_share * link_rate_Bps
        seeded = np.exp(u[_C_L] * np.log(np.maximum(link_rate_Bps / floor_Bps, 1.0))) * floor_Bps
        initial = np.where(u[_SEEDED] < d.seeded_share, np.minimum(seeded, link_rate_Bps), 0.0)
        return Draws(paths, initial, keys, u[_STAGGER])


class SomeGivenPaths(PathSource):
    """Random paths for some environments of a batch, and given ones, from cold starts, for the others.

    Raises InputError for given paths whose link rate changes: drawn ones have constant rates.

    Args:
        steps_per_rtt: K.
        given_of_lane: (B,) index into them, or DRAWN.
    """

    def __init__(
        self, distribution: PathDistribution, steps_per_rtt: int, given: Sequence[Path], given_of_lane: np.ndarray
    ) -> None:
        super().__init__(distribution, steps_per_rtt, 1)
        self._given = PathArrays.from_paths(list(given), steps_per_rtt)
        if self._given.n_rate_changes.any():
            raise InputError("paths with rate changes cannot stand beside drawn ones")
        self._given_of_lane = given_of_lane

    def draw(self, seeds: np.ndarray, lanes: np.ndarray, episodes: np.ndarray) -> Draws:
        """Draw episodes as a function of the three keys."""
        drawn = super().draw(seeds, lanes, episodes)
        indices = self._given_of_lane[lanes]
        chosen = indices != DRAWN
        for one in fields(PathArrays):
            if one.name != "steps_per_rtt":
                getattr(drawn.paths, one.name)[chosen] = getattr(self._given, one.name)[indices[chosen]]
        drawn.initial_C_L_Bps[chosen] = 0.0
        return drawn


def _log_uniform(u: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    return np.clip(limits[0] * (limits[1] / limits[0]) ** u, *limits)


def plain_paths(arrays: PathArrays) -> list[Path]:
    """Return drawn paths of one flow as paths, in their order."""
    K = arrays.steps_per_rtt
    return [
        make_path(
            link_rate_mbps=float(arrays.link_rate_Bps[k]) / MBPS_IN_BPS,
            rtt_ms=float(arrays.dt_s[k]) * K * 1e3,
            jitter_ms=float(arrays.dt_s[k]) * int(arrays.jitter_steps[k, 0]) * 1e3,
            buffer_bdp=float(arrays.buffer_bytes[k] / (arrays.link_rate_Bps[k] * arrays.dt_s[k] * K)),
            mss_bytes=float(arrays.mss_bytes[k]),
        )
        for k in range(len(arrays.dt_s))
    ]


def path_rows(arrays: PathArrays, rows: np.ndarray | slice) -> PathArrays:
    """Return some rows of path arrays."""
    names = [f.name for f in fields(PathArrays) if f.name != "steps_per_rtt"]
    return replace(arrays, **{name: getattr(arrays, name)[rows] for name in names})
