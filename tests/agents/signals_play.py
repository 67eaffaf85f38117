"""Records for plain Python and for machine code, random but possible signals, and a connection of constant ones.

The link of ``packet_link`` with round numbers: 12 Mbit/s, Rm 40 ms, segments of 1500 bytes: 1000 segments/s, BDP 40 segments.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from machine_code import machine_code

from ccenv.agents.callbacks import ACK, LOSS, TICK


def fresh_state(sender, as_record=True, *, mss_bytes=1500.0, seed=7, env=3, flow=0):
    """Return a zeroed state with header and parameters set, before init: as a record for plain Python, else as ``signal``."""
    state = np.zeros(1, sender.state)
    for name, value in {"mss_bytes": mss_bytes, "seed": seed, "env": env, "flow": flow, **sender.parameters}.items():
        state[name] = value
    return state.view(np.recarray)[0] if as_record else state[0]


def signal(dtype, as_record=True, **values):
    """Return one signal, as a record for plain Python; machine code takes it without that, which is made sooner."""
    record = np.zeros(1, dtype).view(np.recarray)[0] if as_record else np.zeros(1, dtype)[0]
    record["mss_bytes"] = 1500.0
    for name, value in values.items():
        record[name] = value
    return record


class Plain:
    """A record of numbers as plain Python reads and writes it, without the searches of a NumPy record."""

    def __init__(self, record):
        self.__dict__.update({name: np.float64(record[name]) for name in record.dtype.names})

    def __setattr__(self, name, value):
        assert name in self.__dict__, f"the state has no {name}"
        self.__dict__[name] = np.float64(value)

    def tolist(self):
        return tuple(self.__dict__.values())


def ack(**values):
    return signal(ACK, **values)


def loss(**values):
    return signal(LOSS, **values)


def tick(**values):
    return signal(TICK, **values)


_COMPILED = {}


def compiled(sender):
    """Return the four functions as the engines call them."""
    if sender.name not in _COMPILED:
        pairs = ((sender.init, ()), (sender.on_ack, (ACK,)), (sender.on_loss, (LOSS,)), (sender.on_tick, (TICK,)))
        _COMPILED[sender.name] = [machine_code(function, sender.state, *dtypes) for function, dtypes in pairs]
    return _COMPILED[sender.name]


def random_signals(rng, n, *, mss_bytes=1500.0):
    """Return n signals of a random but consistent connection: kinds 'ack', 'loss', 'tick'."""
    now_s, delivered, inflight, min_rtt_s = 0.0, 0.0, 20 * mss_bytes, np.inf
    base_rtt_s, rate_Bps = rng.uniform(0.001, 0.3), 10 ** rng.uniform(3, 9)
    round_end = 0.0
    out = []
    for _ in range(n):
        dt_s = base_rtt_s * 10 ** rng.uniform(-3, 0.5)
        now_s += dt_s
        kind = rng.choice(["ack", "ack", "ack", "ack", "loss", "tick"])
        if kind == "ack":
            size = min(inflight, 10 ** rng.uniform(-3, 6))
            if size <= 0.0:
                inflight += 10 * mss_bytes
                continue
            delivered += size
            inflight -= size
            rtt_s = base_rtt_s + rng.choice([0.0, rng.exponential(0.2 * base_rtt_s)])
            min_rtt_s = min(min_rtt_s, rtt_s)
            start = delivered >= round_end
            if start:
                round_end = delivered + inflight
            values = {
                "acked_bytes": size,
                "rtt_s": rtt_s,
                "min_rtt_s": min_rtt_s,
                "delivery_rate_Bps": rate_Bps * rng.uniform(0, 2),
                "round_start": float(start),
                "app_limited": float(rng.random() < 0.1),
                "ecn_fraction": float(rng.random() < 0.02),
                "prior_delivered_bytes": max(0.0, delivered - size - inflight * rng.uniform(0, 1.5)),
                "tx_inflight_bytes": inflight * rng.uniform(0, 1.5),
                "lost_since_bytes": inflight * max(0.0, rng.uniform(-1, 0.2)),
            }
        elif kind == "loss":
            timeout = rng.random() < 0.1
            size = inflight if timeout else inflight * rng.uniform(0, 0.3)
            if size <= 0.0:
                continue
            inflight -= size
            values = {
                "lost_bytes": size, "timeout": float(timeout), "new_episode": float(rng.random() < 0.5),
                "tx_inflight_bytes": size + inflight * rng.uniform(0, 1.5), "lost_since_bytes": size * rng.uniform(1, 2),
                "app_limited": float(rng.random() < 0.1), "contiguous": float(rng.random() < 0.5),
            }  # fmt: skip
        else:
            values = {"dt_s": dt_s, "min_rtt_s": min_rtt_s}
        out.append((kind, values | {"now_s": now_s, "delivered_bytes": delivered, "inflight_bytes": inflight}))
        inflight += rng.uniform(0, 2) * rate_Bps * dt_s
        inflight = min(inflight, 1e9)
    return out


@functools.cache
def random_records(seed, n):
    """Return the signals of a seed with their records, which nobody changes: kind, record, the same for plain Python."""
    dtypes = {"ack": ACK, "loss": LOSS, "tick": TICK}
    records = [(kind, signal(dtypes[kind], **values)) for kind, values in random_signals(np.random.default_rng(seed), n)]
    return [(kind, record, Plain(record)) for kind, record in records]


MSS = 1500.0
RATE_Bps = 1.5e6
RTT_S = 0.04
BDP_MSS = 40.0
LINK = {"rate_Bps": RATE_Bps, "rtt_s": RTT_S}


class Steady:
    """A connection whose window is acknowledged evenly, once per RTT, in so many pieces."""

    def __init__(self, sender, *, rtt_s=RTT_S, pieces=50):
        self.init, self.on_ack, self.on_loss, self.on_tick = compiled(sender)
        self.state = fresh_state(sender)
        self.init(self.state)
        self.rtt_s, self.pieces, self.now_s, self.delivered, self.count = rtt_s, pieces, 0.0, 0.0, 0

    def step(self, **values):
        """Acknowledge one piece of the window."""
        self.now_s += self.rtt_s / self.pieces
        cwnd_bytes = self.state["cwnd_bytes"]
        size = cwnd_bytes / self.pieces
        self.delivered += size
        given = {
            "now_s": self.now_s, "acked_bytes": size, "delivered_bytes": self.delivered, "rtt_s": self.rtt_s,
            "min_rtt_s": self.rtt_s, "delivery_rate_Bps": cwnd_bytes / self.rtt_s, "inflight_bytes": cwnd_bytes - size,
            "round_start": float(self.count % self.pieces == 0), "prior_delivered_bytes": max(0.0, self.delivered - cwnd_bytes),
            "tx_inflight_bytes": cwnd_bytes,
        }  # fmt: skip
        self.count += 1
        self.on_ack(self.state, signal(ACK, as_record=False, **(given | values)))

    def rounds(self, n, **values):
        for _ in range(n * self.pieces):
            self.step(**values)

    def lose(self, lost_bytes=MSS, **values):
        given = {
            "now_s": self.now_s, "lost_bytes": lost_bytes, "inflight_bytes": self.state.cwnd_bytes - lost_bytes,
            "delivered_bytes": self.delivered, "new_episode": 1.0,
        }  # fmt: skip
        self.on_loss(self.state, loss(**(given | values)))

    def tick(self, **values):
        given = {"now_s": self.now_s, "dt_s": 0.01, "delivered_bytes": self.delivered, "min_rtt_s": self.rtt_s}
        self.on_tick(self.state, tick(**(given | values)))

    def leave_recovery(self):
        self.delivered += self.state.cwnd_bytes * 3

    @property
    def cwnd_mss(self):
        return self.state.cwnd_bytes / MSS


Step = Callable[[Steady], object]


def rounds(count: int, **signal: float) -> Step:
    return lambda flow: flow.rounds(count, **signal)


def step(**signal: float) -> Step:
    return lambda flow: flow.step(**signal)


def lose(**signal: float) -> Step:
    return lambda flow: flow.lose(**signal)


def recover(flow: Steady) -> None:
    flow.leave_recovery()


def put(**fields: float) -> Step:
    def change(flow: Steady) -> None:
        for name, value in fields.items():
            flow.state[name] = value

    return change


def window(mss: float, **tolerance: float) -> Step:
    """Check the window, in segments."""

    def check(flow: Steady) -> None:
        assert flow.cwnd_mss == pytest.approx(mss, **({"rel": 1e-9} | tolerance))

    return check


def state(**fields: Any) -> Step:
    def check(flow: Steady) -> None:
        for name, value in fields.items():
            assert flow.state[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), name

    return check


def not_state(**fields: float) -> Step:
    """Check what fields of the state are not."""

    def check(flow: Steady) -> None:
        assert all(flow.state[name] != value for name, value in fields.items())

    return check
