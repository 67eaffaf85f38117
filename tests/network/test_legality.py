"""The checker of traces: every law on its own, against the engine's traces, and after a change of origin.

The 1,000 traces of each model: ``pytest -m slow tests/network/test_legality.py`` (one to two minutes).
"""

import math
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path as FilePath

import numpy as np
import pytest
from broken_traces import BREAKS, NoPlaceError, breaks_for
from hypothesis import example, given, settings
from hypothesis import strategies as st
from legal_traces import MODEL_NAMES, legal_trace, random_path
from slow_legality import is_legal

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.sender import ExternalSender
from ccenv.base.errors import InputError
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.laws import LAWS, check_trace
from ccenv.network.path import FlowPath, Path, Workload, make_path
from ccenv.network.path import Path as NetworkPath
from ccenv.network.trace import PER_FLOW, PER_PATH, Trace

SETTINGS = settings(max_examples=40, deadline=None, derandomize=True)


def varied(model: str, seed: int, **keywords: object) -> Trace:
    options: dict = {
        "n_flows": 1 + seed % 3, "steps_per_rtt": (1, 2, 4, 8)[seed % 4], "buffer_bdp": (0.3, 1.0, math.inf)[seed % 5 % 3],
        "red": seed % 5 == 4, "loss_budget": 0.05 * (seed % 2),
    }  # fmt: skip
    return legal_trace(model, seed, **(options | keywords))


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_accepts_legal_traces(model: str) -> None:
    for seed in range(40):
        violations = check_trace(varied(model, seed))
        assert not violations, f"seed {seed}: {violations[0].message}"


def test_generator_reaches_what_the_laws_are_about() -> None:
    """Acceptance means little for traces without loss, waste, hoarding, jitter."""
    traces = {model: [varied(model, seed) for seed in range(20)] for model in MODEL_NAMES}
    for model, some in traces.items():
        assert any(t.L[-1].sum() > t.L_free[-1].sum() > 0 for t in some) and any(t.W[-1] > 0 for t in some)
        assert any(np.diff(t.link_rate_Bps).any() for t in some)
        hoarded = [float((t.G - t.E.sum(axis=1)).max()) > 1 for t in some]
        assert any(hoarded) == (model == "ccac")
        held = [float((np.minimum(t.G, t.E.sum(axis=1)) - t.S.sum(axis=1)).max()) > 1 for t in some]
        assert any(held) == (model != "ideal")


def test_every_law_has_a_break_and_stands_in_the_documentation() -> None:
    assert {law.name for law in LAWS} == set(BREAKS)
    page = (FilePath(__file__).parents[2] / "docs" / "networks.md").read_text(encoding="utf-8")
    for law in LAWS:
        assert f"| `{law.name}` | {law.meaning} | {law.formula} | {law.source} |" in page


def named_breaks(trace: Trace, wanted: str | None = None) -> Iterator[str]:
    """Break each law, or the wanted one, in a trace that has a place for it; yield it after the checker has named it."""
    for law, break_it in breaks_for(trace).items():
        if wanted in (law, None):
            try:
                broken = break_it(trace)
            except NoPlaceError:
                continue
            found = check_trace(broken)
            assert found, f"{law} not found"
            assert found[0].law == law, f"{law} taken for {found[0].message}"
            yield law


@cache
def with_places() -> list[Trace]:
    """Return traces of two or three flows, with and without RED, with small buffers."""
    seeds = (14, 23, 34, 51, 59)
    return [varied(model, seed, n_flows=2 + seed % 2, buffer_bdp=0.3) for model in MODEL_NAMES for seed in seeds]


@pytest.mark.parametrize("law", list(BREAKS))
def test_names_the_broken_law(law: str) -> None:
    assert sum(len(list(named_breaks(trace, law))) for trace in with_places()) >= 2


def test_single_flow_breaks_are_named_too() -> None:
    assert all(len(list(named_breaks(varied(model, 8, n_flows=1)))) >= 18 for model in MODEL_NAMES)


