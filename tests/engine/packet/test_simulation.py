"""Scenarios: ranges, profiles, results, and the curves of a run per packet as a trace."""

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ccenv
from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.base.config import shipped_names
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.provenance import VERSION, code_hash
from ccenv.cli.main import main
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.layout import EVENTS, LOG_DTYPE
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.engine.packet.transport import MAX_BURST_BYTES, SMALL_BURSTS_Bps
from ccenv.network.laws import check_trace
from ccenv.network.path import Path
from ccenv.network.trace import load_trace
from ccenv.simulation import load_scenario, read_scenario, simulate
from ccenv.simulation.packet_trace import packet_slack_bytes
from ccenv.simulation.ranges import Leaf, in_half, load_distribution, read_distribution
from ccenv.simulation.result import BURST_S, as_run

LINK = {"rate_mbps": 12, "buffer_packets": 40}


def test_units_of_people_become_units_inside() -> None:
    scenario = read_scenario(
        {"log_ms": 20, "links": [{"rate_mbps": 8, "buffer_bdp": 2}], "flows": [{"sender": "reno", "rtt_ms": r} for r in (30, 60)]}
    )
    assert scenario.links[0].rate_Bps == 1e6 and scenario.flows[1].rtt_s == pytest.approx(0.06)
    assert scenario.links[0].buffer_bytes == pytest.approx(2 * 1e6 * 0.03) and scenario.log_s == pytest.approx(0.02)


def test_summary_counts_what_the_time_series_hold() -> None:
    flows = [{"sender": "reno", "rtt_ms": 40}, {"sender": "reno", "rtt_ms": 40, "start_s": 5, "stop_s": 10}]
    result = ccenv.simulate({"duration_s": 12, "links": [LINK], "flows": flows})
    summary = result.summary()
    assert [flow["name"] for flow in summary["flows"]] == ["reno #1", "reno #2"]
    between = (result.time_s[1:] > 5) & (result.time_s[1:] <= 10 + 1e-9)
    assert summary["flows"][1]["throughput_mbps"] == pytest.approx(result.throughput_Bps()[between, 1].mean() / 125e3)
    carried = sum(flow["throughput_mbps"] * s for flow, s in zip(summary["flows"], (12, 5), strict=True))
    assert carried == pytest.approx(summary["links"][0]["utilisation"] * 12 * 12, rel=0.02)
    first, second = (flow["throughput_mbps"] for flow in summary["flows"])
    assert summary["ratio"] == pytest.approx(first / second, rel=1e-9) and summary["flows"][0]["loss"] > 0


