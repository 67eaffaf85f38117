"""CCAs alone on the plain link of ``packet_link``: utilisation, queue and reductions that their sources state."""

import math
from typing import Any

import numpy as np
import pytest
from packet_link import run_link
from signals_play import BDP_MSS, LINK, MSS, RTT_S, RATE_Bps

from ccenv.agents import make_sender


def measures(run: Any, after_s: float, until_s: float) -> dict[str, float]:
    """Return what is checked after a time: utilisation, segments queued, window, losses, and the reductions at loss events."""
    late = run.column("now_s") > after_s
    # The RTT counts the packet's own transmission as well: subtract the smallest RTT instead of Rm.
    queued_mss = (run.column("rtt_s")[late] - run.column("rtt_s").min()) * RATE_Bps / MSS
    lost_bytes = sum(size for now_s, size, *_ in run.losses if now_s > after_s)
    reductions = [(before, after) for now_s, _, before, after, episode in run.losses if episode and now_s > after_s]
    values = {
        "utilisation": run.rate_Bps(after_s, until_s) / RATE_Bps,
        "losses": float(len(run.losses)),
        "lost": lost_bytes / (run.rate_Bps(after_s, until_s) * (until_s - after_s) + lost_bytes),
        "queue": float(queued_mss.mean()),
        "queue low": float(queued_mss.min()),
        "queue high": float(queued_mss.max()),
        "queue swing": float(np.ptp(queued_mss)),
        "window high": float(run.column("cwnd_bytes")[late].max()) / MSS,
    }
    if reductions:
        values["before low"], values["before high"] = (limit(before for before, _ in reductions) / MSS for limit in (min, max))
        values["after low"], values["after high"] = (limit(after for _, after in reductions) / MSS for limit in (min, max))
        values["kept low"], values["kept high"] = (limit(after / before for before, after in reductions) for limit in (min, max))
    return values


FULL = (0.998, 1.002)
# (spec, buffer in segments, seconds, measured after s, {measure: (least, greatest)})
FLOWS: list[tuple[str, float, float, float, dict[str, tuple[float, float]]]] = [
    ("constant:rate_mbps=6", math.inf, 3, 1, {"utilisation": (0.499, 0.501)}),
    # Window between half and all of BDP + buffer; with a buffer of one BDP the link never idles.
    ("reno", 40, 12, 5, {"utilisation": (0.99, 1.01), "before low": (76, 84), "before high": (76, 84), "kept low": (0.475, 0.525),
                         "kept high": (0.475, 0.525), "window high": (76, 84)}),
    ("cubic", 40, 8, 3, {"utilisation": (0.99, 1.01)}),
    # Between alpha and beta segments; the window may exceed the threshold by less than a segment.
    ("vegas", 200, 8, 5, {"utilisation": FULL, "losses": (0, 0), "queue low": (2, 4), "queue high": (2, 5)}),
    # Fixed point of w = (baseRTT/RTT) w + alpha: w (1 - baseRTT/RTT) = alpha.
    *[(f"fast:alpha_mss={alpha}", 200, 8, 5,
       {"utilisation": FULL, "losses": (0, 0), "queue": (alpha - 1, alpha + 1), "queue swing": (0, 1 + 1e-6)})
      for alpha in (5, 20)],
    ("hybla", 60, 10, 3, {"utilisation": (0.97, 1.01)}),
    # Losses come at the largest delay, so beta = 1/2 and the window stays above one BDP.
    ("illinois", BDP_MSS, 20, 5, {"utilisation": (0.95, 1.01), "kept low": (0.47, 0.53)}),
    # NSDI 2018 s.3: in equilibrium a queue goes from 0 to 2.5/delta segments, 1.25/delta on average.
    *[(f"copa:default_delta={delta}", 400, 14, 6,
       {"utilisation": (0.98, 1.01), "queue": (1.0 / delta, 1.5 / delta), "queue low": (0, 0.1 / delta),
        "queue high": (1.625 / delta, 3.375 / delta)}) for delta in (0.5, 0.1)],
    # RFC 6817 s.2.4.2: the window rests where the queueing delay is TARGET: 100 ms is 100 segments here. The distance decays by a
    # factor e in TARGET/MSS*C round trips: 20 of 60 ms, or 100 of 140 ms, which starts near its rest.
    *[(f"ledbat:target_ms={target},initial_window_mss={start}", 400, 8, 6,
       {"utilisation": (0.997, 1.003), "losses": (0, 0), "queue": (target - 2.5, target + 2.5)})
      for target, start in ((100, 139), (20, 30))],
    # The estimate is the link's rate: after a loss the window is the BDP (41 segments with one transmission time), not half.
    ("westwood", 100, 16, 8, {"utilisation": (0.99, 1.01), "after low": (39.8, 42.2), "after high": (39.8, 42.2)}),
    # [Starvation] s.5.3: it comes close to using the link, with a queue near zero (after the first swings).
    ("vivace", BDP_MSS, 20, 12, {"utilisation": (0.85, 1.01), "queue": (0, 5), "lost": (0, 1e-3)}),
    ("allegro", BDP_MSS, 20, 8, {"utilisation": (0.97, 1.01), "lost": (1e-9, 0.05)}),
    ("proteus", BDP_MSS, 20, 12, {"utilisation": (0.85, 1.01), "queue": (0, 5), "lost": (0, 1e-3)}),
    # Slopes below 1 % are noise to the utility: a queue stays, and losses keep it below the buffer.
    ("libra", 4 * BDP_MSS, 20, 8, {"utilisation": (0.98, 1.01), "lost": (0, 0.01)}),
    # A sawtooth of delay: up to the threshold of 50 segments here, then half of the 90 in flight; the pause empties the queue.
    ("aimd_delay", 200, 12, 5, {"utilisation": (0.93, 1.01), "losses": (0, 0), "queue high": (49, 53), "queue low": (0, 1)}),
    # Within Rm + 100 ms 95 % of the paths deliver 113 segments: 40 in the pipe, the rest in the queue (by hand, from the filter's
    # fixed point v = 62^2).
    ("sprout", 200, 12, 8, {"utilisation": FULL, "losses": (0, 0), "queue": (68, 78)}),
    ("verus", 200, 20, 8, {"utilisation": (0.93, 1.01), "queue": (10, 50), "queue high": (20, 80)}),
    ("packet_train", math.inf, 4, 1, {"utilisation": FULL, "losses": (0, 0), "queue high": (0, 1)}),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "buffer", "seconds", "after_s", "ranges"), FLOWS, ids=[row[0] for row in FLOWS])