@given(
    model=st.sampled_from(MODEL_NAMES), seed=st.integers(0, 10_000),
    curve=st.sampled_from(["A", "L", "L_free", "S", "G", "link_rate_Bps"]), row=st.integers(0, 24), flow=st.integers(0, 1),
    size=st.floats(-1.0, 4.5), up=st.booleans(), onwards=st.booleans(),
)  # fmt: skip
@settings(max_examples=200, deadline=None, derandomize=True)
def test_agrees_with_the_exact_reference(
    *, model: str, seed: int, curve: str, row: int, flow: int, size: float, up: bool, onwards: bool
) -> None:
    trace = varied(model, seed, n_steps=24)
    changed = getattr(trace, curve).copy()
    rows = slice(row, None) if onwards else slice(row, row + 1)
    where = (rows,) if changed.ndim == 1 else (rows, flow % trace.n_flows)
    changed[where] += (1 if up else -1) * 10.0**size
    if curve == "link_rate_Bps":
        changed[0] = changed[1]
        changed = np.maximum(changed, 1.0)
    mutant = replace(trace, **{curve: changed})
    assert is_legal(trace) and bool(check_trace(mutant)) != is_legal(mutant)


@given(
    seed=st.integers(0, 10_000), curve=st.sampled_from(["A", "L", "S", "G"]), row=st.integers(1, 39), size=st.floats(-1.0, 4.5),
    up=st.booleans(),
)  # fmt: skip
@example(seed=1, curve="S", row=5, size=-1.0, up=True)
@SETTINGS
def test_nothing_is_free_on_the_ideal_link(seed: int, curve: str, row: int, size: float, up: bool) -> None:
    """On an ideal link everything follows from what was sent, and the rates say what was sent: any change breaks a law."""
    trace = legal_trace("ideal", seed, n_flows=1 + seed % 2, buffer_bdp=0.5, n_steps=40)
    changed = getattr(trace, curve).copy()
    changed[row] += (1 if up else -1) * 10.0**size
    assert check_trace(replace(trace, **{curve: changed}))


@given(model=st.sampled_from(MODEL_NAMES), seed=st.integers(0, 10_000), scale=st.floats(-6, 9))
@SETTINGS
def test_roundoff_and_units_do_not_matter(model: str, seed: int, scale: float) -> None:
    """The same run in other byte units is as legal, and float noise is forgiven."""
    trace = varied(model, seed, n_steps=40)
    factor = 10.0**scale
    noise = 1 + 1e-14 * np.random.default_rng(seed).standard_normal(trace.A.shape)
    data = trace.header.path.model_dump()
    for key in ("link_rate_Bps", "buffer_bytes", "link_rate_min_Bps", "link_rate_max_Bps"):
        data[key] = None if data[key] is None else data[key] * factor
    for change in data["rate_changes"]:
        change["link_rate_Bps"] *= factor
    if data["red"]:
        data["red"] |= {key: data["red"][key] * factor for key in ("min_bytes", "max_bytes")}
    header = trace.header.model_copy(update={"path": NetworkPath.model_validate(data)})
    names = ("A", "L", "L_free", "S", "rate_Bps")
    scaled = {name: getattr(trace, name) * noise * factor for name in names}
    scaled |= {name: getattr(trace, name) * factor for name in ("G", "link_rate_Bps")}
    assert not check_trace(replace(trace, header=header, **scaled))


@pytest.mark.parametrize("model", MODEL_NAMES)
@pytest.mark.parametrize("n_flows", [1, 2])
def test_free_history_accepts_the_end_of_a_legal_run(model: str, n_flows: int) -> None:
    for seed in range(12):
        whole = varied(model, seed, n_flows=n_flows)
        path = whole.header.path
        if path.rate_changes:
            continue
        path = path.model_copy(update={"flows": tuple(f.model_copy(update={"start_s": 0.0}) for f in path.flows)})
        header = whole.header.model_copy(update={"history": "free", "path": path})
        part = replace(whole, header=header, beliefs={}, **{name: getattr(whole, name)[37:] for name in PER_FLOW + PER_PATH})
        assert not check_trace(part), check_trace(part)[0].message
        empty = replace(part, header=part.header.model_copy(update={"history": "empty"}))
        assert check_trace(empty)[0].law == "initial_state"
        broken = replace(part, G=part.G - np.linspace(0, 1e4, len(part.G)))
        assert check_trace(broken)


