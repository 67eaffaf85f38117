"""The Numba kernels: against the plain reference, by hand, and scenarios and sweeps by name and as files."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.fluid import Reference

from ccenv.base.errors import EngineError, InputError
from ccenv.engine.fluid.kernel import run_one
from ccenv.engine.fluid.parameters import FLOW_TRACE, LINK_TRACE, PARAMETER_SETS
from ccenv.engine.fluid.scenario import Scenario
from ccenv.engine.fluid.simulate import assemble, simulate, simulate_batch
from ccenv.engine.fluid.sweep import Sweep, load_scenario, load_sweep, shipped

CCAS = ["bbr1", "bbr2", "reno", "cubic"]


def scenario(flows, links=None, **values):
    links = links or [{"rate_mbps": 50, "delay_ms": 8, "buffer_bdp": 1.5}]
    given_flows = [f if isinstance(f, dict) else {"cca": f, "access_delay_ms": 4 + i} for i, f in enumerate(flows)]
    base = {"params": "artefact", "duration_s": 3.0, "measure_from_s": 1.0, "step_ms": 0.1}
    return Scenario(links=links, flows=given_flows, **base | values)


flows_st = st.lists(st.tuples(st.sampled_from(CCAS), st.floats(0.5, 30.0)), min_size=1, max_size=6)
link_st = st.fixed_dictionaries({
    "rate_mbps": st.floats(5, 200), "delay_ms": st.floats(0.5, 20), "buffer_bdp": st.floats(0.2, 8),
    "discipline": st.sampled_from(["drop-tail", "red"]),
    "red": st.fixed_dictionaries({"q0": st.floats(0, 0.4), "q1": st.floats(0.5, 1), "p1": st.floats(0.05, 1)}),
})  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(flows=flows_st, first=link_st, second=link_st, both=st.booleans())
def test_bytes_are_conserved_and_bounds_hold(flows, first, second, both):
    links = [first | {"name": "a"}, second | {"name": "b"}]
    paths = [("a", "b"), ("a",), ("b",)] if both else [("a",)]
    sc = scenario(
        [{"cca": c, "access_delay_ms": d, "path": paths[i % len(paths)]} for i, (c, d) in enumerate(flows)], links=links,
        duration_s=1.5, measure_from_s=0.5, step_ms=0.25,
    )  # fmt: skip
    run = simulate(sc, 0.25e-3)
    m = run.metrics
    assert m.conservation_error < 1e-9
    buffers = np.array([link.buffer_bytes(sc.mss_bytes) for link in sc.links])
    queue, loss = run.link("queue_bytes"), run.link("loss")
    assert (queue >= 0).all() and (queue <= buffers * (1 + 1e-9)).all()
    assert (loss >= -1e-12).all() and (loss <= 1 + 1e-12).all() and 1 / len(flows) - 1e-9 <= m.jain <= 1 + 1e-9
    assert all(link.utilisation_pct <= 100 + 1e-6 for link in m.links) and (run.flow("inflight_bytes") > -1e-3).all()
    assert (run.flow("tau_s") >= run.flow("tau_s").min(axis=0) - 1e-12).all()


def test_conservation_per_flow_from_sent_to_delivered():
    """What a flow sent is lost, delivered, queued or in a pipe: checked with the trace and not with the kernel's sums."""
    sc = scenario(["bbr1", "reno", "bbr2"], measure_from_s=0.0)
    arrays = assemble(sc, 1)
    run = simulate(sc, sc.step_ms * 1e-3)
    step_s = sc.step_ms * 1e-3
    sent = run.flow("x_Bps").sum(axis=0) * step_s
    delivered = np.array(run.metrics.delivered_Bps) * sc.duration_s
    entry = arrays.hop_steps
    piped = np.array([run.flow("x_Bps")[-entry[i] :, i].sum() * step_s for i in range(3)])
    arrived = run.link("arrival_Bps")[:, 0] * step_s
    lost = (arrived * run.link("loss")[:, 0]).sum()
    balance = sent.sum() - piped.sum() - lost - delivered.sum() - run.link("queue_bytes")[-1, 0]
    assert lost > 0 and abs(balance) < 1e-9 * sent.sum()


