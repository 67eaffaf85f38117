"""The Numba kernels against the plain reference."""

import numpy as np
import pytest
from oracles.fluid import Reference

from ccenv.engine.fluid.parameters import PARAMETER_SETS
from ccenv.engine.fluid.scenario import Scenario
from ccenv.engine.fluid.simulate import simulate

DELAYS_MS = [5.7, 9.2, 8.8, 6.3]


def scenario(ccas, duration_s=2.5, step_ms=0.25, links=None, paths=None, params="artefact", **link):
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
    run = compare(scenario([cca] * 2, discipline=discipline, duration_s=2.2, params=params))
    assert run.link("queue_bytes").max() > 0


@pytest.mark.parametrize("params", list(PARAMETER_SETS))
def test_kernel_equals_reference_mixed(params):
    run = compare(scenario(["bbr1", "bbr2", "reno", "cubic"], buffer_bdp=1, params=params))
    assert run.link("loss").max() > 0.01


def test_kernel_equals_reference_averaged_red():
    compare(scenario(["bbr2", "reno"], discipline="red", red={"q0": 0.1, "q1": 0.8, "p1": 0.3, "averaging_s": 0.05}))


def test_kernel_equals_reference_several_bottlenecks():
    links = [
        {"name": "a", "rate_mbps": 40, "delay_ms": 5, "buffer_bdp": 2},
        {"name": "b", "rate_mbps": 30, "delay_ms": 7, "buffer_bdp": 3, "discipline": "red"},
    ]
    run = compare(scenario(["bbr1", "bbr2", "cubic"], links=links, paths=[("a", "b"), ("a",), ("b",)]))
    assert (run.link("queue_bytes").max(axis=0) > 0).all()


def test_kernel_equals_reference_in_probe_rtt():
    sc = scenario(["bbr1", "bbr2"])
    flows = [flow.model_copy(update={"start": flow.start.model_copy(update={"probe_rtt_timer_s": 1.0})}) for flow in sc.flows]
    run = compare(sc.model_copy(update={"flows": tuple(flows)}))
    assert run.flow("m_prt").max(axis=0).tolist() == [1.0, 1.0]


def test_kernel_equals_reference_when_a_period_ends_the_drain():
    """A queue made by others keeps a BBRv2 flow with a loose inflight_hi from its drain target until the period ends."""
    sc = scenario(["bbr2", "cubic"], buffer_bdp=9, duration_s=2.5, params="paper")
    loose = sc.flows[0].start.model_copy(update={"inflight_hi_bdp": 3.0})
    full = sc.flows[1].start.model_copy(update={"cwnd_bdp": 3.0})
    flows = (sc.flows[0].model_copy(update={"start": loose}), sc.flows[1].model_copy(update={"start": full}))
    run = compare(sc.model_copy(update={"flows": flows}))
    draining, time_in_period_s = run.flow("m_dwn")[:, 0], run.flow("t_pbw_s")[:, 0]
    ends = (time_in_period_s[1:] < time_in_period_s[:-1]).nonzero()[0]
    assert len(ends)
    assert draining[ends[0]] == 1.0 and draining[ends[0] + 1] == 0.0


def test_a_drain_of_the_published_code_ends_after_ten_rtts():
    sc = scenario(["bbr2", "cubic"], buffer_bdp=9, duration_s=4.0)
    full = sc.flows[1].start.model_copy(update={"cwnd_bdp": 6.0})
    run = compare(sc.model_copy(update={"flows": (sc.flows[0], sc.flows[1].model_copy(update={"start": full}))}))
    draining, in_period = run.flow("m_dwn")[:, 0], run.flow("t_pbw_s")[:, 0] / run.flow("tau_min_s")[:, 0]
    assert draining.max() == 1.0
    assert 9.9 < in_period[draining == 1.0].max() < 10.1