def test_free_history_knows_nothing_about_the_order_of_old_bytes_but_their_sum() -> None:
    """Two flows with 1000 bytes each queued at row 0: either may be served first, but not 1500 bytes of one."""
    base = legal_trace("ccac", 0, n_flows=2, n_steps=2, steps_per_rtt=1, buffer_bdp=math.inf)
    flows = [{"rtt_s": 0.04, "jitter_s": 0.04}] * 2
    path = NetworkPath.from_dict({"link_rate_Bps": 25_000.0, "flows": flows})  # 1000 bytes a step
    header = base.header.model_copy(update={"history": "free", "path": path})
    still = np.tile([1000.0, 1000.0], (3, 1))
    quiet = {"A": still, "L": 0 * still, "L_free": 0 * still, "rate_Bps": 0 * still, "link_rate_Bps": np.full(3, 25_000.0)}
    tokens = np.array([0.0, 1000.0, 2000.0])

    def verdict(served: list[list[float]]) -> list[str]:
        trace = replace(base, header=header, beliefs={}, G=tokens, S=np.array(served), cwnd_bytes=still + np.inf, **quiet)
        return [violation.law for violation in check_trace(trace)]

    assert verdict([[0, 0], [700, 300], [1000, 1000]]) == [] and verdict([[0, 0], [0, 1000], [1000, 1000]]) == []
    assert verdict([[0, 0], [0, 1000], [0, 1500]]) == ["delivered_within_entered", "fifo_order"]
    assert verdict([[0, 0], [0, 0], [0, 900]]) == ["tokens_used_in_time"]


def test_workloads() -> None:
    trace = legal_trace("cbr_delay", 3, buffer_bdp=0.3)

    def laws(**workload: object) -> list[str]:
        flow = trace.header.path.flows[0].model_copy(update={"workload": Workload(**workload)})  # type: ignore[arg-type]
        header = trace.header.model_copy(update={"path": trace.header.path.model_copy(update={"flows": (flow,)})})
        return [violation.law for violation in check_trace(replace(trace, header=header))]

    total = float(trace.A[-1, 0])
    duration_s = float(trace.times_s[-1])
    rates = float((trace.A[1:, 0] / trace.times_s[1:]).max())
    assert laws(kind="finite", size_bytes=total) == []
    assert laws(kind="finite", size_bytes=total - trace.L[-2, 0] - 1) == ["sent_within_workload"]
    assert laws(kind="rate", rate_Bps=rates) == []
    assert laws(kind="rate", rate_Bps=0.2 * total / duration_s) == ["sent_within_workload"]
    assert laws(kind="on_off", on_s=duration_s + 1, off_s=1.0) == []
    assert laws(kind="on_off", on_s=0.02, off_s=1.0) == ["sent_within_workload"]


def test_a_violation_says_what_where_and_how_much() -> None:
    trace = legal_trace("ccac", 5, n_flows=2)
    served = trace.S.copy()
    served[50, 1] = trace.E[50, 1] + 12.5
    first = check_trace(replace(trace, S=served))[0]
    assert (first.law, first.flow, first.step, first.steps_broken) == ("delivered_within_entered", 1, 50, 1)
    assert first.time_s == pytest.approx(50 * trace.header.dt_s) and first.amount_bytes == pytest.approx(12.5)
    assert re.fullmatch(r"delivered_within_entered: flow 1, step 50 \(t = 0.5 s\): .*12\.5 bytes.*", first.message)
    assert first.to_dict()["law"] == first.law
    # violations come in order of time
    trace = legal_trace("cbr_delay", 5)
    late, early = trace.S.copy(), trace.L.copy()
    late[80] += 1e6
    early[20] += 1e6
    violations = check_trace(replace(trace, S=late, L=early))
    assert [v.step for v in violations] == sorted(v.step for v in violations) and violations[0].step == 20


