"""Applications on simulated flows: what is played and which bit rate is chosen."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.simulation.applications import RULES, Call, Objects, Page, PagePlay, Player, Video, VideoPlay, call_outcome

STEP_S = 0.01
SEGMENT = 1500.0


class Pipe:
    """A link that delivers what is offered at a rate, flow after flow in the order of the offers: the plain reference."""

    def __init__(self, rate_Bps: float, n_flows: int = 1) -> None:
        self.rate_Bps, self.queue, self.delivered, self.offered = rate_Bps, [], [0.0] * n_flows, [0.0] * n_flows

    def run(self, play: PagePlay | VideoPlay, seconds: float) -> None:
        for k in range(1, round(seconds / STEP_S) + 1):
            room = self.rate_Bps * STEP_S
            while room > 0 and self.queue:
                flow, left = self.queue.pop(0)
                taken = min(room, left)
                self.delivered[flow] += taken
                room -= taken
                if left > taken:
                    self.queue.insert(0, (flow, left - taken))
            for flow, more in enumerate(play.step(k * STEP_S, self.delivered)):
                if more > 0:
                    self.queue.append((flow, more))
                    self.offered[flow] += more


def video(**changes: object) -> Video:
    return Video(kind="video", flow="v", **{"abr": "fixed", "ladder_Bps": (1e5,), "chunk_s": 2.0, "buffer_s": 10.0, **changes})


def test_a_fast_link_never_stalls() -> None:
    play, pipe = VideoPlay(video(), 0.02, 0.0, 1.0), Pipe(1e6)
    pipe.run(play, 60)
    values, series = play.outcome(60)
    assert values["video_startup_s"] == pytest.approx(0.2 + 0.02, abs=0.03)  # a chunk of 2e5 bytes, and the request
    assert values["video_stall_s"] == values["video_startup_s"]
    assert values["video_qoe"] == values["video_bitrate_mbps"] == pytest.approx(0.8)
    assert max(row[1] for row in series["video"]) <= 10


def test_a_slow_link_plays_as_much_as_it_carries() -> None:
    play, pipe = VideoPlay(video(), 0.02, 0.0, 1.0), Pipe(0.5e5)  # half of the bitrate
    pipe.run(play, 100)
    values, _ = play.outcome(100)
    assert play.played_s == pytest.approx(50, abs=3)
    assert values["video_stall_s"] + play.played_s == pytest.approx(100, abs=2 * STEP_S)
    rate = 0.8
    chunks = len(play.levels) - 1
    assert values["video_qoe"] == pytest.approx(rate - 4.3 * (values["video_stall_s"] - values["video_startup_s"]) / chunks)


@settings(max_examples=30, deadline=None)
@given(
    rate=st.floats(2e4, 3e6),
    abr=st.sampled_from(["fixed", "buffer", "throughput", "bola"]),
    segment=st.sampled_from([1.0, SEGMENT]),
    start_s=st.sampled_from([0.0, 1.5]),
)
def test_time_and_bytes_of_a_video_add_up(rate: float, abr: str, segment: float, start_s: float) -> None:
    play = VideoPlay(video(abr=abr, ladder_Bps=(2e4, 1e5, 4e5)), 0.05, start_s, segment)
    pipe = Pipe(rate)
    pipe.run(play, 40)
    values, series = play.outcome(40)
    assert play.played_s + values["video_stall_s"] == pytest.approx(40 - start_s, abs=2 * STEP_S)
    asked = sum(-(-play.video.ladder_Bps[level] * 2.0 // segment) * segment for level in play.levels)
    assert pipe.offered[0] in (pytest.approx(asked), pytest.approx(asked - _last(play, segment)))  # the last may be on its way
    assert pipe.delivered[0] <= pipe.offered[0] + 1e-6 and all(0 <= row[1] <= 10 + 1e-9 for row in series["video"])
    assert 0.16 - 1e-9 <= values["video_bitrate_mbps"] <= 3.2 + 1e-9 or len(play.levels) == 1


def _last(play: VideoPlay, segment: float) -> float:
    return -(-play.video.ladder_Bps[play.levels[-1]] * 2.0 // segment) * segment


def page(**changes: object) -> Page:
    waves = ((Objects(count=1, size_bytes=3000),), (Objects(count=6, size_bytes=30_000),))
    return Page(kind="page", flows="p", **{"waves": waves, "every_s": 5.0, **changes})


def test_a_page_takes_its_round_trips_and_its_bytes() -> None:
    play, pipe = PagePlay(page(), [0.1, 0.1], [0.05, 0.05], 0.0, SEGMENT), Pipe(1e6, 2)
    pipe.run(play, 4.9)
    ((begin_s, took_s),) = play.loads_s
    # two RTTs of set-up, the request and 3 kB of the first wave, then 6 objects over two connections: requests of one overlap
    # the transfer of the other
    assert begin_s == 0.0 and took_s == pytest.approx(0.2 + 0.05 + 0.003 + 3 * (0.05 + 0.03), abs=0.08)
    assert pipe.offered == pipe.delivered and sum(pipe.offered) == 3000 + 6 * 30_000


def test_visits_repeat_and_an_unfinished_one_counts_where_none_ended() -> None:
    play, pipe = PagePlay(page(), [0.02], [0.01], 0.0, SEGMENT), Pipe(1e6)
    pipe.run(play, 21)
    values, series = play.outcome(21)
    assert [begin for begin, _ in series["page_load_s"]] == pytest.approx([0, 5, 10, 15, 20], abs=STEP_S)
    assert values["page_loads"] == 5
    assert values["page_load_max_s"] == play.loads_s[0][1]  # only the first sets its connection up
    stuck = PagePlay(page(), [0.02], [0.01], 1.0, SEGMENT)
    Pipe(1.0).run(stuck, 9)
    assert stuck.outcome(9)[0] == {"page_load_s": 8.0, "page_load_max_s": 8.0, "page_loads": 0.0}


def test_a_slow_visit_is_followed_at_once() -> None:
    play, pipe = PagePlay(page(every_s=1.0), [0.02], [0.01], 0.0, SEGMENT), Pipe(5e4)
    pipe.run(play, 12)
    begins, times = zip(*play.loads_s, strict=True)
    assert len(begins) >= 2 and begins[1] == pytest.approx(begins[0] + times[0], abs=2 * STEP_S)


@settings(max_examples=20, deadline=None)
@given(rate=st.floats(1e5, 5e6), connections=st.integers(1, 8))
def test_a_page_asks_for_each_object_once(rate: float, connections: int) -> None:
    play = PagePlay(page(every_s=1000.0), [0.03] * connections, [0.03] * connections, 0.0, 1.0)
    pipe = Pipe(rate, connections)
    pipe.run(play, 10)
    assert len(play.loads_s) == 1 and sum(pipe.delivered) == pytest.approx(3000 + 6 * 30_000)
    assert play.loads_s[0][1] >= (3000 + 6 * 30_000) / rate


def test_a_call_over_a_constant_delay() -> None:
    time_s = np.arange(0, 20.001, 0.01)
    sent = 1e5 * time_s
    delivered = np.interp(time_s - 0.1, time_s, sent, left=0.0)
    values, series = call_outcome(Call(kind="call", flow="c"), time_s, sent, delivered, 0.0, 20.0)
    assert values["call_delay_p95_s"] == pytest.approx(0.1, abs=0.011) and values["call_on_time"] == 1.0
    assert values["call_bitrate_mbps"] == pytest.approx(0.8 * 19.9 / 20)
    assert len(series["call_delay_s"]) == pytest.approx(19 * 30, abs=1)
    late = np.where(time_s < 10, delivered, np.maximum(np.interp(9.99, time_s, delivered), np.interp(time_s - 0.3, time_s, sent)))
    values, _ = call_outcome(Call(kind="call", flow="c"), time_s, sent, late, 0.0, 20.0)
    assert values["call_on_time"] == pytest.approx(10 / 19, abs=0.03)


def test_a_call_that_sends_nothing() -> None:
    time_s = np.arange(0, 5, 0.01)
    values, _ = call_outcome(Call(kind="call", flow="c"), time_s, 0 * time_s, 0 * time_s, 0.0, 5.0)
    assert values == {"call_bitrate_mbps": 0.0, "call_on_time": 0.0}


@pytest.mark.parametrize(("kind", "data", "message"), [
    (Video, {"kind": "video", "flow": "v", "ladder_Bps": (2.0, 1.0)}, "must ascend"),
    (Video, {"kind": "video", "flow": "v", "buffer_s": 7.0}, "holds no two chunks"),
    (Video, {"kind": "video", "flow": "v", "abr": "bolla"}, "bola"),
    (Page, {"kind": "page", "flows": "p", "waves": ((),)}, "no objects"),
    (
        Page, {"kind": "page", "flows": "p", "waves": (({"count": 10000, "size_bytes": 1}, {"count": 1, "size_bytes": 1}),)},
        "10001",
    ),
    (Call, {"kind": "call", "flow": "c", "deadline_s": 0}, "deadline_s"),
])  # fmt: skip
def test_wrong_applications_are_one_line(kind: type, data: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=rf"\A.*{message}.*\Z"):
        validate(kind, data, "app")


LADDER = (1.0, 2.0, 4.0, 8.0)


def player(buffer_s: float, *throughputs: float, room_s: float = 24.0) -> Player:
    return Player(buffer_s, room_s, 4.0, throughputs)


@pytest.mark.parametrize(("rule", "buffer_s", "throughputs", "level"), [
    ("fixed", 0.0, (), 3), ("buffer", 0.0, (), 0), ("buffer", 9.0, (), 0),  # reservoir: 90/240 of 24 s
    ("buffer", 11.0, (), 1),  # (11 - 9) / 12.6 of the way from 1 to 8 is 2.11
    ("buffer", 15.0, (), 2), ("buffer", 21.5, (), 2),  # 4.33 and 7.94
    ("buffer", 21.7, (), 3),  # beyond 216/240 of 24 s
    ("throughput", 8.0, (), 0), ("throughput", 8.0, (4.0,), 2), ("throughput", 8.0, (3.999,), 1), ("throughput", 8.0, (0.5,), 0),
    ("throughput", 8.0, (8.0, 2.0), 1),  # harmonic mean 3.2, not 5
    ("throughput", 8.0, (0.1, 8.0, 8.0, 8.0, 8.0, 8.0), 3),  # the first is the sixth last
])  # fmt: skip
def test_rules(rule: str, buffer_s: float, throughputs: tuple[float, ...], level: int) -> None:
    assert RULES[rule](LADDER, player(buffer_s, *throughputs)) == level


def test_bola_is_the_argmax_of_its_formula() -> None:
    v = (24 / 4 - 1) / (math.log(8) + 5)
    for buffer_s in (0.0, 3.0, 8.0, 13.0, 18.0, 19.9, 20.0):
        values = [(v * (math.log(rate) + 5) - buffer_s / 4) / rate for rate in LADDER]
        assert values[RULES["bola"](LADDER, player(buffer_s))] == max(values)
    assert RULES["bola"](LADDER, player(0.0)) == 0
    assert RULES["bola"](LADDER, player(20.0)) == 3  # at Q_max - 1 chunks the highest bitrate has the value 0, the others less
