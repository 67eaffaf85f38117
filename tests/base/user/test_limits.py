"""The time limit of users' code."""

from __future__ import annotations

import threading
import time

import pytest

from ccenv.base.user.limits import limited


def spin() -> None:
    while True:
        pass


def stubborn() -> None:
    while True:
        try:
            spin()
        except Exception:
            continue


@pytest.mark.parametrize("function", [spin, stubborn])
def test_what_does_not_come_back_is_ended(function) -> None:
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match=r"f has not come back within 0\.3 s") as caught, limited("f", 0.3):
        function()
    assert time.monotonic() - begin < 60
    assert "spin" in [frame.name for frame in caught.traceback]


def test_what_comes_back_in_time_is_not_touched() -> None:
    for _ in range(2000):
        with limited("f", 0.5):
            pass
    time.sleep(1)
    with limited("f", 5.0):
        assert sum(range(100)) == 4950


def test_an_error_goes_through_and_stops_the_clock() -> None:
    with pytest.raises(KeyError), limited("f", 0.4):
        raise KeyError("k")
    time.sleep(1)


def test_a_limit_inside_another_one_ends_first() -> None:
    with limited("outer", 30), pytest.raises(TimeoutError, match="inner"), limited("inner", 0.3):
        spin()


def test_threads_have_clocks_of_their_own() -> None:
    ended: list[str] = []

    def run() -> None:
        try:
            with limited("thread", 0.3):
                spin()
        except TimeoutError as error:
            ended.append(str(error))

    thread = threading.Thread(target=run)
    with limited("main", 30):
        thread.start()
        thread.join(60)
    assert ended == ["thread has not come back within 0.3 s"]
