"""Workers give results in the order asked for, pass errors on, notice a death and end what is not wanted any more."""

import math
import os
import time
import warnings

import pytest

from ccenv.base.errors import CcenvError, CcenvWarning, InputError
from ccenv.base.workers import Workers


def square(x: int) -> int:
    if x < 0:
        raise InputError(f"{x} is negative")
    return x * x


def warn(text: str) -> int:
    warnings.warn(text, CcenvWarning, stacklevel=1)
    warnings.warn(text, CcenvWarning, stacklevel=1)
    return len(text)


def wait(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def end_of_file(number: int) -> None:
    raise EOFError(number)


def die(code: int) -> None:
    os._exit(code)


def test_one_job_runs_here_when_asked() -> None:
    with Workers() as workers:
        assert not workers.parallel
        results = workers.map(square, [3, -1, 2])
        assert next(results) == 9
        with pytest.raises(InputError):
            next(results)


@pytest.mark.parametrize("jobs", [1, 2])
def test_warnings_of_workers_are_told_here(jobs: int) -> None:
    with Workers(jobs) as workers:
        waiting = workers.submit(warn, "odd")
        with pytest.warns(CcenvWarning, match="^odd$") as told:
            assert waiting() == 3
    assert len(told) == (2 if jobs == 1 else 1)


def test_processes_keep_the_order_pass_errors_and_end_early() -> None:
    with Workers(2) as workers:
        assert list(workers.map(square, range(5))) == [0, 1, 4, 9, 16]
        with pytest.raises(InputError, match="-1 is negative"):
            workers.submit(square, -1)()
        begin = time.perf_counter()
        workers.submit(time.sleep, 600)
        assert workers.submit(square, 7)() == 49
        workers.drop()
        assert time.perf_counter() - begin < 300
        assert workers.submit(square, 8)() == 64


def test_a_dead_worker_is_one_error() -> None:
    with Workers(apart=True) as workers:
        for work in (workers.submit(die, 1), lambda: list(workers.as_finished(die, [1]))):
            with pytest.raises(CcenvError, match="worker died"):
                work()


def test_results_come_as_they_are_finished() -> None:
    with Workers() as workers:
        assert list(workers.as_finished(square, [3, 2])) == [9, 4]
    with Workers(2) as workers:
        begin = time.perf_counter()
        results = workers.as_finished(wait, [600.0, 0.1, 0.2])
        assert [next(results), next(results)] == [0.1, 0.2]
        workers.drop()
        assert sorted(workers.as_finished(square, range(4))) == [0, 1, 4, 9]
        assert time.perf_counter() - begin < 300


def test_work_in_a_process_of_its_own_has_a_limit() -> None:
    assert Workers.one(square, 3, limit_s=600) == 9
    with pytest.raises(TimeoutError):
        Workers.one(time.sleep, 600, limit_s=0.1)
    with pytest.raises(CcenvError, match="worker ended with exit code 1"):
        Workers.one(die, 1, limit_s=600)
    with pytest.raises(EOFError, match="3"):  # of the work, not of the process
        Workers.one(end_of_file, 3, limit_s=600)


@pytest.mark.slow  # starts a Ray cluster: about 10 s
def test_ray_gives_the_same() -> None:
    pytest.importorskip("ray")
    with Workers(2, "ray") as workers:
        assert list(workers.map(math.factorial, range(5))) == [1, 1, 2, 6, 24]
        with pytest.raises(InputError, match="Did you mean 'ray'"):
            workers.submit(Workers, 1, "rays")()
        workers.submit(time.sleep, 600)
        workers.drop()
        with pytest.raises(CcenvError, match="worker died"):
            workers.submit(os._exit, 1)()
