"""Arrival processes and size distributions, with sources. Strict data, SI units."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from ccenv.base.config import StrictModel
from ccenv.base.random import uniform

MAX_ARRIVALS = 1_000_000
MAX_SLOTS = 4096
ARRIVAL_COUNTER, SIZE_COUNTER = 2.0**46, 2.0**47  # keys of random numbers
PARETO_SHAPE = 1.2  # [4CP] s.5.1
LARGEST_PARETO = 1000.0  # times the mean

# Bytes -> share of flows that are not larger; between two points the share grows evenly.
CURVES: dict[str, tuple[tuple[float, float], ...]] = {
    # M. Alizadeh et al.: Data center TCP (DCTCP), SIGCOMM 2010, figure 4, read off as in Y. Li et al.: HPCC, SIGCOMM 2019.
    "web_search": (
        (0, 0), (1e4, 0.15), (2e4, 0.20), (3e4, 0.30), (5e4, 0.40), (8e4, 0.53), (2e5, 0.60), (1e6, 0.70), (2e6, 0.80),
        (5e6, 0.90), (1e7, 0.97), (3e7, 1),
    ),
    # A. Roy et al.: Inside the social network's (datacenter) network, SIGCOMM 2015, figure 6 (Hadoop), read off as in HPCC.
    "hadoop": (
        (0, 0), (100, 0.01), (200, 0.02), (300, 0.05), (350, 0.15), (400, 0.20), (500, 0.30), (600, 0.40), (700, 0.50),
        (1e3, 0.60), (2e3, 0.67), (7e3, 0.70), (3e4, 0.72), (5e4, 0.82), (8e4, 0.87), (1.2e5, 0.90), (3e5, 0.95),
        (1e6, 0.975), (2e6, 0.99), (1e7, 1),
    ),
}  # fmt: skip

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Arrivals(StrictModel):
    """Transfers that come one after the other, each as a new flow of its own.

    Attributes:
        kind: poisson (exponential gaps), or incast (``fan_in`` at once, every ``every_s``).
        flows: how many come in all.
        slots: how many may be there at once.
        load: for poisson: share of the rate of the flow's slowest link that they ask for on average.
        per_s: for poisson, instead of load: flows per second.
        fan_in, every_s: for incast.
        sizes: web_search, hadoop, pareto (shape 1.2, at most 1000 times the mean: [4CP] s.5.1), or fixed.
        size_bytes: of fixed, mean of pareto.
    """

    kind: Literal["poisson", "incast"] = "poisson"
    flows: int = Field(ge=1, le=MAX_ARRIVALS)
    slots: int = Field(default=256, ge=1, le=MAX_SLOTS)
    load: float | None = Field(default=None, gt=0, le=10)
    per_s: Rate | None = None
    fan_in: int = Field(default=0, ge=0, le=MAX_SLOTS)
    every_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    sizes: Literal["web_search", "hadoop", "pareto", "fixed"] = "fixed"
    size_bytes: float = Field(default=0.0, ge=0, le=1e12)

    @model_validator(mode="after")
    def _consistent(self) -> Arrivals:
        poisson = self.kind == "poisson"
        if poisson != ((self.load is None) != (self.per_s is None)):
            raise ValueError("arrivals 'poisson' need one of load and per_s, 'incast' none of them")
        if poisson == bool(self.fan_in or self.every_s) or (not poisson and not (self.fan_in and self.every_s)):
            raise ValueError("arrivals 'incast' need fan_in and every_s, and only they")
        if (self.sizes in CURVES) == bool(self.size_bytes):
            raise ValueError(f"size_bytes is {self.size_bytes:g}; 'pareto' and 'fixed' need it above 0, the others have none")
        return self

    @property
    def mean_bytes(self) -> float:
        """Mean size of a transfer."""
        if self.sizes not in CURVES:
            return self.size_bytes
        points = CURVES[self.sizes]
        return sum((q - p) * (a + b) / 2.0 for (a, p), (b, q) in pairwise(points))

    def drawn(self, key: int, flow: int, start_s: float, link_Bps: float) -> tuple[np.ndarray, np.ndarray]:
        """Return when transfers come and how large they are.

        Args:
            key: of the random numbers: the seed of the run.
            flow: place of the flow in the scenario.
            start_s: begin of the process.
            link_Bps: rate that ``load`` is a share of.

        Returns:
            (flows,) seconds, ascending, and (flows,) bytes.
        """
        seed, own, n = float(key), float(flow), self.flows
        shares = np.array([uniform(seed, 0.0, own, SIZE_COUNTER + k) for k in range(n)])
        if self.kind == "incast":
            times_s = start_s + self.every_s * (np.arange(n) // self.fan_in)
        else:
            per_s = self.per_s if self.per_s is not None else (self.load or 0.0) * link_Bps / self.mean_bytes
            gaps = np.array([uniform(seed, 0.0, own, ARRIVAL_COUNTER + k) for k in range(n)])
            times_s = start_s + np.cumsum(-np.log(1.0 - gaps) / per_s)
        return times_s, self._sizes(shares)

    def _sizes(self, shares: np.ndarray) -> np.ndarray:
        if self.sizes == "fixed":
            return np.full(len(shares), self.size_bytes)
        if self.sizes == "pareto":
            smallest = self.size_bytes * (PARETO_SHAPE - 1.0) / PARETO_SHAPE
            return np.minimum(smallest * (1.0 - shares) ** (-1.0 / PARETO_SHAPE), LARGEST_PARETO * self.size_bytes)
        points = np.array(CURVES[self.sizes])
        found: np.ndarray = np.interp(shares, points[:, 1], points[:, 0])
        return found
