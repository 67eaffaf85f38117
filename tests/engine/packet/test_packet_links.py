"""Links of varying rate in runs: laws that hold whatever the trace is, meaning of each part, batches of environments."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.packet_trace import made

import ccenv
from ccenv.base.errors import CcenvError
from ccenv.engine.packet.generators import Cellular, Leo, Wifi, made_trace
from ccenv.envs.packet.settings import read_packet_settings
from ccenv.envs.packet.task import PacketTask
from ccenv.simulation import Result

FLOWS = [{"sender": "cubic", "rtt_ms": 20}, {"sender": "bbr1", "rtt_ms": 30, "start_s": 0.2}]
MODELS: dict[str, Any] = {"cellular": Cellular, "leo": Leo, "wifi": Wifi}


def run(link: dict[str, Any], flows: list[dict[str, Any]] | None = None, **scenario: Any) -> Result:
    data = {"duration_s": 4, "log_s": 0.05, "links": [{"buffer_packets": 40, **link}], "flows": flows or FLOWS}
    return ccenv.simulate({**data, **scenario})


def conserved(result: Result) -> None:
    """What arrived was served, dropped, or waits; never more was served than the link could carry."""
    log = result.link_log[:, 0]
    mss = result.scenario.mss_bytes
    held = log["arrived_bytes"] - log["served_bytes"] - log["dropped_bytes"] - log["queue_bytes"]
    assert set(np.round(held / mss).tolist()) <= {0.0, 1.0}, "at most one packet is in service"
    could = np.concatenate([[0.0], np.cumsum(log["rate_Bps"][:-1])]) * result.scenario.log_s
    assert (log["served_bytes"] <= could + 1e-6 * could.max() + 1e-3).all()


generators = st.one_of(
    st.fixed_dictionaries({
        "kind": st.just("cellular"), "mean_mbps": st.floats(1, 40), "volatility": st.floats(0, 4),
        "outages_per_min": st.floats(0, 60), "outage_s": st.floats(0, 3), "length_s": st.floats(1, 5),
    }),
    st.fixed_dictionaries({
        "kind": st.just("leo"), "mean_mbps": st.floats(1, 40), "spread": st.floats(0, 0.95), "handover_ms": st.floats(0, 900),
    }),
    st.fixed_dictionaries({
        "kind": st.just("wifi"), "mean_mbps": st.floats(1, 40), "stations": st.floats(0, 20), "fading": st.floats(0, 0.95),
    }),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(generators, st.integers(0, 1000), st.sampled_from(["drop_tail", "codel", "fq_codel", "red"]))
def test_bytes_are_conserved_on_any_link(generator: dict[str, Any], seed: int, discipline: str) -> None:
    link = {"generator": generator, "discipline": discipline}
    result = run(link, seed=seed)
    conserved(result)
    again = run(link, seed=seed)
    assert again.flow_log.tobytes() == result.flow_log.tobytes()


def test_seed_decides_the_trace() -> None:
    link = {"generator": {"kind": "cellular", "mean_mbps": 10}}
    rates = [run(link, seed=seed).link_log["rate_Bps"].tolist() for seed in (1, 1, 2)]
    assert rates[0] == rates[1] != rates[2]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("seed", [0, 7])
def test_generators_equal_their_reference(kind: str, seed: int) -> None:
    spec = MODELS[kind](kind=kind, mean_Bps=2e6, length_s=30.0)
    trace = made_trace(spec.model_dump(), seed, link=1)
    plain = made(spec, seed, 1)
    assert trace.kind == plain.kind and trace.length_s == plain.length_s
    assert [(t, v, d) for t, v, _, d in trace.rows.tolist()] == plain.rows


@pytest.mark.parametrize(("kind", "slack"), [("cellular", 0.25), ("leo", 0.1), ("wifi", 0.05)])
def test_generators_keep_their_mean(kind: str, slack: float) -> None:
    means = [made_trace({"kind": kind, "mean_Bps": 2e6, "length_s": 600.0}, seed).mean_Bps for seed in range(5)]
    assert np.mean(means) == pytest.approx(2e6, rel=slack)


def test_leo_changes_every_fifteen_seconds() -> None:
    rows = made_trace({"kind": "leo", "mean_Bps": 2e6, "length_s": 60.0}, 3).rows
    changes = rows[1:, 0][np.diff(rows[:, 3]) != 0]
    assert changes.tolist() == [15.0, 30.0, 45.0] and (rows[rows[:, 1] == 0, 0] == [0.0, 15.0, 30.0, 45.0]).all()


def test_an_opportunity_carries_what_waits_at_its_instant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("time_s,bytes\n0.5,1500\n1.0,1500\n1.5,6000\n2.0,0\n3.0,1500\n")
    flow = {"sender": "reno", "rtt_ms": 20, "start_s": 0.75, "workload": {"kind": "finite", "size_bytes": 6000}}
    links = [{"trace": "t.csv", "buffer_packets": 40}]
    result = ccenv.simulate({"duration_s": 3.2, "links": links, "flows": [flow]}, packet_log=True)
    log = result.packet_log
    assert log is not None
    # That of 0.5 s is lost; three of four packets then leave together, and what is left of 6000 bytes is lost.
    assert log["time_s"][log["event"] == 3].tolist() == [1.0, 1.5, 1.5, 1.5]
    assert result.summary()["links"][0]["utilisation"] == pytest.approx(6000 / 10500)


def test_packets_may_be_larger_or_smaller_than_an_opportunity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.txt").write_text("".join(f"{ms}\n" for ms in range(1, 101)))
    for mss, seconds in ((3000, [0.002, 0.004, 0.006]), (750, [0.001, 0.001, 0.002])):
        flow = {"sender": "reno", "rtt_ms": 20, "workload": {"kind": "finite", "size_bytes": 3 * mss}}
        data = {"duration_s": 1, "mss_bytes": mss, "links": [{"trace": "m.txt", "buffer_bytes": 90_000}], "flows": [flow]}
        log = ccenv.simulate(data, packet_log=True).packet_log
        assert log is not None and log["time_s"][log["event"] == 3].tolist() == pytest.approx(seconds)


def test_a_trace_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("0,8\n0.1,0\n0.2,24\n")
    result = run({"trace": "t.csv"}, [{"sender": "constant:rate_mbps=40", "rtt_ms": 20}], log_s=0.1)
    served = np.diff(result.link_log["served_bytes"][:, 0])
    assert served[1:7].tolist() == pytest.approx([0, 3e5, 1e5, 0, 3e5, 1e5], abs=3000)
    assert result.link_log["rate_Bps"][:4, 0].tolist() == pytest.approx([1e6, 0, 3e6, 1e6])


def test_delay_steps_keep_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("time_s,rate_mbps,delay_ms\n0,8,50\n1,8,0\n2,8,20\n3,8,20\n")
    data = {
        "duration_s": 3,
        "links": [{"trace": "t.csv", "buffer_packets": 40}],
        "flows": [{"sender": "constant:rate_mbps=2", "rtt_ms": 20}],
    }
    log = ccenv.simulate(data, packet_log=True).packet_log
    assert log is not None
    left, came = (log[log["event"] == event] for event in (3, 4))
    assert came["transmission"].tolist() == sorted(came["transmission"])
    delay_s = dict(zip(came["transmission"].tolist(), came["time_s"].tolist(), strict=True))
    for at_s, transmission in zip(left["time_s"].tolist(), left["transmission"].tolist(), strict=True):
        if transmission not in delay_s:
            continue
        extra_s = 0.05 if at_s <= 1 else 0.0 if at_s <= 2 else 0.02
        least_s = 1.05 if 1 < at_s <= 1.05 else 0.0  # those before are not overtaken
        assert delay_s[transmission] == pytest.approx(max(at_s + extra_s, least_s), abs=0.0061 if 1 < at_s <= 1.05 else 1e-9)


def test_an_outage_stops_the_link_and_nothing_is_lost_in_it() -> None:
    steps = [{"time_s": 1.0, "rate_mbps": 0}, {"time_s": 2.0, "rate_mbps": 8}]
    result = run({"rate_mbps": 8, "rate_steps": steps, "buffer_packets": 400})
    conserved(result)
    served = result.link_log["served_bytes"][:, 0]
    assert served[20] <= served[39] <= served[20] + 1500 < served[60]


@pytest.mark.parametrize(("link", "said"), [
    ({"rate_mbps": 8, "rate_steps": [{"time_s": 1, "rate_mbps": 0}]}, "its rate is 0 for ever after 1 s"),
    ({"rate_mbps": 8, "generator": {"kind": "wifi", "mean_mbps": 3}}, "a rate, or a trace or generator, not both"),
    ({"generator": {"kind": "wify", "mean_mbps": 3}}, "wify"),
    ({"generator": {"kind": "wifi", "mean_mbps": 0}}, "mean_mbps of 0; it must be above 0"),
    ({"generator": {"kind": "wifi", "mean_mbps": 3, "station": 3}}, "station"),
    ({"trace": "nowhere.csv"}, "no trace 'nowhere.csv'"), ({"trace": "/etc/passwd"}, "trace"),
    ({"trace": "leo_100", "rate_steps": [{"time_s": 1, "rate_mbps": 1}]}, "one of them is allowed"),
    ({"rate_mbps": 8, "discipline": "pie", "rate_steps": [{"time_s": 1, "rate_mbps": 0}, {"time_s": 2, "rate_mbps": 1}]}, "pie"),
    ({}, "rate_Bps: missing"),
])  # fmt: skip
def test_wrong_links_are_one_line(link: dict[str, Any], said: str) -> None:
    with pytest.raises(CcenvError, match=said) as error:
        run(link)
    assert "\n" not in str(error.value)


DRAWN: dict[str, Any] = {
    "name": "drawn",
    "duration_s": 60,
    "links": [
        {"generator": {"kind": "cellular", "mean_mbps": [4, 40], "outages_per_min": {"choice": [0, 10]}}, "buffer_bdp": [1, 4]}
    ],
    "flows": [{"sender": "external", "rtt_ms": [20, 60]}],
}


def task_of(num_envs: int, scenario: dict[str, Any], **more: Any) -> PacketTask:
    return PacketTask(num_envs, read_packet_settings({"episode_decisions": 40, "scenario": scenario, **more}, "test"))


def play(task: PacketTask, steps: int) -> list[list[float]]:
    """Return the rewards of some steps of a constant action."""
    shape = (task.core.num_envs, len(task.core.flows))
    return [task.step(np.full(shape, 0.1)).ravel().tolist() for _ in range(steps)]


def test_environments_draw_generators() -> None:
    task = task_of(6, DRAWN)
    found = []
    for _ in range(2):
        task.core.reset(seed=3)
        found.append(play(task, 60))
        own = task.core.batch.arrays.links[:, 0]
        assert len(set(own["generator_mean_Bps"].tolist())) == 6 and (own["generator_mean_Bps"] == own["rate_Bps"]).all()
        assert set(own["generator_b"].tolist()) == {0.0, 10.0}
        assert len(set(own["trace_bytes"].tolist())) == 6 and (own["served_bytes"] > 0).all()
        assert (own["peak_Bps"] == 4 * own["rate_Bps"]).all()
    assert found[0] == found[1] and np.isfinite(np.array(found)).all()
    alone = task_of(1, DRAWN)
    alone.core.reset(seed=3)
    play(alone, 60)
    assert alone.core.batch.arrays.links["served_bytes"][0, 0] == task.core.batch.arrays.links["served_bytes"][0, 0]


def test_environments_draw_traces_and_keep_their_state() -> None:
    task = task_of(8, {**DRAWN, "links": [{"trace": {"choice": ["cellular_20", "wifi_40"]}, "buffer_bdp": 2}]})
    task.core.reset(seed=1)
    batch = task.core.batch
    assert set(batch.arrays.links["trace_kind"][:, 0].tolist()) == {1, 2}
    play(task, 10)
    state = batch.state()
    then = play(task, 10)
    batch.set_state(state)
    assert play(task, 10) == then


@pytest.mark.parametrize(("link", "said"), [
    ({"generator": {"kind": {"choice": ["leo", "wifi"]}, "mean_mbps": 4}}, "kind"),
    ({"generator": {"kind": "cellular", "mean_mbps": [0, 4]}}, "mean_mbps"),
    ({"trace": {"choice": ["wifi_40", "wifi_41"]}}, "wifi_41"), ({"trace": {"choice": [1, 2]}}, "names of traces"),
])  # fmt: skip
def test_wrong_distributions_are_one_line(link: dict[str, Any], said: str) -> None:
    with pytest.raises(CcenvError, match=said) as error:
        task_of(2, {**DRAWN, "links": [{**link, "buffer_bdp": 2}]})
    assert "\n" not in str(error.value)