def test_order_of_flows_does_not_matter():
    flows = [{"cca": c, "access_delay_ms": 3.0 + 1.7 * i, "agent": i + 1} for i, c in enumerate(CCAS + CCAS)]
    order = [5, 2, 7, 0, 3, 6, 1, 4]
    first, second = scenario(flows), scenario([flows[i] for i in order])
    assert assemble(first).flows.tobytes() == assemble(second).flows.tobytes()
    one, other = simulate(first, 0.01), simulate(second, 0.01)
    np.testing.assert_array_equal(one.flow("x_Bps")[:, order], other.flow("x_Bps"))
    straight, shuffled = one.metrics, other.metrics
    assert [straight.rate_Bps[i] for i in order] == list(shuffled.rate_Bps) and straight.loss_pct == shuffled.loss_pct

    # this would be empty if nothing depended on the agent number
    flows, other = ([{"cca": "bbr1", "access_delay_ms": 5.0, "agent": a} for a in agents] for agents in ((1, 2), (1, 4)))
    assert simulate(scenario(flows)).metrics.rate_Bps != simulate(scenario(other)).metrics.rate_Bps


def test_batch_equals_single_and_threads_do_not_matter():
    scenarios = [scenario(CCAS[: 1 + i % 4], links=[{"rate_mbps": 30 + i, "delay_ms": 8, "buffer_bdp": 1}]) for i in range(6)]
    single = [simulate(sc).metrics for sc in scenarios]
    assert simulate_batch(scenarios, threads=1) == single and simulate_batch(scenarios) == single
    with pytest.raises(InputError, match=r"threads must be in"):
        simulate_batch(scenarios, threads=0)
    with pytest.raises(InputError, match=r"at least one scenario"):
        simulate_batch([])


def test_second_link_that_never_queues_changes_nothing():
    one = scenario(CCAS, links=[{"rate_mbps": 50, "delay_ms": 8, "buffer_bdp": 2}])
    links = [
        {"name": "a", "rate_mbps": 50, "delay_ms": 4, "buffer_bdp": 4},  # the same 8 ms and the same buffer in bytes
        {"name": "b", "rate_mbps": 500, "delay_ms": 4, "buffer_bdp": 2},
    ]
    flows = [{"cca": c, "access_delay_ms": 4 + i, "path": ["a", "b"]} for i, c in enumerate(CCAS)]
    start = {"inflight_hi_bdp": 1.25}
    two = scenario([f | {"start": start} for f in flows], links=links)
    one = scenario([f | {"start": start, "path": []} for f in flows], links=one.links)
    assert one.links[0].buffer_bytes(1514) == pytest.approx(two.links[0].buffer_bytes(1514))
    a, b = simulate(one, 0.01), simulate(two, 0.01)
    np.testing.assert_allclose(a.flow("x_Bps"), b.flow("x_Bps"), rtol=1e-6)
    assert b.link("queue_bytes")[:, 1].max() == 0.0 and a.link("queue_bytes").max() > 0


def test_one_bbr1_flow_fills_its_link_and_a_parking_lot_both():
    m = simulate(scenario(["bbr1"], links=[{"rate_mbps": 100, "delay_ms": 10, "buffer_bdp": 2}])).metrics
    assert m.utilisation_pct > 99 and m.loss_pct < 1e-6
    links = [{"name": n, "rate_mbps": 40, "delay_ms": 5, "buffer_bdp": 2} for n in "ab"]
    flows = [{"cca": "reno", "access_delay_ms": 5, "path": p} for p in (["a", "b"], ["a"], ["b"])]
    m = simulate(scenario(flows, links=links, duration_s=20.0, measure_from_s=10.0)).metrics
    assert all(link.utilisation_pct > 90 for link in m.links)
    assert m.rate_Bps[0] < min(m.rate_Bps[1:])  # two losses on the way: fewer bytes than either neighbour


def equal_flows(cca, n, buffer_bdp, access_delay_ms, *seconds, **values):
    """Return the metrics of equal flows at 100 Mbit/s and 10 ms, and the time that the mean queue takes to leave."""
    flows, link = (
        [{"cca": cca, "access_delay_ms": access_delay_ms}] * n,
        {"rate_mbps": 100, "delay_ms": 10, "buffer_bdp": buffer_bdp},
    )
    m = simulate(scenario(flows, links=[link], duration_s=seconds[0], measure_from_s=seconds[1], **values)).metrics
    return m, m.occupancy_pct / 100 * buffer_bdp * 83 * 1514 / 12.5e6