@pytest.mark.parametrize("name", shipped_names("ccenv.configs.sim", ".yaml"))
def test_shipped_scenarios_are_valid(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name and scenario.reference is not None


# What must come out: at least 5 times where the paper has 10, 1.5 where it has about 3.
@pytest.mark.parametrize(("name", "least"), [
    ("copa_one_early_packet", 5.0), ("two_bbr_40_80", 5.0), ("reno_delack4", 1.5), ("cubic_delack4", 1.5),
    ("vivace_ack_60ms", 5.0), ("allegro_loss", 5.0),
])  # fmt: skip
def test_starvation_has_the_direction_and_size_of_the_paper(name: str, least: float) -> None:
    summary = simulate(name).summary()
    first, second = (flow["throughput_mbps"] for flow in summary["flows"])
    assert second > first and summary["ratio"] >= least and summary["ratio"] <= 20


def test_a_picture_is_drawn_and_equal_runs_draw_equal_files(tmp_path) -> None:
    scenario = {"duration_s": 2, "links": [LINK], "flows": [{"sender": "cubic", "rtt_ms": 40}]}
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    for file in files:
        simulate(scenario).plot(file)
    assert files[0].read_bytes() == files[1].read_bytes() and len(files[0].read_bytes()) > 10_000


def test_command(tmp_path, capsys, refused, answer) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("links: [{rate_mbps: 12, buffer_packets: 40}]\nflows: [{sender: reno, rtt_ms: 40}]\n", encoding="utf-8")
    shown = answer(["sim", str(file), "--duration", "3", "--json"])
    assert shown["duration_s"] == 3 and set(shown["flows"][0]) >= {"name", "throughput_mbps", "loss", "rtt"}
    assert np.isclose(shown["flows"][0]["rtt"], 0.06, atol=0.025) and shown["ratio"] is None
    assert shown["senders_sha256"] == {"reno": sender_hash(make_sender("reno"))} and shown["code_sha256"] == code_hash(simulate)
    again = simulate(shown["scenario"])  # what decided the run is all in the answer
    assert again.summary()["flows"] == shown["flows"] and shown["versions"]["ccenv"] == VERSION
    assert main(["sim", "reno_delack4", "--duration", "2"]) == 0 and "2.7" in capsys.readouterr().out
    refused(["sim", "reno_delak4"], "Did you mean")


BASE: dict[str, Any] = {
    "duration_s": 10,
    "links": [{"rate_mbps": 12, "buffer_bdp": 1}],
    "flows": [{"sender": "external", "rtt_ms": 40}, {"sender": "reno", "rtt_ms": 40}],
}


def changed(place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    data = copy.deepcopy(BASE)
    part: Any = data
    for key in place[:-1]:
        part = part.setdefault(key, {}) if isinstance(part, dict) else part[key]
    part[place[-1]] = value
    return data


def test_a_scenario_is_a_distribution_of_one() -> None:
    distribution = load_distribution("copa_one_early_packet")
    assert distribution.leaves == () and distribution.largest == load_scenario("copa_one_early_packet")


@pytest.mark.parametrize("name", ["single", "aurora", "beside", "four", "jittered", "duel", "everywhere", "everywhere_eight"])
def test_shipped_distributions_are_read(name: str) -> None:
    assert load_distribution(name).leaves


def test_ranges_of_all_forms() -> None:
    data = changed(("links", 0, "rate_mbps"), {"range": [1, 100], "log": True})
    data["flows"][0] |= {"rtt_ms": [20, 80], "loss_rate": {"choice": [0, 0.1]}, "receiver": {"ack_every": [1, 3]}}
    data["flows"][1]["sender"] = {"choice": ["reno", "cubic", "bbr1"]}
    distribution = read_distribution(data)
    names = [leaf.name for leaf in distribution.leaves]
    assert names == ["links.0.rate_mbps", "flows.0.rtt_ms", "flows.0.loss_rate", "flows.0.receiver.ack_every", "flows.1.sender"]
    u = np.linspace(0, 1, 1000, endpoint=False)
    rate, rtt, loss, every, sender = (leaf.draw(u) for leaf in distribution.leaves)
    assert rate.min() == 1 and rate.max() > 99 and np.median(rate) == pytest.approx(10, rel=0.01)
    assert rtt.min() == 20 and np.median(rtt) == pytest.approx(50, abs=0.1)
    assert [(loss == k).mean() for k in (0, 1)] == [0.5, 0.5]
    assert {float(x): (every == x).mean() for x in np.unique(every)} == pytest.approx({1: 1 / 3, 2: 1 / 3, 3: 1 / 3}, abs=0.01)
    assert np.unique(sender).tolist() == [0, 1, 2] and distribution.largest.links[0].rate_Bps == 100 * 125_000


@given(st.floats(0.1, 100), st.floats(1, 10), st.booleans(), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_what_is_drawn_lies_in_the_range(low: float, factor: float, log: bool, u: list[float]) -> None:
    leaf = Leaf(("links", 0, "rate_mbps"), low, low * factor, log)
    drawn = leaf.draw(np.array(u))
    assert ((drawn >= low) & (drawn <= low * factor)).all()


@given(st.floats(0, 1, exclude_max=True))
def test_halves_of_a_range_are_apart(u: float) -> None:
    """What one half draws lies in bands of which the other draws nothing, at the same height within each pair of bands."""
    train, report = (float(in_half(np.array(u), half)) for half in ("train", "report"))
    assert 0 <= train < report < 1 and int(train * 16) % 2 == 0 and int(report * 16) % 2 == 1
    assert report - train == pytest.approx(1 / 16) and abs(train - u) <= 1 / 16


@pytest.mark.parametrize(("place", "value", "words"), [
    (("links", 0, "rate_mbps"), [5, 1], "links.0.rate_mbps: range must be two finite numbers, the lower one first"),
    (("links", 0, "rate_mbps"), {"range": [0, 1], "log": True}, "above 0 with log: true"),
    (("links", 0, "rate_mbps"), {"range": [1, 2, 3]}, "two finite numbers"),
    (("links", 0, "rate_mbps"), {"range": [1, 2], "lg": True}, "Did you mean 'log'"),
    (("links", 0, "rate_mbps"), {"choice": []}, "1 to 256 values"),
    (("links", 0, "rate_mbps"), {"choice": [1], "log": True}, "a choice has 'choice'"),
    (("links", 0, "rate_mbps"), {"choice": ["fast"]}, "choice must hold numbers"),
    (("links", 0, "rate_mbps"), [-1, 1], "rate_mbps"), (("links", 0, "buffer_bdp"), [1e-6, 1], "buffer_bdp"),
    (("links", 0, "rate_mpbs"), [1, 2], "Did you mean"),
    (("flows", 0, "access_ms"), [1, 50], "flows.0.access_ms: 50.0 cannot be drawn|flows.0.access_ms"),
    (("flows", 0, "stop_s"), [0, 5], "stop_s"), (("flows", 0, "loss_rate"), [0, 1], "loss_rate"),
    (("flows", 0, "receiver", "ack_every"), [1, 2.5], "two whole numbers"),
    (("links", 0, "rate_mbps"), {"range": [1, 2], "half": "test"}, "half: it must be train or report"),
    (("flows", 0, "rtt_ms"), {"like": 0}, "like is the index of an earlier one of flows"),
    (("flows", 1, "rtt_ms"), {"like": 0, "times": [0, 1]}, "times: two numbers above 0"),
    (("flows", 1, "loss_rate"), {"like": 0}, "flows.1.loss_rate: like needs a number at flows.0.loss_rate"),
    (("flows", 1, "sender"), {"like": 0}, "like needs a number at flows.0.sender"),
    (("flows", 1, "workload"), {"kind": {"choice": ["bulk", "rate"]}}, "only the kind of a jitter box may be a choice"),
    (("links", 0, "buffer_least_packets"), -1, "buffer_least_packets is -1; it must not be negative"),
    (("flows", 0, "jitter"), {"kind": {"choice": ["none", "early"]}}, "kinds of jitter out of none, constant"),
    (("flows", 1, "sender"), [1, 2], "sender"), (("flows", 1, "sender"), {"choice": [1]}, "names of senders"),
    (("duration_s",), {"range": [1, 2]}, "ranges are allowed for numbers of links and flows only"),
    (("duration_s",), [1, 2], "duration_s"),
    (("seed",), {"choice": [1, 2]}, "ranges are allowed for numbers of links and flows only"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_refused_in_one_line(place: tuple[Any, ...], value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as failure:
        read_distribution(changed(place, value), "mine.yaml")
    assert "\n" not in str(failure.value) and str(failure.value).startswith("mine.yaml: ")


FAST_LINK = {"rate_mbps": 48, "buffer_bdp": 1}


def scenario_with(**changes: Any) -> dict[str, Any]:
    return {"duration_s": 4, "links": [FAST_LINK], "flows": [{"sender": "cubic", "rtt_ms": 40}], **changes}


def test_plain_is_what_a_scenario_without_a_profile_is() -> None:
    plain, named = ccenv.simulate(scenario_with()), ccenv.simulate(scenario_with(profile="linux"), profile="plain")
    np.testing.assert_array_equal(plain.flow_log, named.flow_log)
    assert as_run(plain.scenario) is plain.scenario


def test_linux_completes_what_a_scenario_leaves_open() -> None:
    flows = [{"sender": "bbr1", "rtt_ms": 40}, {"sender": "cubic:linux_module=0", "rtt_ms": 40, "burst_s": 0, "name": "mine"}]
    flows += [{"sender": "reno", "rtt_ms": 40, "receiver": {"ack_every": 4}, "jitter": {"kind": "none"}}]
    first, second, third = as_run(read_scenario(scenario_with(profile="linux", seed=3, flows=flows))).flows
    assert first.sender == "bbr1:pacing_margin=0.01,extra_acked=1,even_windows=1,departure_time=1"
    assert (first.name, first.burst_s, first.receiver.ack_every) == ("bbr1", BURST_S, 2)
    assert (first.handshake, first.duplicate_acks) == (True, "hold")
    assert (second.sender, second.name, second.burst_s) == ("cubic:linux_module=0,prr=1", "mine", 0)
    assert (third.receiver.ack_every, third.jitter.kind) == (4, "none")
    starts = [flow.start_s for flow in (first, second, third)]
    assert len(set(starts)) == 3 and min(starts) > 0 and max(starts) < 0.04
    again = as_run(read_scenario(scenario_with(profile="linux", seed=4, flows=flows))).flows
    assert [flow.start_s for flow in again] != starts


def test_seeds_decide_phases_of_linux_hosts() -> None:
    logs = [ccenv.simulate(scenario_with(profile="linux", seed=seed)).flow_log["goodput_bytes"] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(logs[0], logs[1])
    assert np.any(logs[0] != logs[2])


def test_packets_of_several_flows_are_a_little_late() -> None:
    """Two equal flows: seeds differ, equal seeds do not; one flow, a flow's own jitter and 0 have no such delay."""
    pair = scenario_with(flows=[{"sender": "reno", "rtt_ms": rtt_ms} for rtt_ms in (40, 41)])
    logs = [ccenv.simulate({**pair, "seed": seed}).flow_log["goodput_bytes"] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(logs[0], logs[1])
    assert np.any(logs[0] != logs[2])
    bare = ccenv.simulate({**pair, "phase_jitter": 0}).summary()
    assert "phase_jitter" not in {**bare, **ccenv.simulate(scenario_with()).summary()}
    assert ccenv.simulate(pair).summary()["phase_jitter"] == 0.5
    late = [flow.jitter for flow in as_run(read_scenario(pair)).flows]
    assert {(jitter.kind, round(jitter.max_s, 9)) for jitter in late} == {("uniform", 0.000125)}
    (one, other) = pair["flows"]
    kept = read_scenario({**pair, "flows": [{**one, "jitter": {"kind": "none"}}, other]})
    assert as_run(kept) is kept


def test_throughput_of_linux_hosts_is_payload() -> None:
    result = ccenv.simulate(scenario_with(profile="linux", warmup_s=2))
    (flow,), (link,) = (result.summary()[key] for key in ("flows", "links"))
    assert flow["throughput_mbps"] == pytest.approx(48 * link["utilisation"] * 1448 / 1500, rel=1e-2)
    assert result.summary()["profile"] == "linux"


@pytest.mark.parametrize(("rate_mbps", "packets"), [(1.0, 1), (10.0, 2), (96.0, 8), (400.0, 33), (2000.0, 43)])
def test_a_paced_sender_sends_bursts_and_keeps_its_rate(rate_mbps: float, packets: int) -> None:
    rate_Bps = rate_mbps * 125_000
    assert packets == (1 if rate_Bps < SMALL_BURSTS_Bps else max(2, min(BURST_S * rate_Bps, MAX_BURST_BYTES) // 1500))
    flow = {"sender": f"constant:rate_mbps={rate_mbps:g}", "rtt_s": 0.02, "burst_s": BURST_S}
    network = NetworkSpec.model_validate({"links": [{"rate_Bps": 4e8}], "flows": [flow]})
    seconds = 2000 * 1500 / rate_Bps
    engine = PacketEngine(network, [make_sender(network.flows[0].sender)], duration_s=seconds, packet_log=100_000)
    engine.advance(seconds)
    log = engine.packet_log()
    times_s = log["time_s"][log["event"] == EVENTS.index("send")]
    begins = np.flatnonzero(np.diff(times_s, prepend=-1.0) > 0)
    assert set(np.diff(begins).tolist()) == {packets}
    # never more than a burst ahead of the rate
    allowed = np.floor(times_s * rate_Bps / 1500 + 1e-6) + packets
    assert np.all(np.arange(1, len(times_s) + 1) <= allowed) and len(times_s) == pytest.approx(2000, abs=packets + 1)


@pytest.mark.parametrize("sender", ["cubic", "reno"])
def test_hystart_leaves_slow_start_with_few_losses(sender: str) -> None:
    network = {"duration_s": 3, "links": [{"rate_mbps": 100, "buffer_bdp": 2}]}
    dropped, used = [], []
    for early in (0, 1):
        result = ccenv.simulate({**network, "flows": [{"sender": f"{sender}:hystart={early}", "rtt_ms": 50}]})
        dropped.append(result.flow_log["dropped_bytes"][-1, 0])
        used.append(result.summary()["links"][0]["utilisation"])
    assert dropped[0] > 1000 * 1500 and dropped[1] < 0.3 * dropped[0] and used[1] > 0.8


def test_extra_acked_keeps_bbr_sending_while_acks_are_held() -> None:
    """ACKs that come every 2 Rm leave a window of two BDP nothing to send with in between."""
    flows = [{"rtt_ms": 40, "receiver": {"aggregation": "interval", "aggregate_ms": 80}}]
    used = []
    for extra in (0, 1):
        scenario = scenario_with(duration_s=8, warmup_s=4, flows=[{**flows[0], "sender": f"bbr1:extra_acked={extra}"}])
        used.append(ccenv.simulate(scenario).summary()["links"][0]["utilisation"])
    assert used[0] < 0.8 and used[1] > 0.95


MSS = 1500.0
TRACED_LINK = {"rate_mbps": 12, "buffer_packets": 20, "delay_ms": 3}
FLOWS = [
    {"sender": "cubic", "rtt_ms": 20, "jitter": {"kind": "batch", "max_ms": 10}, "loss_rate": 0.01},
    {"sender": "bbr1", "rtt_ms": 40, "start_s": 0.5, "stop_s": 2.5, "access_ms": 4},
]


def run(flows=FLOWS, link=TRACED_LINK, seconds=3.0, **more):
    return ccenv.simulate({"duration_s": seconds, "links": [link], "flows": flows, **more}, packet_log=True)


def times_s(log, event, flow):
    """Return when an event happened to a flow, by transmission."""
    rows = log[(log["event"] == EVENTS.index(event)) & (log["flow"] == flow)]
    return dict(zip(rows["transmission"].tolist(), rows["time_s"].tolist(), strict=True))


def test_the_log_counts_what_the_time_series_count() -> None:
    result = run()
    log, last = result.packet_log, result.flow_log[-1]
    assert log.dtype == LOG_DTYPE and (np.diff(log["time_s"]) >= 0).all()
    for flow in range(2):
        assert len(times_s(log, "send", flow)) * MSS == last["sent_bytes"][flow]
        assert len(times_s(log, "drop", flow)) * MSS == last["dropped_bytes"][flow] + last["random_lost_bytes"][flow]
    assert (log["event"] == EVENTS.index("depart")).sum() * MSS == result.link_log["served_bytes"][-1, 0]


def test_the_log_says_how_long_each_packet_took() -> None:
    """Alone at half the link's rate: 1 ms of service and 3 ms to the receiver, then the ACK takes the rest of Rm."""
    log = run([{"sender": "constant:rate_mbps=6", "rtt_ms": 20}], seconds=1.0).packet_log
    sent, delivered, acked = (times_s(log, event, 0) for event in ("send", "deliver", "ack"))
    assert [delivered[tx] - sent[tx] for tx in delivered] == pytest.approx([0.004] * len(delivered))
    assert [acked[tx] - sent[tx] for tx in acked] == pytest.approx([0.021] * len(acked)) and len(acked) > 400


def test_traces_of_several_flows_and_of_rate_steps_are_legal_up_to_whole_packets() -> None:
    trace = run().trace()
    assert check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == [] and trace.L_free[-1, 0] > 0
    assert trace.L[-1].sum() > trace.L_free[-1].sum()
    link = {**TRACED_LINK, "rate_steps": [{"time_s": 1.0, "rate_mbps": 6}, {"time_s": 2.0, "rate_mbps": 24}]}
    trace = run([{"sender": "bbr1", "rtt_ms": 20}], link).trace()
    assert check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []
    assert sorted(set(trace.link_rate_Bps.tolist())) == [0.75e6, 1.5e6, 3e6]


def breaking(change):
    """Return the laws that a trace breaks whose header says something else about the path."""
    trace = run(FLOWS[:1]).trace()
    data = {**trace.header.path.model_dump(), **change(trace.header.path.model_dump())}
    header = trace.header.model_copy(update={"path": Path.model_validate(data)})
    return {v.law for v in check_trace(replace(trace, header=header), slack_bytes=packet_slack_bytes(trace))}


def test_the_slack_hides_no_broken_law() -> None:
    """The same packets on a path with less jitter, a smaller buffer or a slower link are not legal."""
    assert breaking(lambda path: {}) == set()
    assert "delivered_within_jitter" in breaking(lambda path: {"flows": [{**path["flows"][0], "jitter_s": 0.0}]})
    assert "buffer_bound" in breaking(lambda path: {"buffer_bytes": 10 * MSS})
    assert "link_rate_legal" in breaking(lambda path: {"link_rate_Bps": 1.4e6})


def test_files_and_command_line(tmp_path, capsys) -> None:
    scenario = tmp_path / "two.yaml"
    scenario.write_text(json.dumps({"duration_s": 2, "links": [TRACED_LINK], "flows": FLOWS}), encoding="utf-8")
    files = [tmp_path / name for name in ("log.npz", "trace.npz")]
    assert main(["sim", str(scenario), "-s", f"packet_log={files[0]}", "--trace", str(files[1]), "--json"]) == 0
    capsys.readouterr()
    with np.load(files[0], allow_pickle=False) as data:
        header = json.loads(bytes(data["header"]))
        assert header["events"] == list(EVENTS) and header["size_bytes"] == MSS
        assert set(data.files) == {"header", *LOG_DTYPE.names} and len(data["time_s"]) == len(data["flow"]) > 1000
    trace = load_trace(files[1])
    assert check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []


def test_a_log_that_is_full_is_an_error(monkeypatch) -> None:
    monkeypatch.setattr("ccenv.simulation.run.DEFAULT_ROWS", 100)
    with pytest.raises(CcenvError, match="the packet log keeps 100 rows"):
        run()