def test_rate_changes_bind_from_their_time_on() -> None:
    base = legal_trace("ideal", 0, n_steps=60, buffer_bdp=math.inf, load=0.1)  # C slack: the tokens do not say what C was
    changes = [{"time_s": 0.1, "link_rate_Bps": 2e6}, {"time_s": 0.205, "link_rate_Bps": 3e6}]
    path = NetworkPath.from_dict({"link_rate_Bps": 1e6, "flows": [{"rtt_s": 0.04}], "rate_changes": changes})
    rate = np.full(61, 1e6)
    rate[11:] = 2e6  # 0.1 s is the end of step 10
    rate[22:] = 3e6
    trace = replace(base, header=base.header.model_copy(update={"path": path}), link_rate_Bps=rate)

    def laws(row: int, value: float) -> list[str]:
        changed = rate.copy()
        changed[row] = value
        return [v.law for v in check_trace(replace(trace, link_rate_Bps=changed))]

    assert laws(1, 1e6) == [] and laws(11, 1e6) == ["link_rate_legal"] and laws(10, 2e6) == ["link_rate_legal"]
    assert laws(21, 2.5e6) == []  # the change falls inside this step
    assert laws(21, 3.1e6) == ["link_rate_legal"] and laws(22, 2.5e6) == ["link_rate_legal"]


N_STEPS = 120
WORKLOADS = ({"kind": "bulk"}, {"kind": "rate", "rate_Bps": 4e5}, {"kind": "on_off", "on_s": 0.1013, "off_s": 0.0717}, {
    "kind": "finite", "size_bytes": 2e5,
})  # fmt: skip


def engine_traces(model: str, count: int) -> Iterator[Trace]:
    rng = random.Random(MODEL_NAMES.index(model))
    for seed in range(count):
        n_flows = rng.choice([1, 1, 2, 3])
        drawn = {"red": rng.random() < 0.2, "loss_budget": rng.choice([0, 0.05]), "buffer_bdp": rng.choice([0.3, 1.0, np.inf])}
        path = random_path(model, rng, n_flows=n_flows, **drawn)
        data = path.model_dump()
        for flow in data["flows"]:
            flow["workload"] = rng.choice(WORKLOADS) if rng.random() < 0.3 else WORKLOADS[0]
            flow["stop_s"] = rng.choice([np.inf, np.inf, 0.44])
        numbers = np.random.default_rng(seed)
        shape = (N_STEPS, 2 + 2 * n_flows)
        moves = np.where(numbers.random(shape) < 0.5, numbers.integers(0, 2, shape), numbers.random(shape))
        steps_per_rtt = rng.choice([1, 2, 4, 8])
        engine = CurveEngine(
            [type(path).model_validate(data)], model=model, adversary=RecordedAdversary("random", moves), seed=seed, record=True,
            senders=[make_sender(rng.choice(AGENTS.names())) for _ in range(n_flows)], steps_per_rtt=steps_per_rtt,
            timing="smt" if steps_per_rtt == 1 and rng.random() < 0.5 else "engine",
            loss_detection=rng.choice(["acks", "oracle"]),
        )  # fmt: skip
        engine.advance(N_STEPS)
        yield engine.trace(0)


def check(model: str, count: int) -> Counter[str]:
    """Check that runs are legal and that each break of them is named; return how often each law was broken."""
    named: Counter[str] = Counter()
    for seed, trace in enumerate(engine_traces(model, count)):
        violations = check_trace(trace)
        assert not violations, f"run {seed}: {violations[0].message}"
        named.update(named_breaks(trace))
    return named


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_runs_are_legal_and_breaks_are_named(model: str) -> None:
    assert len(check(model, 30)) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("model", MODEL_NAMES)
def test_a_thousand_runs_are_legal_and_breaks_are_named(model: str) -> None:
    named = check(model, 1000)
    assert len(named) >= 22 and min(named.values()) >= 20


K = 4