@pytest.mark.parametrize("n", [3, 10])
def test_bbr1_simulation_meets_theorem_1_in_deep_buffers(n):
    """Equal RTTs and a deep buffer: queueing delay = propagation delay."""
    m, queue_s = equal_flows("bbr1", n, 7, 5.0, 12.0, 8.0)
    assert queue_s == pytest.approx(0.030, rel=0.05) and m.loss_pct == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("n", [10, 20])
def test_bbr1_simulation_meets_theorem_3_in_shallow_buffers(n):
    """Loss (N - 1)/(5N) for many flows, whose probing offsets each other's draining."""
    m, _ = equal_flows("bbr1", n, 1, 5.0, 9.0, 4.0, params="paper")
    assert m.loss_pct == pytest.approx(100 * (n - 1) / (5 * n), abs=1.6) and m.jain > 0.8


@pytest.mark.parametrize(("cca", "low", "high"), [("bbr1", 0.9, 1.1), ("bbr2", 9 / 41, 0.45)])
def test_bbr2_simulation_queues_a_fraction_of_bbr1(cca, low, high):
    """Theorem 4: under a quarter of BBRv1's queue; the full model's window of 0.85 w_hi > BDP allows a little more."""
    m, queue_s = equal_flows(cca, 10, 14, 20.0, 30.0, 15.0, params="paper")
    assert m.loss_pct < 1e-3 and low <= queue_s / 0.06 <= high


def test_inflight_hi_at_the_start_decides_the_queue_of_bbr2():
    """Insight 5 of [BBR-fluid]: the start-up bound alone makes the bufferbloat in deep buffers."""

    def occupancy(hi):
        flows = [{"cca": "bbr2", "access_delay_ms": 6.0 + i, "start": {"inflight_hi_bdp": hi}} for i in range(4)]
        links = [{"rate_mbps": 100, "delay_ms": 10, "buffer_bdp": 7}]
        return simulate(scenario(flows, links=links, duration_s=9.0)).metrics.occupancy_pct

    assert occupancy(3.0) > 2 * occupancy(1.25)


def test_averaged_red_queues_more():
    """[BBR-fluid] section 4.2: RED with an averaged queue reacts later and holds a longer queue."""

    def occupancy(averaging_s):
        link = {"rate_mbps": 50, "delay_ms": 8, "buffer_bdp": 2, "discipline": "red", "red": {"averaging_s": averaging_s}}
        return simulate(scenario(["reno", "reno"], links=[link], duration_s=20.0, measure_from_s=5.0)).metrics.occupancy_pct

    assert occupancy(0.5) > 1.5 * occupancy(0.0)


