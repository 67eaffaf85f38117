"""The viewer of a worst case: panels over one time axis, and one sentence about what happened."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.leaderboard.site.drawing import line, ticks

_LEFT, _WIDTH = 56.0, 560.0
_MOVES = {"held_ms": "held", "wasted_mbps": "wasted"}


def trace_view(view: dict[str, Any]) -> dict[str, Any]:
    """Place a trace's view in a picture 640 wide: rates, queue and RTT, the network's moves; all share the time axis.

    A ``view`` (``ccenv.leaderboard.evaluate.trace_view``) of an older version has neither RTT nor moves.
    """
    times = np.array(view["time_s"])
    end = float(times[-1])
    xs = _LEFT + _WIDTH * times / end
    sent = np.sum([flow["sent_mbps"] for flow in view["flows"]], axis=0)
    flows = view["flows"]
    rates = [("link", "link rate", view["link_mbps"]), ("sent", "sent by all flows", sent)]
    rates += [(f"flow{i % 4}", f"delivered, {flow['sender']}", flow["delivered_mbps"]) for i, flow in enumerate(flows)]
    top = max(float(np.max(view["link_mbps"])) * 1.6, 1e-9)
    panels = [_panel("Mbit/s", xs, rates, 12, 170, top)]
    waits = [("queue", "queue", view["queue_ms"])]
    waits += [(f"rtt flow{i % 4}", f"RTT, {flow['sender']}", flow["rtt_ms"]) for i, flow in enumerate(flows) if "rtt_ms" in flow]
    panels.append(_panel("ms", xs, waits, 212, 90))
    series = {"time_s": view["time_s"], "link": view["link_mbps"], "sent": [round(float(v), 3) for v in sent]}
    series |= {"delivered": [f["delivered_mbps"] for f in flows], "queue_ms": view["queue_ms"], "lost": view["lost_mbps"]}
    complete = all(name in view for name in _MOVES)
    if complete:
        moves = [("held", "held back by the network (ms)", view["held_ms"])]
        moves += [("wasted", "capacity not used for bytes (Mbit/s)", view["wasted_mbps"])]
        panels.append(_panel("moves", xs, moves, 332, 70))
        series |= {"rtt_ms": [f["rtt_ms"] for f in flows]} | {name: view[key] for key, name in _MOVES.items()}
    bottom = 402 if complete else 302
    return {
        "panels": panels,
        "bottom": bottom,
        "height": bottom + 38,
        "complete": complete,
        "time_ticks": [(round(_LEFT + _WIDTH * v / end, 1), f"{v:g}") for v in ticks(end, 8)],
        "series": series,
        "why": explain(view),
    }


def _panel(
    unit: str, xs: np.ndarray, lines: list[tuple[str, str, Any]], top: float, height: float, largest: float | None = None
) -> dict[str, Any]:
    """Place lines in one panel; ``largest`` is the end of its axis, by default that of the lines and at least 1."""
    deepest = largest or max(1.0, *(float(np.max(values)) for _, _, values in lines))

    def y(values: Any) -> np.ndarray:
        return np.asarray(top + height * (1 - np.minimum(np.array(values), deepest) / deepest))

    return {
        "unit": unit,
        "middle": top + height / 2,
        "ticks": [(round(float(y(v)), 1), f"{v:g}") for v in ticks(deepest, 4 if height > 100 else 3)],
        "lines": [{"kind": css_class, "label": label, "path": line(xs, y(values))} for css_class, label, values in lines],
    }


def explain(view: dict[str, Any]) -> str:
    """Return one sentence about the second half of a run: the use of the link's capacity, and the network's moves.

    It states measurements only and names no cause inside the sender.
    """
    half = len(view["time_s"]) // 2
    link = float(np.mean(view["link_mbps"][half:]))
    sent = float(np.mean(np.sum([f["sent_mbps"] for f in view["flows"]], axis=0)[half:]))
    delivered = float(np.mean(np.sum([f["delivered_mbps"] for f in view["flows"]], axis=0)[half:]))
    lost = float(np.mean(view["lost_mbps"][half:]))
    idle = float(np.mean(np.array(view["queue_ms"][half:]) < 1e-3 * max(1e-9, float(np.max(view["queue_ms"])))))
    rates = _describe_rates(link, sent, delivered, lost, idle, len(view["flows"]))
    return f"In the second half of the run {rates}{_describe_moves(view, half)}."


def _describe_rates(link: float, sent: float, delivered: float, lost: float, idle: float, n_flows: int) -> str:
    used = f"{_percent(delivered / link)} of the link is used"
    sends, offers = ("the sender sends", "the sender offers") if n_flows == 1 else ("the flows send", "the flows offer")
    if lost > 0.2 * max(sent, 1e-9):
        lost_share = min(1.0, lost / max(sent, 1e-9))
        return f"{used}: {sends} {_percent(sent / link)} of the link rate, and {_percent(lost_share)} of it is lost"
    if sent < 0.9 * link:
        empty = f", although the queue is empty {_percent(idle)} of the time" if idle > 0.2 else ""
        return f"{used}: {sends} only {_percent(sent / link)} of the link rate{empty}"
    return f"{used}: {offers} {_percent(sent / link)} of the link rate"


def _describe_moves(view: dict[str, Any], half: int) -> str:
    """Describe the network's moves, if the view holds them."""
    if not all(name in view for name in _MOVES):
        return ""
    rtts_ms = np.concatenate([flow["rtt_ms"][half:] for flow in view["flows"]])
    held_ms = float(np.max(view["held_ms"][half:]))
    if held_ms <= 0.01 * view["rm_ms"]:
        return ""
    path = f"RTTs are {rtts_ms.min():.3g} to {rtts_ms.max():.3g} ms on a path of {view['rm_ms']:.3g} ms"
    return f"; the network holds up to {held_ms:.3g} ms of bytes back ({path})"


def _percent(share: float) -> str:
    """Return a share with two digits, and no more than a hundredth of a per cent."""
    return f"{share * 100:.2g} %" if 5e-5 <= share < 0.095 else f"{share * 100:.0f} %"
