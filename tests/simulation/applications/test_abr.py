"""Rules for bitrates against values worked out by hand."""

import math

import pytest

from ccenv.simulation.applications.play import RULES, Player

LADDER = (1.0, 2.0, 4.0, 8.0)


def player(buffer_s: float, *throughputs: float, room_s: float = 24.0) -> Player:
    return Player(buffer_s, room_s, 4.0, throughputs)


@pytest.mark.parametrize(
    ("buffer_s", "level"),
    [
        (0.0, 0),
        (9.0, 0),  # reservoir: 90/240 of 24 s
        (11.0, 1),  # (11 - 9) / 12.6 of the way from 1 to 8 is 2.11
        (15.0, 2),  # 4.33
        (21.5, 2),  # 7.94
        (21.7, 3),  # beyond 216/240 of 24 s
    ],
)
def test_buffer_based(buffer_s: float, level: int) -> None:
    assert RULES["buffer"](LADDER, player(buffer_s)) == level


@pytest.mark.parametrize(
    ("throughputs", "level"),
    [
        ((), 0),
        ((4.0,), 2),
        ((3.999,), 1),
        ((0.5,), 0),
        ((8.0, 2.0), 1),  # harmonic mean 3.2, not 5
        ((0.1, 8.0, 8.0, 8.0, 8.0, 8.0), 3),  # the first is the sixth last
    ],
)
def test_throughput_based(throughputs: tuple[float, ...], level: int) -> None:
    assert RULES["throughput"](LADDER, player(8.0, *throughputs)) == level


def test_bola_is_the_argmax_of_its_formula() -> None:
    v = (24 / 4 - 1) / (math.log(8) + 5)
    for buffer_s in (0.0, 3.0, 8.0, 13.0, 18.0, 19.9, 20.0):
        values = [(v * (math.log(rate) + 5) - buffer_s / 4) / rate for rate in LADDER]
        assert values[RULES["bola"](LADDER, player(buffer_s))] == max(values)
    assert RULES["bola"](LADDER, player(0.0)) == 0
    assert RULES["bola"](LADDER, player(20.0)) == 3  # at Q_max - 1 chunks the highest bitrate has the value 0, the others less


def test_fixed() -> None:
    assert RULES["fixed"](LADDER, player(0.0)) == 3