def test_red_thresholds():
    """Below q0 nothing is dropped: the queue of an insensitive flow stays above q0 and below q1."""
    link = {"rate_mbps": 50, "delay_ms": 8, "buffer_bdp": 2, "discipline": "red", "red": {"q0": 0.3, "q1": 0.9, "p1": 0.5}}
    run = simulate(scenario(["bbr1", "bbr1", "bbr1"], links=[link]), 1e-3)
    share = run.link("queue_bytes")[:, 0] / run.scenario.links[0].buffer_bytes(1514)
    assert run.link("loss")[share < 0.3].max() == 0.0 and share.max() <= 0.91 and share[len(share) // 2 :].max() > 0.3


def test_divergence_is_stopped_and_named():
    sc = scenario(["reno", "cubic"], overrides={"cubic_c": 1e40}, title="wild")
    with pytest.raises(EngineError, match=r"scenario 'wild' diverged: flow 2 \(cubic\) reached .* at .* s"):
        simulate(sc)
    with pytest.raises(EngineError, match=r"'wild' diverged"):
        simulate_batch([scenario(["bbr1"]), sc])


def test_jitter_is_the_mean_rtt_difference_at_the_packet_rate():
    """[BBR-fluid] section 4.3.5: RTT sampled every mss N / C, here redone from the trace."""
    sc = scenario(["bbr1", "reno", "cubic"], measure_from_s=1.0)
    run = simulate(sc, sc.step_ms * 1e-3)
    step_s, interval_s = sc.step_ms * 1e-3, 1514 * 3 / sc.links[0].capacity_Bps
    rtts, due_s = [], sc.measure_from_s
    for row, tau in enumerate(run.flow("tau_s")):
        n = row + 1
        if n > round(sc.measure_from_s / step_s) and n * step_s >= due_s:
            rtts.append(tau)
            due_s += interval_s
    expected_ms = 1e3 * np.mean(np.abs(np.diff(rtts, axis=0)))
    assert expected_ms > 0.001 and run.metrics.jitter_ms == pytest.approx(expected_ms, rel=1e-9)


def test_buffer_that_needs_too_much_memory():
    with pytest.raises(InputError, match=r"history .* needs .* GiB per run, at most 2 are allowed"):
        simulate(scenario(["bbr1"], links=[{"rate_mbps": 50, "delay_ms": 8, "buffer_bdp": 1e7}]))


def test_every_trace_column_is_the_field_it_is_named_after():
    sc = scenario(CCAS, links=[{"name": "a", "rate_mbps": 50, "delay_ms": 8, "buffer_bdp": 1.0}], duration_s=2.05)
    arrays = assemble(sc, 1)
    steps = int(arrays.cfg["steps"][0])
    flow_trace = np.zeros((steps, 4, len(FLOW_TRACE)))
    link_trace = np.zeros((steps, 1, len(LINK_TRACE)))
    run_one(arrays.cfg[0], arrays.flows, arrays.links, arrays.hop_link, arrays.hop_steps, flow_trace, link_trace)
    for column, name in enumerate(FLOW_TRACE):
        np.testing.assert_array_equal(flow_trace[-1, :, column], arrays.flows[name], err_msg=name)
    link = arrays.links[0]
    arrival = link["arriving_bytes"] / arrays.cfg["step_s"][0]
    assert link_trace[-1, 0].tolist() == [link["queue_bytes"], arrival, link["loss"]]
    assert len(set(flow_trace[-1, 1])) > 8  # the columns differ, so that a swap would be seen


def test_trace_columns_and_interval():
    run = simulate(scenario(["bbr2", "reno"]), 0.01)
    assert run.flow("x_Bps").shape == (300, 2) and run.time_s[-1] == pytest.approx(3.0)
    with pytest.raises(InputError, match=r"unknown trace column 'x_bps'"):
        run.flow("x_bps")
    with pytest.raises(InputError, match=r"at least the step"):
        simulate(run.scenario, 1e-5)


DELAYS_MS = [5.7, 9.2, 8.8, 6.3]


def reference_scenario(ccas, duration_s=2.5, step_ms=0.25, links=None, paths=None, params="artefact", **link):
    links = links or [{"rate_mbps": 40, "delay_ms": 10, "buffer_bdp": 2} | link]
    flows = [
        {"cca": cca, "access_delay_ms": d, "path": path}
        for cca, d, path in zip(ccas, DELAYS_MS, paths or [()] * len(ccas), strict=False)
    ]
    return Scenario(links=links, flows=flows, params=params, duration_s=duration_s, measure_from_s=0, step_ms=step_ms)


def compare(sc):
    run = simulate(sc, sc.step_ms * 1e-3)
    reference = Reference(sc)
    reference.run(len(run.time_s))
    rates, queues = np.array(reference.rates), np.array(reference.queues)
    capacity = sc.links[0].capacity_Bps
    np.testing.assert_allclose(run.flow("x_Bps"), rates, rtol=0, atol=1e-7 * capacity)
    np.testing.assert_allclose(run.link("queue_bytes"), queues, rtol=0, atol=1e-3)
    np.testing.assert_allclose(run.link("loss"), np.array(reference.losses)[1:], rtol=0, atol=1e-7)
    return run


@pytest.mark.parametrize("params", list(PARAMETER_SETS))
@pytest.mark.parametrize("discipline", ["drop-tail", "red"])
@pytest.mark.parametrize("cca", ["bbr1", "bbr2", "reno", "cubic"])
def test_kernel_equals_reference(cca, discipline, params):
    run = compare(reference_scenario([cca] * 2, discipline=discipline, duration_s=1.1, params=params))
    assert run.link("queue_bytes").max() > 0


@pytest.mark.parametrize("params", list(PARAMETER_SETS))
def test_kernel_equals_reference_mixed(params):
    run = compare(reference_scenario(["bbr1", "bbr2", "reno", "cubic"], buffer_bdp=1, params=params))
    assert run.link("loss").max() > 0.01


def test_kernel_equals_reference_averaged_red_and_several_bottlenecks():
    compare(reference_scenario(["bbr2", "reno"], discipline="red", red={"q0": 0.1, "q1": 0.8, "p1": 0.3, "averaging_s": 0.05}))
    first = {"name": "a", "rate_mbps": 40, "delay_ms": 5, "buffer_bdp": 2}
    links = [first, {"name": "b", "rate_mbps": 30, "delay_ms": 7, "buffer_bdp": 3, "discipline": "red"}]
    run = compare(reference_scenario(["bbr1", "bbr2", "cubic"], links=links, paths=[("a", "b"), ("a",), ("b",)]))
    assert (run.link("queue_bytes").max(axis=0) > 0).all()


def compare_started(sc, *starts):
    """Compare a scenario whose flows begin with other values; {} changes nothing."""
    begins = [flow.start.model_copy(update=start) for flow, start in zip(sc.flows, starts, strict=True)]
    flows = tuple(flow.model_copy(update={"start": begin}) for flow, begin in zip(sc.flows, begins, strict=True))
    return compare(sc.model_copy(update={"flows": flows}))


def test_kernel_equals_reference_in_probe_rtt_and_when_a_drain_ends():
    """A queue made by others keeps a BBRv2 flow from its drain target until the period ends, in published code for ten RTTs."""
    run = compare_started(reference_scenario(["bbr1", "bbr2"]), *[{"probe_rtt_timer_s": 1.0}] * 2)
    assert run.flow("m_prt").max(axis=0).tolist() == [1.0, 1.0]
    sc = reference_scenario(["bbr2", "cubic"], buffer_bdp=9, duration_s=2.5, params="paper")
    run = compare_started(sc, {"inflight_hi_bdp": 3.0}, {"cwnd_bdp": 3.0})
    draining, time_in_period_s = run.flow("m_dwn")[:, 0], run.flow("t_pbw_s")[:, 0]
    ends = (time_in_period_s[1:] < time_in_period_s[:-1]).nonzero()[0]
    assert len(ends) and draining[ends[0]] == 1.0 and draining[ends[0] + 1] == 0.0
    run = compare_started(reference_scenario(["bbr2", "cubic"], buffer_bdp=9, duration_s=4.0), {}, {"cwnd_bdp": 6.0})
    draining, in_period = run.flow("m_dwn")[:, 0], run.flow("t_pbw_s")[:, 0] / run.flow("tau_min_s")[:, 0]
    assert draining.max() == 1.0 and 9.9 < in_period[draining == 1.0].max() < 10.1


def test_files_by_name_and_path(tmp_path):
    assert {"validation", "validation_short_rtt", "parking_lot"} <= set(shipped())
    for name in shipped():
        loaded = load_sweep(name) if name.startswith("validation") else load_scenario(name)
        assert loaded.title
    path = tmp_path / "mine.yaml"
    links, flows = "links: [{rate_mbps: 100, delay_ms: 10, buffer_bdp: 1}]", "flows: [{cca: cubic, access_delay_ms: 2}]"
    path.write_text(f"kind: scenario\n{links}\noverrides: {{cubic_b: 0.3}}\n{flows}\n")
    merged = load_scenario(str(path), overrides={"cubic_c": 0.5})
    assert merged.overrides == {"cubic_b": 0.3, "cubic_c": 0.5}
    assert merged.links[0].buffer_bytes(1514) == 83 * 1514  # [BBR-fluid] validation: 1 BDP = 83 packets


def test_sweep_splits_a_mix_in_halves():
    link = {"rate_mbps": 10, "delay_ms": 5, "access_delays_ms": [1, 2, 3, 4]}
    sweep = Sweep(mixes=["bbr1/reno"], disciplines=["red"], buffers_bdp=[2], **link)
    scenario = sweep.scenario(*sweep.cells()[0])
    assert [f.cca for f in scenario.flows] == ["bbr1", "bbr1", "reno", "reno"] and scenario.links[0].discipline == "red"
