"""Applications with a quality of experience as strict data in SI units (page, video, call), and the code that runs them.

A running application turns its flows' deliveries into the bytes to send next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from ccenv.base.config import StrictModel
from ccenv.network.path import MBPS_IN_BPS

Seconds = Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False)]
Bytes = Annotated[float, Field(gt=0, le=1e10, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=1e11, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10_000, strict=True)]
MAX_OBJECTS = 10_000


class Objects(StrictModel):
    """Objects of a page that are requested together.

    Attributes:
        count: number of objects.
        size_bytes: of each.
    """

    count: Count
    size_bytes: Bytes


# Median desktop page of the HTTP Archive, Web Almanac 2024, ch. 16: 2,652 kB in 71 requests, of which HTML 18 kB, CSS 78 kB,
# scripts 613 kB in 24 requests, fonts 131 kB, images 1,054 kB in 18; the rest (758 kB) is media and others. That CSS are 8, fonts
# 4 and the others 16 requests, and which wave they are in, is ccenv's.
MEDIAN_PAGE = (
    (Objects(count=1, size_bytes=18_000),),
    (Objects(count=8, size_bytes=78_000 / 8), Objects(count=24, size_bytes=613_000 / 24)),
    (
        Objects(count=18, size_bytes=1_054_000 / 18),
        Objects(count=4, size_bytes=131_000 / 4),
        Objects(count=16, size_bytes=758_000 / 16),
    ),
)


class Page(StrictModel):
    """Visits to a web page over the connections of a browser.

    Each connection loads one object at a time; its request takes the propagation delay of the return path. A wave of objects is
    requested when the previous one is complete. Connections stay open between visits.

    Attributes:
        kind: ``page``.
        flows: name of the connections' flows.
        waves: the objects; by default the median desktop page.
        every_s: between the starts of two visits; the next follows at once after a longer one.
        setup_rtts: round trips before the first request of a connection: TCP (RFC 9293 s.3.5) and TLS 1.3 (RFC 8446 s.2).
    """

    kind: Literal["page"]
    flows: str
    waves: tuple[tuple[Objects, ...], ...] = Field(default=MEDIAN_PAGE, min_length=1, max_length=64)
    every_s: Seconds = 10.0
    setup_rtts: float = Field(default=2.0, ge=0, le=100, allow_inf_nan=False)

    @model_validator(mode="after")
    def _bounded(self) -> Page:
        if any(not wave for wave in self.waves):
            raise ValueError("a wave of a page has no objects")
        total = sum(objects.count for wave in self.waves for objects in wave)
        if total > MAX_OBJECTS:
            raise ValueError(f"a page of {total} objects; at most {MAX_OBJECTS}")
        return self


# The ladder of Netflix in 2014 in Mbit/s: Huang et al., SIGCOMM 2014, s.4.
LADDER_MBPS = (0.235, 0.375, 0.56, 0.75, 1.05, 1.75, 2.35, 3.0, 4.3, 5.8)


class Video(StrictModel):
    """A video in chunks with adaptive bitrate; one request at a time.

    Attributes:
        kind: ``video``.
        flow: name of the flow that carries it.
        abr: bitrate rule (``RULES``): fixed (the highest), buffer, throughput or bola.
        ladder_Bps: bitrates in bytes/s, ascending (``ladder_mbps`` in Mbit/s).
        chunk_s: length of a chunk.
        buffer_s: a chunk is requested when it fits into this buffer.
    """

    kind: Literal["video"]
    flow: str
    abr: Literal["fixed", "buffer", "throughput", "bola"] = "bola"
    ladder_Bps: tuple[Rate, ...] = Field(default=tuple(MBPS_IN_BPS * mbps for mbps in LADDER_MBPS), min_length=1, max_length=64)
    chunk_s: Seconds = 4.0
    buffer_s: Seconds = 30.0

    @model_validator(mode="after")
    def _consistent(self) -> Video:
        if list(self.ladder_Bps) != sorted(set(self.ladder_Bps)):
            raise ValueError(f"ladder: the bitrates must ascend, not {[rate / MBPS_IN_BPS for rate in self.ladder_Bps]} Mbit/s")
        if self.buffer_s < 2 * self.chunk_s:
            raise ValueError(f"buffer_s {self.buffer_s:g} holds no two chunks of {self.chunk_s:g} s")
        return self


class Call(StrictModel):
    """One direction of a call: an encoder that follows its sender's rate, frame by frame.

    A frame is what the flow sends between two frame times; it is complete when as many new bytes have arrived.

    Attributes:
        kind: ``call``.
        flow: name of the flow that carries it; its sender sets the rate (``gcc``).
        frames_per_s: of the camera.
        deadline_s: largest delay from the capture of a frame to its last byte; 0.15: ITU-T G.114, acceptable to most.
    """

    kind: Literal["call"]
    flow: str
    frames_per_s: float = Field(default=30.0, ge=1, le=240, allow_inf_nan=False)
    deadline_s: Seconds = 0.15


Application = Annotated[Page | Video | Call, Field(discriminator="kind")]
"""One of the applications."""


RESERVOIR_SHARE, UPPER_SHARE = 90 / 240, 216 / 240  # of the buffer: Huang et al., SIGCOMM 2014, s.4.2: 90 s and 216 s of 240 s
PAST_CHUNKS = 5  # Yin et al., SIGCOMM 2015, s.7.1.1
GAMMA_P = 5.0  # Spiteri et al., INFOCOM 2016, s.VI


@dataclass(frozen=True)
class Player:
    """State of a video player when it requests a chunk: buffer and its capacity ``room_s``, throughputs with the oldest first."""

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
    "fixed": fixed, "buffer": buffer_based, "throughput": throughput_based, "bola": bola,
}  # fmt: skip
"""Rules by name."""

Outcome = tuple[dict[str, float], dict[str, list[list[float]]]]
REBUFFER_PENALTY = 4.3  # Mbit/s per second of stall: QoE_lin of Mao et al., "Pensieve", SIGCOMM 2017, s.5.1
ROUND_OFF_BYTES = 0.5


class PagePlay:
    """Visits to a page."""

    def __init__(
        self, page: Page, rtts_s: Sequence[float], requests_s: Sequence[float], start_s: float, segment_bytes: float
    ) -> None:
        self.page, self.requests_s, self.segment_bytes = page, list(requests_s), segment_bytes
        self.waves = [[o.size_bytes for o in wave for _ in range(o.count)] for wave in page.waves]
        self.loads_s: list[tuple[float, float]] = []  # begin and duration of each visit that has ended
        self._goal_bytes = [0.0] * len(rtts_s)  # delivered when the object of a connection is complete
        self._due: list[tuple[float, float] | None] = [None] * len(rtts_s)  # when the server gets a request, and for how much
        self._ready_s = [start_s + page.setup_rtts * rtt_s for rtt_s in rtts_s]
        self._waiting: list[float] = []
        self._wave, self._begin_s, self._next_s = len(self.waves), start_s, start_s

    def step(self, now_s: float, delivered_bytes: Sequence[float]) -> list[float]:
        """Return the bytes that each connection is to send from now on, given the (N,) bytes that have reached the browser."""
        offers = [0.0] * len(self.requests_s)
        idle = [self._due[i] is None and delivered_bytes[i] >= goal - ROUND_OFF_BYTES for i, goal in enumerate(self._goal_bytes)]
        if self._wave < len(self.waves) and not self._waiting and all(idle):
            self._wave += 1
            if self._wave < len(self.waves):
                self._waiting = list(self.waves[self._wave])
            else:
                self.loads_s.append((self._begin_s, now_s - self._begin_s))
                self._next_s = max(now_s, self._begin_s + self.page.every_s)
        if self._wave == len(self.waves) and now_s >= self._next_s:
            self._wave, self._begin_s, self._waiting = 0, max(self._next_s, self._begin_s), list(self.waves[0])
        for i, request_s in enumerate(self.requests_s):
            if idle[i] and self._waiting and now_s >= self._ready_s[i]:
                self._due[i] = (now_s + request_s, self._waiting.pop(0))
                idle[i] = False
            due = self._due[i]
            if due is not None and now_s >= due[0]:
                offers[i] = -(-due[1] // self.segment_bytes) * self.segment_bytes
                self._goal_bytes[i] += offers[i]
                self._due[i] = None
        return offers

    def outcome(self, end_s: float) -> Outcome:
        """Return values over the whole run, and pairs of time and value over time.

        ``page_load_s`` is the mean over the finished visits, ``page_load_max_s`` the longest, ``page_loads`` their number; if
        none has finished, the current visit counts with its time so far.
        """
        times = [took_s for _, took_s in self.loads_s] or [end_s - self._begin_s]
        values = {"page_load_s": sum(times) / len(times), "page_load_max_s": max(times), "page_loads": float(len(self.loads_s))}
        return values, {"page_load_s": [[begin_s, took_s] for begin_s, took_s in self.loads_s]}


class VideoPlay:
    """A player."""

    def __init__(self, video: Video, request_s: float, start_s: float, segment_bytes: float) -> None:
        self.video, self.request_s, self.segment_bytes, self.start_s = video, request_s, segment_bytes, start_s
        self.levels: list[int] = []  # of the chunks asked for
        self.buffer_s = self.played_s = self.stalled_s = 0.0
        self.startup_s: float | None = None
        self.series: list[list[float]] = []  # time, buffer, bitrate of the newest chunk, Mbit/s
        self._throughputs: list[float] = []
        self._goal_bytes = 0.0
        self._asked_s: float | None = None
        self._due: tuple[float, float] | None = None
        self._now_s = start_s

    def step(self, now_s: float, delivered_bytes: Sequence[float]) -> list[float]:
        if now_s < self.start_s:
            return [0.0]
        self._play(now_s - self._now_s)
        self._now_s = now_s
        video, offer = self.video, 0.0
        if self._asked_s is not None and self._due is None and delivered_bytes[0] >= self._goal_bytes - ROUND_OFF_BYTES:
            size_bytes = video.ladder_Bps[self.levels[-1]] * video.chunk_s
            self._throughputs.append(size_bytes / max(now_s - self._asked_s, 1e-9))
            self._asked_s = None
            self.buffer_s += video.chunk_s
            if self.startup_s is None:
                self.startup_s = now_s - self.start_s
        if self._asked_s is None and self.buffer_s + video.chunk_s <= video.buffer_s:
            player = Player(self.buffer_s, video.buffer_s, video.chunk_s, self._throughputs)
            self.levels.append(RULES[video.abr](video.ladder_Bps, player))
            self._asked_s = now_s
            self._due = (now_s + self.request_s, video.ladder_Bps[self.levels[-1]] * video.chunk_s)
        if self._due is not None and now_s >= self._due[0]:
            offer = -(-self._due[1] // self.segment_bytes) * self.segment_bytes
            self._goal_bytes += offer
            self._due = None
        level = video.ladder_Bps[self.levels[-1]] / MBPS_IN_BPS if self.levels else 0.0
        if not self.series or now_s - self.series[-1][0] >= 0.5 - 1e-9:
            self.series.append([now_s, self.buffer_s, level])
        return [offer]

    def _play(self, elapsed_s: float) -> None:
        if self.startup_s is None:
            return
        played_s = min(elapsed_s, self.buffer_s)
        self.buffer_s -= played_s
        self.played_s += played_s
        self.stalled_s += elapsed_s - played_s

    def outcome(self, end_s: float) -> Outcome:
        """Return values over the whole run, and time, buffer (s) and bitrate (Mbit/s) over time.

        ``video_bitrate_mbps`` is the mean of the delivered chunks, ``video_stall_s`` the stall time including the start-up,
        ``video_startup_s`` the start-up alone, ``video_switches`` changes of the bitrate, ``video_qoe`` QoE_lin per chunk:
        bitrate - changes - 4.3 times the stalls after the start (Mao et al., SIGCOMM 2017, s.5.1).
        """
        startup_s = self._now_s - self.start_s if self.startup_s is None else self.startup_s
        arrived = self.levels[: len(self._throughputs)]
        rates = [self.video.ladder_Bps[level] / MBPS_IN_BPS for level in arrived]
        changes = [abs(after - before) for before, after in pairwise(rates)]
        chunks = max(1, len(rates))
        values = {
            "video_bitrate_mbps": sum(rates) / chunks,
            "video_stall_s": startup_s + self.stalled_s,
            "video_startup_s": startup_s,
            "video_switches": float(sum(change > 0 for change in changes)),
            "video_qoe": (sum(rates) - sum(changes) - REBUFFER_PENALTY * self.stalled_s) / chunks,
        }
        return values, {"video": self.series}


def call_outcome(call: Call, time_s: Any, sent_new_bytes: Any, delivered_bytes: Any, start_s: float, end_s: float) -> Outcome:
    """Return the quality of a call, from the cumulative curves of its flow's new bytes, (rows,) each.

    That is ``call_bitrate_mbps`` (delivered), ``call_delay_mean_s`` and ``call_delay_p95_s`` of frames (from the frame's time to
    its last byte; a frame that never completes counts until the end), ``call_on_time`` (share within the deadline); and time and
    delay of each frame. Frames without bytes are left out; the last second is, too.
    """
    frames = np.arange(start_s, end_s - 1.0, 1.0 / call.frames_per_s)
    captured = np.interp(frames, time_s, sent_new_bytes)
    fresh = np.diff(captured, prepend=0.0) > ROUND_OFF_BYTES
    frames, captured = frames[fresh], captured[fresh]
    if not len(frames):
        return {"call_bitrate_mbps": 0.0, "call_on_time": 0.0}, {"call_delay_s": []}
    at = np.searchsorted(delivered_bytes, captured - ROUND_OFF_BYTES)
    done_s = np.where(at < len(time_s), np.asarray(time_s)[np.minimum(at, len(time_s) - 1)], end_s)
    delays = np.maximum(0.0, done_s - frames)
    values = {
        "call_bitrate_mbps": float(np.interp(end_s, time_s, delivered_bytes)) / (end_s - start_s) / MBPS_IN_BPS,
        "call_delay_mean_s": float(delays.mean()),
        "call_delay_p95_s": float(np.quantile(delays, 0.95)),
        "call_on_time": float((delays <= call.deadline_s).mean()),
    }
    return values, {"call_delay_s": [[float(t), float(d)] for t, d in zip(frames, delays, strict=True)]}
