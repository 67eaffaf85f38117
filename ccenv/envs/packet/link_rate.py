"""The rate of a link as a move of the network's agent: the ``strong`` model per packet."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ccenv.engine.compiled.calls import unowned
from ccenv.engine.packet.kernel import network_of
from ccenv.engine.packet.log import ordered
from ccenv.engine.packet.sources import set_source, sources_of
from ccenv.envs.packet.core import PacketCore
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.network.trace import Trace
from ccenv.simulation.packet_trace import packet_trace
from ccenv.simulation.ranges import ScenarioDistribution

MOVED = "_moved"


@kernel(nogil=True)
def move_link(arrays, b, share, least_share):  # type: ignore[no-untyped-def]
    """Set the rate of the only link of a network; what is left of a packet in service takes longer or shorter by as much.

    Args:
        arrays: ``ccenv.engine.packet.kernel.PacketArrays`` of a batch.
        b: which network.
        share: 0: the smallest legal rate, 1: the rate that was drawn for the episode.
        least_share: smallest legal rate, as a share of that one.

    Returns:
        The rate, bytes/s.
    """
    a = network_of(unowned(arrays), b)
    run, ln, box = a.run[0], a.links[0], a.boxes[0]
    rate_Bps = box.link_rate_Bps * (least_share + share * (1.0 - least_share))
    now_s = run.now_s
    ln.capacity_bytes += ln.rate_Bps * (now_s - ln.capacity_s)
    ln.capacity_s = now_s
    if ln.busy == 1:
        ln.finish_s = now_s + (ln.finish_s - now_s) * (ln.rate_Bps / rate_Bps)
        sources = sources_of(run.n_links, run.n_flows, run.n_pipes, run.n_boxes, run.n_grids, run.n_monitors)
        set_source(run.tree_at, run.tree_leaves, sources.links, ln.finish_s)
    ln.rate_Bps = rate_Bps
    return rate_Bps


class RateCore(PacketCore):
    """A batch of networks of one link each, whose rate moves between a share of the drawn rate and that rate itself.

    Args:
        num_envs: B.
        least_share: smallest legal rate, as a share of the drawn one.
        **made_with: of ``PacketCore``.
    """

    def __init__(self, num_envs: int, *, least_share: float, **made_with: Any) -> None:
        _check_link(made_with["distribution"], least_share)
        self.least_share = least_share
        rows = made_with["episode_decisions"] + 1 if made_with["record"] else 0
        self._moved = np.zeros((num_envs, rows, 2))  # time and rate of each step's move, of networks that are recorded
        super().__init__(num_envs, **made_with)
        self._made_with["least_share"] = least_share

    def advance(self, actions: np.ndarray | None = None, services: np.ndarray | None = None) -> np.ndarray:
        """Take one step (``PacketCore.advance``); the last column of services is where the link's rate is in its range."""
        if services is None:
            raise InputError("the link's rate is a move of the network's agent: services are needed")
        for b, share in enumerate(services[:, -1].tolist()):
            rate_Bps = move_link(self.batch.arrays, b, share, self.least_share)
            if self._recording:
                self._moved[b, self.elapsed[b]] = self.batch.arrays.run["now_s"][b, 0], rate_Bps
        return super().advance(actions, services[:, :-1])

    def trace(self, env: int = 0) -> Trace:
        """Return what an environment has done in its episode (``PacketCore.trace``), as a trace of the strong model."""
        played = self.played(env)
        moves = [tuple(row) for row in self._moved[env, : self.elapsed[env]].tolist()]
        rows = ordered(self.batch.packet_log(env), float(self.now_s[env]))
        return packet_trace(played, rows, least_rate_share=self.least_share, moves=moves)

    def state(self) -> dict[str, np.ndarray]:
        """Return a copy of everything that decides the future; of recorded networks the moves so far, too."""
        return super().state() | {MOVED: self._moved.copy()}

    def set_state(self, state: Any) -> None:
        """Go back to what ``state`` returned. Raises InputError if it does not fit."""
        if MOVED not in state or state[MOVED].nbytes != self._moved.nbytes:
            raise InputError(f"environment state without a fitting {MOVED!r}")
        super().set_state({name: array for name, array in state.items() if name != MOVED})
        self._moved[...] = np.frombuffer(state[MOVED].tobytes()).reshape(self._moved.shape)


def _check_link(distribution: ScenarioDistribution, least_share: float) -> None:
    """Refuse networks whose link rate is no move: several links, rates that change by themselves, rates that grow too small."""
    largest = distribution.largest
    if len(largest.links) > 1 or largest.links[0].rate_steps:
        raise InputError(f"{distribution.where}: link_rate_min_share needs one link, without rate_steps")
    for scenario, flow in itertools.product(distribution.corners, range(len(largest.flows))):
        slowest_Bps = least_share * scenario.links[0].rate_Bps
        if slowest_Bps * scenario.flows[flow].rtt_s < scenario.mss_bytes:
            raise InputError(
                f"{distribution.where}: link_rate_min_share {least_share:g} leaves flow {flow} less than a segment per RTT "
                f"({slowest_Bps * 8e-6:g} Mbit/s, {scenario.flows[flow].rtt_s * 1e3:g} ms)"
            )
