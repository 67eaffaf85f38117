"""Every classic CCA: compiles, equals its plain Python form, stays finite, refuses bad parameters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plain import plain_sender
from signals_play import Plain, compiled, fresh_state, random_records, random_signals, signal

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.callbacks import ACK, LOSS, TICK
from ccenv.agents.classic import common
from ccenv.base.errors import InputError

CLASSIC = AGENTS.names("classic")
DTYPES = {"ack": ACK, "loss": LOSS, "tick": TICK}


@pytest.mark.parametrize("name", CLASSIC)
def test_compiled_equals_plain_python(name):
    sender = make_sender(name)
    init, *callbacks = compiled(sender)
    fast = dict(zip(DTYPES, callbacks, strict=True))
    python = plain_sender(sender)
    slow = {"ack": python.on_ack, "loss": python.on_loss, "tick": python.on_tick}
    for seed in range(6):
        one, other, signals = fresh_state(sender), Plain(fresh_state(sender)), random_records(seed, 400)
        found, expected = [], []
        init(one)
        python.init(other)
        for kind, record, plain in signals:
            fast[kind](one, record)
            slow[kind](other, plain)
            found.append(one.tolist())
            expected.append(other.tolist())
        equal = np.isclose(found, expected, rtol=1e-12, atol=0, equal_nan=True).all(axis=1)
        assert equal.all(), f"after signal {equal.argmin()}: {signals[equal.argmin()][:2]}"


@pytest.mark.parametrize("name", CLASSIC)
def test_state_stays_finite_and_window_positive(name):
    sender = make_sender(name)
    init, *callbacks = compiled(sender)
    call = dict(zip(DTYPES, callbacks, strict=True))
    for seed in range(100, 112):
        state, states = fresh_state(sender), []
        init(state)
        for kind, record, _ in random_records(seed, 300):
            call[kind](state, record)
            states.append(state.tolist())
        fields = dict(zip(sender.state.names, np.array(states).T, strict=True))
        assert (fields["cwnd_bytes"] >= 1500.0).all()
        assert (fields.pop("pacing_rate_Bps") > 0.0).all()  # infinite: not paced
        for field, values in fields.items():
            assert np.isfinite(values).all(), (seed, field)


# Not those with absolute rates: utilities of Vivace, Proteus and Libra are in Mbit/s, the Linux modules begin at 512 KiB/s.
@pytest.mark.parametrize("name", sorted({*CLASSIC} - {"vivace", "vivace_linux", "allegro_linux", "proteus", "libra"}))
def test_state_does_not_depend_on_mss_unit(name):
    """Bytes and segments scaled together give the same window in segments."""
    sender = make_sender(name)
    windows = []
    for scale in (1.0, 4.0):
        init, *callbacks = compiled(sender)
        call = dict(zip(DTYPES, callbacks, strict=True))
        state = fresh_state(sender, mss_bytes=1500.0 * scale)
        init(state)
        for kind, values in random_signals(np.random.default_rng(5), 300):
            scaled = {k: v * scale if k.endswith(("_bytes", "_Bps")) else v for k, v in values.items()}
            call[kind](state, signal(DTYPES[kind], **scaled))
        windows.append(state.cwnd_bytes / state.mss_bytes)
    if name in {"constant", "ever_delay", "exp_delay", "gcc"}:  # their window never binds
        assert windows[1] == windows[0] / 4.0
    elif name in {"bbr1", "bbr2", "bbr3"}:  # their send quantum has thresholds in absolute rates
        assert windows[1] == pytest.approx(windows[0], rel=0.5)
    else:
        assert windows[1] == pytest.approx(windows[0], rel=1e-9)


@given(st.lists(st.tuples(st.floats(0.001, 3.0), st.floats(0.01, 10.0)), min_size=1, max_size=60), st.floats(0.5, 5.0))
@settings(max_examples=200, deadline=None)
def test_windowed_min_is_a_recent_sample_not_below_the_true_minimum(steps, window):
    update = common.windowed_min.py_func
    samples, now, seen = (0.0,) * 6, 0.0, []
    for gap, value in steps:
        now += gap
        seen.append((now, value))
        samples = update(samples, now, value, window)
        recent = [v for t, v in seen if now - t <= window]
        assert samples[0] in recent and samples[0] >= min(recent)
        # The second sample is never older than a quarter of the window plus one gap: recent minima are not forgotten.
        newest_quarter = [v for t, v in seen if t > samples[1]]
        assert samples[0] <= min(newest_quarter, default=np.inf) or now - samples[1] <= window


def test_windowed_min_forgets_an_expired_minimum():
    update = common.windowed_min.py_func
    samples = (0.0,) * 6
    for now, value in ((0.0, 1.0), (3.0, 5.0), (6.0, 4.0), (9.0, 6.0), (11.0, 7.0)):
        samples = update(samples, now, value, 10.0)
    assert samples[0] == 4.0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("reno:initial_window_mss=0", "initial_window_mss is 0; it must be a finite number at least 1"),
        ("reno:window=3", "unknown parameter 'window'. Did you mean 'initial_window_mss'"),
        ("reno:limit_mss=0", "limit_mss is 0; it must be"),
        ("cubic:fast_convergence=2", "fast_convergence is 2; it must be a whole number at least 0 and at most 1"),
        ("vegas:alpha_mss=5", "beta_mss is 4; it must be at least alpha_mss, 5"),
        ("copa:default_delta=0", "default_delta is 0"),
        ("constant:rate_mbps=-1", "rate_mbps is -1; it must be a finite number above 0"),
        ("exp_delay:jitter_ms=1,max_queueing_ms=1000", "fairness^(max_queueing_ms/jitter_ms) is 2^1000; it must be at most e^60"),
        ("exp_delay:decrease=1", "decrease is 1; it must be below 1"),
        ("exp_delay:fairness=1", "fairness is 1; it must be a finite number above 1"),
        ("ever_delay:fairness=2", "no certificate for fairness 2, jitter_rtts 1, shares 100; the nearest is fairness 3"),
        ("ever_delay:jitter_rtts=0.2,shares=120,fairness=2", "the nearest is fairness 1.97, jitter_rtts 0.25, shares 122"),
        ("ever_delay:max_share_mbps=0", "max_share_mbps is 0"),
        ("ever_delay:start_share_mbps=-1", "start_share_mbps is -1"),
        ("gcc:start_mbps=3", "gcc"),
        ("gcc:min_mbps=0", "min_mbps is 0"),
        ("gcc:max_mbps=0.1", "gcc"),
        ("lambda_proxy:inner=lambda_proxy", "cannot stand behind a proxy"),
        ("lambda_proxy:inner=renno", "Did you mean 'reno'"),
        ("lambda_proxy:target_s=0", "target_s is 0; it must be a finite number above 0"),
        ("lambda_proxy:window_s=-1", "window_s is -1"),
        ("fixed_delay_proxy:delay_s=nan", "delay_s is nan"),
        ("cc_qdle", "Did you mean 'cc_qdel'"),
        ("cc_probe_slow:k=0", "k is 0"),
        ("cc_probe_slow:k=1.5", "k is 1.5"),
        ("cc_probe_slow:k=65", "k is 65"),
        ("cc_probe_slow:f=squrt", "f is 'squrt'; allowed are const, log, sqrt, linear"),
        ("nice:fraction=1.5", "fraction is 1.5"),
        ("sprout:risk=0", "risk is 0"),
        ("verus:ratio=1", "ratio is 1; it must be a finite number above 1"),
        ("proteus:scavenger=2", "scavenger is 2"),
        ("aimd_delay:decrease=1", "decrease is 1"),
    ],
)
def test_bad_specs_are_refused_in_one_line(spec, words):
    with pytest.raises(InputError) as caught:
        make_sender(spec)
    assert words in str(caught.value) and "\n" not in str(caught.value)
