"""Applications as data: strict, SI units."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ccenv.base.config import StrictModel

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
        abr: bitrate rule (``ccenv.simulation.applications.play``): fixed (the highest), buffer, throughput or bola.
        ladder_Bps: bitrates in bytes/s, ascending (``ladder_mbps`` in Mbit/s).
        chunk_s: length of a chunk.
        buffer_s: a chunk is requested when it fits into this buffer.
    """

    kind: Literal["video"]
    flow: str
    abr: Literal["fixed", "buffer", "throughput", "bola"] = "bola"
    ladder_Bps: tuple[Rate, ...] = Field(default=tuple(125e3 * mbps for mbps in LADDER_MBPS), min_length=1, max_length=64)
    chunk_s: Seconds = 4.0
    buffer_s: Seconds = 30.0

    @model_validator(mode="after")
    def _consistent(self) -> Video:
        if list(self.ladder_Bps) != sorted(set(self.ladder_Bps)):
            raise ValueError(f"ladder: the bitrates must ascend, not {[rate / 125e3 for rate in self.ladder_Bps]} Mbit/s")
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
