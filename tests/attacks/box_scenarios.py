"""Scenarios whose delay elements attack: one flow, two flows, a video, a page."""

from typing import Any

BOX = {"kind": "adversary", "adversary": "external", "max_ms": 30}
FLOW: dict[str, Any] = {"sender": "external", "rtt_ms": 30, "jitter": BOX}
ONE: dict[str, Any] = {"links": [{"rate_mbps": 12, "buffer_bdp": 2}], "flows": [FLOW], "duration_s": 10}
TWO: dict[str, Any] = {**ONE, "flows": [FLOW, FLOW]}
VIDEO = {"kind": "video", "flow": "asks", "ladder_mbps": [0.5, 1, 2, 4, 8], "chunk_s": 0.5, "buffer_s": 1}
WAVES = [[{"count": 1, "size_bytes": 20_000}], [{"count": 2, "size_bytes": 9_000}]]
PAGE = {"kind": "page", "flows": "asks", "every_s": 0.2, "waves": WAVES}
ASKS = {one["kind"]: {**ONE, "flows": [{"name": "asks", **FLOW}], "applications": [one]} for one in (VIDEO, PAGE)}
RTTS: dict[str, Any] = {"warmup_rtts": 20, "window_rtts": 20}
