"""Slots for transfers that come and go: which flows of a run they are, and what the kernel reads of their arrivals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ccenv.agents.sender import ClassicSender, Sender
from ccenv.base.errors import InputError
from ccenv.engine.packet.arrivals import ARRIVAL_WIDTH, COME_S, DONE_S, POOL, SEGMENTS

if TYPE_CHECKING:
    from ccenv.engine.packet.spec import NetworkSpec

MAX_BYTES = 2 << 30  # of the rings of a run with transfers that come and go


@dataclass(frozen=True, eq=False)
class Slots:
    """Transfers of a run and their slots.

    Attributes:
        network: as it runs: every flow with arrivals stands as often as it has slots.
        owners: (flows of the run,) the flow of the given network that each belongs to.
        pooled: (flows of the run,) its pool, -1 for others.
        arrivals: (n, ARRIVAL_WIDTH) in the order of time; the kernel writes into it when each is done; infinite: no slot.
        transfer_bytes: (n,) their sizes.
        pools: begin of each pool in it, then the pools: how many slots are free, and which.
    """

    network: NetworkSpec
    owners: np.ndarray
    pooled: np.ndarray
    arrivals: np.ndarray
    transfer_bytes: np.ndarray
    pools: np.ndarray

    def _rows(self, flow: int) -> np.ndarray:
        pools = sorted({int(pool) for pool in self.pooled[self.owners == flow] if pool >= 0})
        mine: np.ndarray = np.isin(self.arrivals[:, POOL], pools)
        return mine

    def transfers(self, flow: int) -> np.ndarray:
        """Return the transfers of a flow of the given network: (n, 3) bytes, begin and end in seconds; NaN: not done."""
        mine = self._rows(flow)
        ends_s = self.arrivals[mine, DONE_S]
        return np.column_stack(
            [self.transfer_bytes[mine], self.arrivals[mine, COME_S], np.where(np.isinf(ends_s), np.nan, ends_s)]
        )

    def turned_away(self, flow: int) -> int:
        """Return how many transfers of a flow have found no free slot."""
        return int(np.isinf(self.arrivals[self._rows(flow), DONE_S]).sum())

    def summed(self, log: np.ndarray) -> np.ndarray:
        """Return a log of all flows of the run, (rows, flows), as one of the given flows: slots added, of RTTs the largest."""
        first = [int(np.argmax(self.owners == flow)) for flow in range(int(self.owners.max()) + 1)]
        out = log[:, first].copy()
        for flow in sorted({int(owner) for owner in self.owners[self.pooled >= 0]}):
            slot_logs = log[:, self.owners == flow]
            for name in log.dtype.names or ():
                out[name][:, flow] = slot_logs[name].max(axis=1) if name == "rtt_s" else _finite(slot_logs[name]).sum(axis=1)
        return out


def _finite(values: np.ndarray) -> np.ndarray:
    """Return values with 0 for those of slots that have no rate or window."""
    finite: np.ndarray = np.where(np.isfinite(values), values, 0.0)
    return finite


def laid_out(network: NetworkSpec, seed: int) -> Slots:
    """Return the slots of a network with arrivals.

    Args:
        network: at least one of its flows has arrivals.
        seed: keys times and sizes.
    """
    flows, owners, pooled, parts, sizes = [], [], [], [], []
    begins: list[int] = []
    pools: list[float] = []
    n_pools = sum(flow.arrivals is not None for flow in network.flows)
    for index, flow in enumerate(network.flows):
        arrivals = flow.arrivals
        if arrivals is None:
            flows.append(flow)
            owners.append(index)
            pooled.append(-1)
            continue
        slowest = min(network.links[link].rate_Bps for link in network.route_of(index))
        times_s, size_bytes = arrivals.drawn(seed, index, flow.start_s, slowest)
        rows = np.full((len(times_s), ARRIVAL_WIDTH), np.nan)
        rows[:, COME_S], rows[:, POOL] = times_s, len(begins)
        rows[:, SEGMENTS] = np.maximum(1.0, np.ceil(size_bytes / network.mss_of(index)))
        parts.append(rows)
        sizes.append(size_bytes)
        first = len(flows)
        begins.append(n_pools + len(pools))
        pools += [float(arrivals.slots), *map(float, reversed(range(first, first + arrivals.slots)))]
        flows += [flow.model_copy(update={"arrivals": None})] * arrivals.slots
        owners += [index] * arrivals.slots
        pooled += [len(begins) - 1] * arrivals.slots
    table, transfer_bytes = np.concatenate(parts), np.concatenate(sizes)
    order = np.argsort(table[:, COME_S], kind="stable")
    return Slots(
        network.model_copy(update={"flows": tuple(flows)}),
        np.array(owners),
        np.array(pooled),
        np.ascontiguousarray(table[order]),
        transfer_bytes[order],
        np.array([*map(float, begins), *pools]),
    )


def check_slots(slots: Slots, senders: Sequence[Sender], words: int) -> None:
    """Refuse what transfers that come and go cannot be.

    Args:
        slots: of the run.
        senders: of the flows of the given network.
        words: of memory that the run needs.

    Raises:
        InputError: for a sender that is no plain CCA, or a run beyond memory.
    """
    for flow in sorted({int(owner) for owner in slots.owners[slots.pooled >= 0]}):
        if not isinstance(senders[flow], ClassicSender):
            raise InputError(f"flow {flow}: transfers that come and go need a classic CCA, not {senders[flow].name!r}")
    if 8 * words > MAX_BYTES:
        count = len(slots.owners)
        raise InputError(
            f"{count} flows at once need {8 * words / 2**30:.3g} GiB; at most {MAX_BYTES / 2**30:g}: take fewer slots, "
            f"{math.floor(count * MAX_BYTES / (8 * words))} at most, or smaller buffers"
        )
