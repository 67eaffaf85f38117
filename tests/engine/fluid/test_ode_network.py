"""Several bottlenecks: equilibria against closed forms and simulation, stability with delays against simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.base.errors import InputError
from ccenv.engine.fluid.analysis.equilibria import cubic_window, network_equilibrium, reno_window
from ccenv.engine.fluid.analysis.stability import Characteristic, network_stability
from ccenv.engine.fluid.scenario import Scenario
from ccenv.engine.fluid.simulate import simulate

MSS = 1514


def parking_lot(hops=3, rate=5.0, delay=10.0, access=5.0, buffer=20.0, cca="reno", **changes):
    """One flow over all links and one over each."""
    discipline = changes.pop("discipline", "red")
    link = {"rate_mbps": rate, "delay_ms": delay, "buffer_bdp": buffer, "discipline": discipline}
    links = [link | {"name": f"l{k}"} for k in range(hops)]
    names = [link["name"] for link in links]
    flows = [{"cca": cca, "access_delay_ms": access, "path": path} for path in (names, *([n] for n in names))]
    return Scenario(**({"links": links, "flows": flows, "duration_s": 30, "measure_from_s": 20, "step_ms": 0.5} | changes))


@settings(max_examples=8, deadline=None)
@given(hops=st.integers(1, 5), rate=st.floats(1.0, 1000.0), delay=st.floats(1.0, 50.0), buffer=st.floats(0.5, 40.0))
def test_windows_share_by_the_root_of_their_loss(hops, rate, delay, buffer):
    """Reno over a parking lot: w = sqrt(2 (1 - p)/p), so with small losses the long flow's window is 1/sqrt(K) of the others'."""
    point = network_equilibrium(parking_lot(hops, rate, delay, buffer=buffer))
    assert point.residual < 1e-8 and all(u == pytest.approx(1.0, rel=1e-8) for u in point.utilisation)
    path_loss = 1.0 - math.prod(1.0 - p for p in point.link_loss)
    assert point.loss[0] == pytest.approx(path_loss, rel=1e-9)
    for w, p in zip(point.windows_packets, point.loss, strict=True):
        assert w == pytest.approx(max(math.sqrt(2 * (1 - p) / p), 1.0), rel=1e-9)
    if point.loss[0] < 1e-3:
        assert point.windows_packets[0] / point.windows_packets[1] == pytest.approx(1 / math.sqrt(hops), rel=0.01)


def test_one_flow_one_drop_tail_link_in_closed_form():
    """The queue is full: w = C tau/(1 - p), tau = d + B/C, and p follows from w = sqrt(2 (1 - p)/p)."""
    sc = parking_lot(1, rate=10.0, buffer=1.0, discipline="drop-tail")
    sc = Scenario(**(sc.model_dump() | {"flows": [sc.flows[1].model_dump()]}))
    point = network_equilibrium(sc)
    capacity, buffer = 1.25e6, 9 * MSS
    tau = 0.03 + buffer / capacity
    bdp = capacity * tau / MSS
    (p,) = np.roots([1.0, -3.0, 3.0 + bdp**2 / 2, -1.0])[np.abs(np.roots([1.0, -3.0, 3.0 + bdp**2 / 2, -1.0]).imag) < 1e-9].real
    assert point.link_loss[0] == pytest.approx(p, rel=1e-6) and point.rtt_s[0] == pytest.approx(tau)
    assert point.queue_bytes[0] == buffer


def test_windows_at_rest():
    assert reno_window(0.5) == pytest.approx(math.sqrt(2.0))
    assert reno_window(0.0) == math.inf and cubic_window(0.0, 0.1, 0.4, 0.7) == math.inf
    w = cubic_window(1e-4, 0.05, 0.4, 0.7)
    since_loss = 1.0 / (w / 0.05 * 1e-4)
    assert since_loss == pytest.approx((w * 0.7 / 0.4) ** (1 / 3))  # at rest the time since the last loss is the plateau's


def test_a_link_without_queue_loses_nothing():
    sc = parking_lot(2)
    links = [sc.links[0].model_dump(), sc.links[1].model_dump() | {"rate_mbps": 500.0}]
    flows = [sc.flows[0].model_dump(), sc.flows[1].model_dump(), sc.flows[0].model_dump()]
    point = network_equilibrium(Scenario(**(sc.model_dump() | {"links": links, "flows": flows})))
    assert point.link_loss[1] == 0.0 and point.queue_bytes[1] == 0.0 and point.utilisation[1] < 0.02
    assert point.windows_packets[0] == point.windows_packets[1] == point.windows_packets[2]


@pytest.mark.parametrize(("hops", "rate", "buffer"), [(3, 5.0, 20.0), (2, 2.0, 40.0)])
def test_simulation_comes_to_the_equilibrium(hops, rate, buffer):
    sc = parking_lot(hops, rate, buffer=buffer)
    point, metrics = network_equilibrium(sc), simulate(sc).metrics
    np.testing.assert_allclose(metrics.rate_Bps, point.rate_Bps, rtol=2e-3)
    np.testing.assert_allclose([link.loss_pct / 100 for link in metrics.links], point.link_loss, rtol=5e-3)
    np.testing.assert_allclose(metrics.rtt_ms, 1e3 * np.array(point.rtt_s), rtol=2e-3)


def test_cubic_comes_to_its_equilibrium():
    sc = parking_lot(1, 2.0, buffer=40.0, cca="cubic", duration_s=400, measure_from_s=350)
    point, metrics = network_equilibrium(sc), simulate(sc).metrics
    np.testing.assert_allclose(metrics.rate_Bps, point.rate_Bps, rtol=0.03)


def test_characteristic_function_of_one_link_in_closed_form():
    """One Reno flow, one RED link: M(s) written out by hand."""
    sc = parking_lot(1)
    sc = Scenario(**(sc.model_dump() | {"flows": [sc.flows[1].model_dump()]}))
    point = network_equilibrium(sc)
    s = 3.0 + 7.0j
    p, w, tau, capacity = point.link_loss[0], point.windows_packets[0], point.rtt_s[0], sc.links[0].capacity_Bps
    x, slope, wait = w / tau, 1.0 / sc.links[0].buffer_bytes(MSS), point.queue_bytes[0] / capacity
    there, after = np.exp(-s * 0.005), np.exp(-s * (wait + 0.010 + 0.015))
    from_w, from_q = 1.0 / tau, -w / tau**2 / capacity
    queue_row = [-MSS * (1 - p) * there * from_w, s - MSS * ((1 - p) * there * from_q - x * slope)]
    acked_w = (1 - p) * there * from_w * after
    acked_q = ((1 - p) * there * from_q - x * slope - x * (1 - p) * s / capacity) * after
    lost_w, lost_q = p * from_w * np.exp(-s * tau), (p * from_q * np.exp(-s * tau) + x * slope * np.exp(-s * (tau - 0.005)))
    window_row = [s + x * (1 - p) / w**2 + 0.5 * p * x - acked_w / w + 0.5 * w * lost_w, -acked_q / w + 0.5 * w * lost_q]
    np.testing.assert_allclose(Characteristic(sc, point).matrix(s), [window_row, queue_row], rtol=1e-12)


def test_stability_is_what_the_simulation_shows():
    """A stable lot is at rest after a while; the unstable one (longer RTTs, larger windows) never is."""
    for sc, verdict in ((parking_lot(2), "asymptotically stable"), (parking_lot(2, rate=20.0, buffer=2.0), "unstable")):
        found = network_stability(sc)
        queues = simulate(sc, 0.01).link("queue_bytes")[-800:]
        swing = (queues.max(axis=0) - queues.min(axis=0)) / network_equilibrium(sc).queue_bytes
        assert found.verdict == verdict
        assert (found.unstable_roots > 0) == (found.rightmost.real > 0) == (verdict == "unstable")
        assert (swing.max() < 1e-3) == (verdict == "asymptotically stable")


def test_deviations_decay_as_the_rightmost_root_says():
    sc = parking_lot(1, duration_s=8.0, measure_from_s=1.0, step_ms=0.05)
    sc = Scenario(**(sc.model_dump() | {"flows": [sc.flows[1].model_dump()]}))
    root = network_stability(sc).rightmost
    queue = simulate(sc, 1e-3).link("queue_bytes")[:, 0]
    off = np.abs(queue - queue[-1])
    inner = off[1:-1]
    peaks = 1 + np.flatnonzero((inner > off[:-2]) & (inner >= off[2:]) & (inner > 1e-5 * queue[-1]) & (inner < 0.05 * queue[-1]))
    slope, _ = np.polyfit(1e-3 * peaks, np.log(off[peaks]), 1)
    assert len(peaks) >= 4 and slope == pytest.approx(root.real, rel=0.05)
    assert math.pi / np.mean(np.diff(1e-3 * peaks)) == pytest.approx(root.imag, rel=0.05)


@pytest.mark.parametrize(("analysis", "change", "message"), [
    (network_equilibrium, {"params": "artefact"}, "need the printed equations, params: paper .got artefact."),
    (network_equilibrium, {"cca": "bbr1"}, "are those of reno and cubic .got bbr1."),
    (network_stability, {"discipline": "drop-tail"}, "needs RED without averaging"),
    (network_stability, {"cca": "cubic"}, "is that of reno"),
])  # fmt: skip
def test_what_has_no_equilibrium_or_linearisation(analysis, change, message):
    with pytest.raises(InputError, match=message):
        analysis(parking_lot(**change))


def test_network_command(refused, answer):
    out = answer(["ode", "equilibrium", "parking_lot_reno", "--stability", "-s", "simulate=true", "--json"])
    unequal = answer(["ode", "equilibrium", "bbr2", "--flows", "2", "-s", "rtt_ms=30,40", "-s", "numeric=true", "--json"])
    assert unequal["regime"] == "numeric" and unequal["x_btl_Bps"][0] < unequal["x_btl_Bps"][1]
    assert out["stability"]["verdict"] == "asymptotically stable"
    np.testing.assert_allclose(out["simulated"]["rate_Bps"], out["equilibrium"]["rate_Bps"], rtol=2e-3)
    refused(["ode", "equilibrium", "parking_lot"])