def run_of_reno(model: str) -> Trace:
    path = make_path(link_rate_mbps=8, rtt_ms=40, jitter_ms=0 if model == "ideal" else 20, buffer_bdp=2)
    engine = CurveEngine([path], model=model, senders=[make_sender("reno")], steps_per_rtt=K, record=True)
    engine.advance(400)
    return engine.trace(0)


def shifted(trace: Trace, offset_bytes: float, silent_rows: int) -> Trace:
    """Return a trace whose past is unknown, its curves higher by an offset, with nothing delivered in the last rows."""
    served = trace.S.copy()
    served[len(served) - silent_rows :] = served[-silent_rows - 1]
    header = trace.header.model_copy(update={"history": "free"})
    return replace(trace, header=header, A=trace.A + offset_bytes, G=trace.G + offset_bytes, S=served + offset_bytes)


@pytest.mark.parametrize("model", MODEL_NAMES)
@pytest.mark.parametrize("decades", range(19))
def test_no_offset_hides_what_was_not_delivered(model: str, decades: int) -> None:
    """Under any offset 62 Rm without delivery are illegal, and a legal run is legal, or neither is judged."""
    trace = run_of_reno(model)
    for silent_rows in (0, 62 * K):
        moved = shifted(trace, 10.0**decades, silent_rows)
        if decades <= 13:
            assert bool(check_trace(moved)) == (silent_rows > 0)
        else:
            with pytest.raises(InputError, match=r"float64 is off by up to .* at most 0.001 of"):
                check_trace(moved)


@pytest.mark.parametrize(("factor", "judged"), [(10.0, True), (1e4, True), (1e15, False)])
def test_losses_that_dwarf_the_link_are_not_judged(factor: float, judged: bool) -> None:
    """Lost bytes count in the curves too: at 1e15 times the link's rate they would hide all that it does."""
    path = make_path(link_rate_mbps=8, rtt_ms=40, buffer_bdp=2)
    engine = CurveEngine([path], model="ideal", senders=[ExternalSender()], steps_per_rtt=K, record=True)
    engine._flow["receive_window_bytes"] = np.inf
    engine.advance(200, actions=np.full((1, 1), factor * path.link_rate_Bps))
    if judged:
        assert check_trace(engine.trace(0)) == []
    else:
        with pytest.raises(InputError, match="float64"):
            check_trace(engine.trace(0))


def test_round_off_of_a_long_run_is_forgiven() -> None:
    """60,000 steps against random moves: sums round off by a thousand units of the last place, and every law holds."""
    rng = np.random.default_rng(5)
    path = make_path(link_rate_mbps=80, rtt_ms=40, jitter_ms=20, buffer_bdp=2, n_flows=3)
    moves = RecordedAdversary("random", rng.random((199, 8)), periodic=True)
    for model in MODEL_NAMES[1:]:
        engine = CurveEngine([path], model=model, senders=[make_sender("cubic")] * 3, adversary=moves, record=True)
        engine.advance(60_000)
        assert check_trace(engine.trace(0)) == []


@pytest.mark.parametrize("link_rate_Bps", [1e5, 1e9, 1e12, 1e15])
@pytest.mark.parametrize("sender", ["reno", "cc_probe_drain"])
def test_fast_links_with_spare_tokens_keep_their_laws(link_rate_Bps: float, sender: str) -> None:
    """Kept tokens of ccac may exceed what a flow has sent by far; what is left of them when they expire is exact."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        flow = FlowPath(rtt_s=0.04, jitter_s=0.02)
        path = Path(link_rate_Bps=link_rate_Bps, buffer_bytes=80 * link_rate_Bps, flows=(flow,) * (1 + seed % 2))
        moves = rng.random((200, 2 + 2 * path.n_flows))
        moves = np.where(rng.random(moves.shape) < 0.3, np.round(moves), moves)
        player, senders = RecordedAdversary("random", moves), [make_sender(sender)] * path.n_flows
        engine = CurveEngine([path], model="ccac", senders=senders, adversary=player, record=True)
        engine.advance(600)
        assert check_trace(engine.trace(0), tolerance=1e-12) == []
