"""Networks with parameters: a scenario of the packet engine as YAML in which ``$name`` stands for a parameter.

Besides the keys of a scenario (docs/simulation.md) flows may have ``copies`` with ``start_every_s`` or ``start_every_rtts``, keys
that end in ``_rtts`` (of their own rtt), ``pyramid`` (flows that come one by one and leave in reverse order) and ``web`` (finite
transfers at exponential gaps, Pareto sizes of shape 1.2; [4CP] s.5.1); links ``rate_steps`` with ``rate_times`` of the first rate
and ``red`` with ``min_share`` and ``max_share`` of ``buffer_packets``.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ccenv.base.errors import InputError, did_you_mean
from ccenv.base.random import uniform
from ccenv.engine.packet.spec import MAX_FLOWS

PARETO_SHAPE = 1.2
AGENT = "$agent"  # stands for the sender under test; put in when a cell is played
_NAME = re.compile(r"\$(?:\{(\w+)\}|(\w+))")

Spans = dict[str, list[tuple[float, float]]]


def substitute(template: Any, values: dict[str, Any]) -> Any:
    """Put parameters into a template, in which ``$agent`` may stay. Raises InputError for a name that is no parameter.

    A text that is ``$name`` as a whole becomes the value, ``$name`` within a text its digits.
    """
    if isinstance(template, dict):
        return {key: substitute(item, values) for key, item in template.items()}
    if isinstance(template, (list, tuple)):
        return [substitute(item, values) for item in template]
    if not isinstance(template, str) or template == AGENT:
        return template

    def value_of(match: re.Match[str]) -> Any:
        name = match.group(1) or match.group(2)
        if name not in values:
            raise InputError(f"${name} is no parameter of the scenario.{did_you_mean(name, values)}")
        return values[name]

    if (placeholder := _NAME.fullmatch(template)) is not None:
        return value_of(placeholder)
    return _NAME.sub(lambda match: _digits(value_of(match)), template)


def find_parameters(template: Any) -> set[str]:
    if isinstance(template, dict):
        return set().union(*map(find_parameters, template.values())) if template else set()
    if isinstance(template, (list, tuple)):
        return set().union(*map(find_parameters, template)) if template else set()
    return {a or b for a, b in _NAME.findall(template)} if isinstance(template, str) else set()


def expand(network: dict[str, Any], duration_s: float, key: int) -> tuple[dict[str, Any], Spans]:
    """Turn a template without parameters into a scenario's data and its windows. Raises InputError for a wrong key or value.

    ``key`` is that of the random numbers of ``web``. ``phaseK`` of a pyramid is the window in which K of its flows are there,
    without the first quarter of each stay.
    """
    links = [_link(link) for link in network.get("links", [])]
    flows: list[dict[str, Any]] = []
    windows: Spans = {}
    for index, flow in enumerate(network.get("flows", [])):
        template = dict(flow)
        if "pyramid" in template:
            made, phases = _pyramid(template, duration_s)
            windows.update(phases)
        elif "web" in template:
            made = _web(template, duration_s, key, index)
        else:
            made = _copies(template)
        flows += [_convert_to_seconds(one) for one in made]
    if len(flows) > MAX_FLOWS:
        raise InputError(f"{len(flows)} flows; the packet engine has room for {MAX_FLOWS} at most: lower copies")
    return {**network, "links": links, "flows": flows}, windows


def _link(link: dict[str, Any]) -> dict[str, Any]:
    steps = []
    for step in link.get("rate_steps", []):
        if "rate_times" in step:
            ending = next((name for name in ("rate_mbps", "rate_Bps") if name in link), "rate_mbps")
            times = _number(step["rate_times"], "rate_times")
            step = {"time_s": step["time_s"], ending: times * _number(link.get(ending), ending)}  # noqa: PLW2901
        steps.append(step)
    link = {**link, "rate_steps": steps} if steps else dict(link)
    red = link.get("red")
    if isinstance(red, dict) and {"min_share", "max_share"} & set(red):
        buffer = _number(link.get("buffer_packets"), "buffer_packets")
        ends = {"min_share": "min_packets", "max_share": "max_packets"}
        link["red"] = {ends.get(n, n): _number(v, n) * buffer if n in ends else v for n, v in red.items()}
    return link


def _copies(flow: dict[str, Any]) -> list[dict[str, Any]]:
    copies = flow.pop("copies", 1)
    if isinstance(copies, float) and copies == int(copies):
        copies = int(copies)
    if not isinstance(copies, int) or isinstance(copies, bool) or not 0 <= copies <= MAX_FLOWS:
        raise InputError(f"copies is {copies!r}; it must be a whole number of 0 to {MAX_FLOWS}, the flows of a network")
    every_s = _number(flow.pop("start_every_s", 0.0), "start_every_s")
    every_s += _number(flow.pop("start_every_rtts", 0.0), "start_every_rtts") * _rtt_s(flow)
    if copies == 1 and every_s == 0:
        return [flow]
    begin_s = flow.pop("start_s", 0.0)
    return [{**flow, "start_s": begin_s + i * every_s} for i in range(copies)]


def _pyramid(flow: dict[str, Any], duration_s: float) -> tuple[list[dict[str, Any]], Spans]:
    """The k-th of h flows of a period T is there from k T/(2h) to (2h + 1 - k) T/(2h): [4CP] s.5.1."""
    spec = _keys(flow.pop("pyramid"), "pyramid", ("period_s", "height", "start_s"))
    period_s, height, begin_s = spec["period_s"], int(spec["height"]), spec.get("start_s", 0.0)
    if not period_s > 0 or height < 1:
        raise InputError(f"pyramid: period_s {period_s:g} must be above 0 and height {height} at least 1")
    flows: list[dict[str, Any]] = []
    windows: Spans = {f"phase{k}": [] for k in range(height + 1)}
    step_s = period_s / (2 * height)
    while begin_s + period_s <= duration_s + 1e-9:
        for k in range(1, height + 1):
            flows.append({**flow, "start_s": begin_s + k * step_s, "stop_s": begin_s + (2 * height + 1 - k) * step_s})
        for i in range(2 * height + 1):
            low, high = begin_s + i * step_s, min(begin_s + (i + 1) * step_s, begin_s + period_s)
            if high > low:  # in the i-th step of a period min(i, 2h - i) flows are there, one more on the way down
                present = sum(f["start_s"] <= low + 1e-9 and f["stop_s"] >= high - 1e-9 for f in flows[-height:])
                windows[f"phase{present}"].append((low + 0.25 * (high - low), high))
        begin_s += period_s
    if not flows:
        raise InputError(f"pyramid: a period of {period_s:g} s does not fit a run of {duration_s:g} s")
    return flows, {name: spans for name, spans in windows.items() if spans}


def _web(flow: dict[str, Any], duration_s: float, key: int, index: int) -> list[dict[str, Any]]:
    spec = _keys(flow.pop("web"), "web", ("mean_size_bytes", "mean_gap_s", "start_s"))
    if not spec["mean_gap_s"] > 0 or not spec["mean_size_bytes"] > 0:
        raise InputError("web: mean_gap_s and mean_size_bytes must be above 0")
    smallest = spec["mean_size_bytes"] * (PARETO_SHAPE - 1) / PARETO_SHAPE
    flows: list[dict[str, Any]] = []
    at_s = spec.get("start_s", 0.0)
    for draw in range(1_000_000):
        at_s -= spec["mean_gap_s"] * math.log(1.0 - uniform(float(key), float(index), 1.0, float(draw)))
        if at_s >= duration_s:
            break
        size = smallest / (1.0 - uniform(float(key), float(index), 2.0, float(draw))) ** (1 / PARETO_SHAPE)
        flows.append({**flow, "start_s": at_s, "workload": {"kind": "finite", "size_bytes": math.ceil(size)}})
    return flows


def _convert_to_seconds(flow: dict[str, Any]) -> dict[str, Any]:
    rtt_s = _rtt_s(flow)

    def convert(data: dict[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, item in data.items():
            if isinstance(item, dict):
                out[name] = convert(item)
            elif name.endswith("_rtts"):
                out[name.removesuffix("_rtts") + "_s"] = _number(item, name) * rtt_s
            else:
                out[name] = item
        return out

    return convert(flow)


def _rtt_s(flow: dict[str, Any]) -> float:
    if "rtt_ms" in flow:
        return _number(flow["rtt_ms"], "rtt_ms") / 1e3
    return _number(flow.get("rtt_s"), "rtt_s")


def _keys(data: Any, where: str, allowed: tuple[str, ...]) -> dict[str, float]:
    if not isinstance(data, dict):
        raise InputError(f"{where}: a mapping is needed")
    for name in data:
        if name not in allowed:
            raise InputError(f"{where}: unknown key {name!r}.{did_you_mean(str(name), allowed)}")
    for name in allowed[:2]:
        if name not in data:
            raise InputError(f"{where}: {name} is missing")
    return {name: _number(value, f"{where}.{name}") for name, value in data.items()}


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: a number is needed (got {value!r})")
    return float(value)


def _digits(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
