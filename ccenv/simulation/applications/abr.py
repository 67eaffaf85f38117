"""How a player chooses the bitrate of the next chunk. Each rule is a plain function of what the player knows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

RESERVOIR_SHARE, UPPER_SHARE = 90 / 240, 216 / 240  # of the buffer: Huang et al., SIGCOMM 2014, s.4.2: 90 s and 216 s of 240 s
PAST_CHUNKS = 5  # Yin et al., SIGCOMM 2015, s.7.1.1
GAMMA_P = 5.0  # Spiteri et al., INFOCOM 2016, s.VI


@dataclass(frozen=True)
class Player:
    """What a player knows when it asks for a chunk.

    Attributes:
        buffer_s: video in its buffer.
        room_s: most that the buffer holds.
        chunk_s: length of a chunk.
        throughputs_Bps: of the chunks so far, oldest first.
    """

    buffer_s: float
    room_s: float
    chunk_s: float
    throughputs_Bps: Sequence[float]


def fixed(ladder_Bps: Sequence[float], player: Player) -> int:
    """Choose the highest bitrate."""
    del player
    return len(ladder_Bps) - 1


def buffer_based(ladder_Bps: Sequence[float], player: Player) -> int:
    """Choose by the buffer alone: the lowest within the reservoir, the highest beyond the upper end, linear between.

    Reference: BBA-0, Huang et al., "A Buffer-Based Approach to Rate Adaptation", SIGCOMM 2014, s.4. Deviation: without the
    hysteresis between neighbouring rates; reservoir and cushion keep their shares of the buffer.
    """
    low_s, high_s = RESERVOIR_SHARE * player.room_s, UPPER_SHARE * player.room_s
    share = min(1.0, max(0.0, (player.buffer_s - low_s) / (high_s - low_s)))
    wanted_Bps = ladder_Bps[0] + share * (ladder_Bps[-1] - ladder_Bps[0])
    return max(i for i, rate_Bps in enumerate(ladder_Bps) if rate_Bps <= wanted_Bps * (1 + 1e-12))


def throughput_based(ladder_Bps: Sequence[float], player: Player) -> int:
    """Choose the highest bitrate below the harmonic mean of the throughput of the last five chunks; the lowest at first.

    Reference: harmonic mean: Jiang et al., FESTIVE, CoNEXT 2012, s.4; five chunks: Yin et al., SIGCOMM 2015, s.7.1.1.
    """
    past = player.throughputs_Bps[-PAST_CHUNKS:]
    if not past:
        return 0
    mean_Bps = len(past) / sum(1 / max(rate_Bps, 1e-9) for rate_Bps in past)
    return max((i for i, rate_Bps in enumerate(ladder_Bps) if rate_Bps <= mean_Bps), default=0)


def bola(ladder_Bps: Sequence[float], player: Player) -> int:
    """Choose what maximises (V (v + gamma p) - Q) / S, with utility v = ln(S / S_lowest) and Q the buffer in chunks.

    Reference: BOLA-BASIC, Spiteri, Urgaonkar, Sitaraman, "BOLA: Near-Optimal Bitrate Adaptation for Online Videos", INFOCOM
    2016, s.IV, with V = (Q_max - 1) / (v_highest + gamma p), s.VI, where Q_max is the buffer.
    """
    utilities = [math.log(rate_Bps / ladder_Bps[0]) for rate_Bps in ladder_Bps]
    v = (player.room_s / player.chunk_s - 1) / (utilities[-1] + GAMMA_P)
    filled = player.buffer_s / player.chunk_s
    values = [(v * (utility + GAMMA_P) - filled) / rate for utility, rate in zip(utilities, ladder_Bps, strict=True)]
    return max(range(len(values)), key=lambda i: (values[i], i))


RULES: dict[str, Callable[[Sequence[float], Player], int]] = {
    "fixed": fixed,
    "buffer": buffer_based,
    "throughput": throughput_based,
    "bola": bola,
}
"""Rules by the name that scenarios give."""
