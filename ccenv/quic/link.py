"""The curve engine's link packet by packet, in virtual time: tokens on a grid, a drop-tail queue, and the run as a trace.

Packets that arrive within a step are seen at its end. Moves, tokens and laws are those of the curve engine (ccac), of whole
packets: one is lost if any of it overflows, and delivered when all of it is served.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from ccenv.network.adversary import FIRST_SERVICE, WASTE
from ccenv.network.path import Path, make_grid
from ccenv.network.trace import Trace, TraceHeader
from ccenv.simulation.packet_trace import OF_PACKETS

CRUMB = 1e-6  # bytes: less than this is rounding


class TokenLink:
    """The tokens, losses and service of a path, step by step. Amounts are in bytes since the start.

    Attributes:
        k: steps taken.
        E: entered the queue.
        G: tokens by step; the newest D of them may still be lowered.
        served: what the law and the moves let through.
    """

    def __init__(self, path: Path, steps_per_rtt: int, moves: np.ndarray) -> None:
        """Take moves, (steps, 2 + 2 N) in [0, 1], of a recorded adversary; the last row is repeated."""
        self.path, grid = path, make_grid(path, steps_per_rtt)
        self.dt_s, self.D, self.buffer_bytes = grid.dt_s, max(grid.jitter_steps), path.buffer_bytes
        self.waste, self.service = moves[:, WASTE].tolist(), moves[:, FIRST_SERVICE].tolist()
        self.k, self.E, self.served = 0, 0.0, 0.0
        self.G = [0.0]

    def take(self, arrived_bytes: float) -> float:
        """Take the arrivals of the next step; return by how many bytes they overflow the queue."""
        self.k += 1
        k, G, D, X = self.k, self.G, self.D, self.E + arrived_bytes
        if k > D > 0 and G[k - D] > X:  # wasted at k - D, when nothing waited
            late = G[k - D] - X
            G[k - D] = X
            for j in range(k - D + 1, k):
                G[j] = max(X, G[j] - late)
        now = G[-1] + self.path.link_rate_Bps * self.dt_s
        if now > X:
            waste = self.waste[min(k, len(self.waste)) - 1]
            now = max(X, now - waste * (now - X)) if D > 0 else X
            for j in range(max(k - D, 0), k):  # tokens kept from earlier steps were wasted then
                G[j] = min(G[j], now)
        G.append(now)
        self.E = X
        return X - now - self.buffer_bytes

    def serve(self, lost_bytes: float) -> float:
        """Lose what overflowed, and return how much has been served by the end of the step."""
        k, D = self.k, self.D
        self.E -= lost_bytes
        least = max(self.served, self.G[k - D] if k > D else 0.0)
        most = min(self.G[k], self.E)
        share = self.service[min(k, len(self.service)) - 1]
        self.served = most if share >= 1.0 else max(least, min(most, least + share * (most - least)))
        return self.served


class Queue:
    """The packets of several flows at a token link.

    Attributes:
        rows: per step A, L and S of each flow.
    """

    def __init__(self, link: TokenLink, n_flows: int) -> None:
        self.link, self.rows = link, [([0.0] * n_flows, [0.0] * n_flows, [0.0] * n_flows)]
        self._waiting: deque[tuple[int, float, Any]] = deque()
        self._delivered = 0.0

    def step(self, arrivals: Sequence[Sequence[tuple[float, Any]]]) -> list[list[Any]]:
        """Take the packets (bytes, packet) that each flow sent within the step; return those that are delivered at its end."""
        A, L, S = (list(curve) for curve in self.rows[-1])
        brought = [sum(size for size, _ in packets) for packets in arrivals]
        total = sum(brought)
        overflow = self.link.take(total)
        kept = [list(packets) for packets in arrivals]
        lost, lost_by = 0.0, [0.0] * len(kept)
        while overflow - lost > CRUMB and any(kept):  # the flow that is furthest below its share loses its newest packet
            flow = max((i for i, one in enumerate(kept) if one), key=lambda i: overflow * brought[i] / total - lost_by[i])
            size, _ = kept[flow].pop()
            lost += size
            lost_by[flow] += size
            L[flow] += size
        if len(kept) == 1:
            self._waiting.extend((0, *packet) for packet in kept[0])
        else:
            mixed = [((n + 1) / len(one), i, *packet) for i, one in enumerate(kept) for n, packet in enumerate(one)]
            self._waiting.extend(packet[1:] for packet in sorted(mixed, key=lambda packet: packet[:2]))
        served = self.link.serve(lost)
        out: list[list[Any]] = [[] for _ in arrivals]
        while self._waiting and self._delivered + self._waiting[0][1] <= served + CRUMB:
            flow, size, packet = self._waiting.popleft()
            self._delivered += size
            S[flow] += size
            out[flow].append(packet)
        self.rows.append(([a + b for a, b in zip(A, brought, strict=True)], L, S))
        return out


def calm_moves(n_flows: int = 1) -> np.ndarray:
    """Return the moves of a network that wastes all spare tokens at once and holds nothing: a plain link."""
    return np.array([[1.0] * (2 + n_flows) + [0.0] * n_flows])


def make_trace(queue: Queue, steps_per_rtt: int, senders: Sequence[str], adversary: str) -> Trace:
    """Return a run as a trace of the model ccac."""
    link = queue.link
    A, L, S = (np.array(curve, np.float64) for curve in zip(*queue.rows, strict=True))
    nothing = np.full_like(A, math.inf)
    header = TraceHeader(
        path=link.path,
        model="ccac",
        steps_per_rtt=steps_per_rtt,
        dt_s=link.dt_s,
        senders=tuple(senders),
        adversary=adversary,
        notes=f"{OF_PACKETS} {link.path.mss_bytes:g} bytes, of QUIC stacks in virtual time",
    )
    rate = np.full(len(A), link.path.link_rate_Bps)
    return Trace(header, A, L, np.zeros_like(A), S, np.array(link.G), rate, nothing, nothing)
