"""Running applications: each turns its flows' deliveries into the bytes to send next. Also the bitrate rules of video players."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ccenv.simulation.applications.spec import Call, Page, Video

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
    "fixed": fixed,
    "buffer": buffer_based,
    "throughput": throughput_based,
    "bola": bola,
}
"""Rules by name."""


REBUFFER_PENALTY = 4.3  # Mbit/s per second of stall: QoE_lin of Mao et al., "Pensieve", SIGCOMM 2017, s.5.1
ROUND_OFF_BYTES = 0.5
MBPS_IN_BPS = 125e3


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

    def outcome(self, end_s: float) -> tuple[dict[str, float], dict[str, list[list[float]]]]:
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
        """Return the bytes that the flow is to send from now on; as :meth:`PagePlay.step`."""
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

    def outcome(self, end_s: float) -> tuple[dict[str, float], dict[str, list[list[float]]]]:
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


Play = PagePlay | VideoPlay
Outcome = tuple[dict[str, float], dict[str, list[list[float]]]]


def call_outcome(call: Call, time_s: Any, sent_new_bytes: Any, delivered_bytes: Any, start_s: float, end_s: float) -> Outcome:
    """Return the quality of a call, from the curves of its flow.

    Args:
        call: the application.
        time_s: (rows,) of the log.
        sent_new_bytes: (rows,) cumulative, without retransmissions.
        delivered_bytes: (rows,) cumulative new bytes at the receiver.
        start_s: begin of the call.
        end_s: of the run.

    Returns:
        tuple: ``call_bitrate_mbps`` (delivered), ``call_delay_mean_s`` and ``call_delay_p95_s`` of frames (from the frame's time
        to its last byte; a frame that never completes counts until the end), ``call_on_time`` (share within the deadline); and
        time and delay of each frame. Frames without bytes are left out; the last second is, too.
    """
    frames = np.arange(start_s, end_s - 1.0, 1.0 / call.frames_per_s)
    captured = np.interp(frames, time_s, sent_new_bytes)
    fresh = np.diff(captured, prepend=0.0) > ROUND_OFF_BYTES
    frames, captured = frames[fresh], captured[fresh]
    if not len(frames):
        nothing = {"call_bitrate_mbps": 0.0, "call_on_time": 0.0}
        return nothing, {"call_delay_s": []}
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