def test_alone_on_the_link(spec, buffer, seconds, after_s, ranges):
    values = measures(run_link(make_sender(spec), seconds, buffer_packets=buffer, **LINK), after_s, seconds)
    wrong = {name: values[name] for name, (least, greatest) in ranges.items() if not least <= values[name] <= greatest}
    assert not wrong


def test_link_itself_is_what_the_numbers_assume() -> None:
    """Overload: the link carries C; the last packet of a full buffer waits buffer/C."""
    run = run_link(make_sender("constant:rate_mbps=24"), 3, buffer_packets=50, **LINK)
    assert run.rate_Bps(1, 3) == pytest.approx(RATE_Bps, rel=2e-3)
    assert run.column("rtt_s").max() == pytest.approx(RTT_S + 51 * MSS / RATE_Bps, abs=2 * MSS / RATE_Bps)
    assert math.isclose(run.column("rtt_s").min(), RTT_S + MSS / RATE_Bps, rel_tol=1e-9)


def test_exp_delay_swings_around_the_delay_of_the_link_rate() -> None:
    """12 Mbit/s = mu_minus 2^6.9: the map passes it at 100 - 69 = 31 ms.

    Rate and queue integrate one after the other, so that the loop swings and empties the queue for a part of each period.
    """
    run = run_link(make_sender("exp_delay"), 14, **LINK)
    queueing_s = run.column("rtt_s")[run.column("now_s") > 6] - run.column("rtt_s").min()
    low_s, high_s = np.percentile(queueing_s, [5, 95])
    assert low_s < 0.1 - 0.01 * math.log2(12 / 0.1) < high_s < 0.1 and run.rate_Bps(6, 14) > 0.9 * RATE_Bps


@pytest.mark.parametrize("name", ["reno", "cubic"])
def test_prr_leaves_no_silence_after_a_loss(name: str) -> None:
    """RFC 9937: what is in flight falls by less than five segments within six ACKs, and by more without it."""
    longest = {}
    for prr in (0, 1):
        run = run_link(make_sender(f"{name}:prr={prr}"), 12, buffer_packets=40, **LINK)
        inflight = run.column("inflight_bytes")[run.column("now_s") > 4]
        longest[prr] = max(before - after for before, after in zip(inflight[:-6], inflight[6:], strict=True)) / MSS
    assert longest[0] > 5 > longest[1]
