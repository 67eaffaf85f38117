# ruff: noqa: E402 -- the tests' folders are put on the path first
"""Fuzzing of every reader: whatever a document says, a reader returns or raises a CcenvError of one line.

python tests/base/foreign/fuzz.py COUNT            COUNT inputs over all targets; 1,000,000 take minutes
python tests/base/foreign/fuzz.py COUNT TARGET ...  of some targets
python tests/base/foreign/fuzz.py TARGET=NUMBER     one input again, with its traceback
"""

import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "leaderboard")]

from mutate import variant
from targets import TARGETS, Target

from ccenv.base.errors import CcenvError

LONGEST_MESSAGE = 1_000
LONGEST_S = 5.0


@dataclass
class Tally:
    """What came of the inputs of a target."""

    inputs: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    faults: list[str] = field(default_factory=list)


def one(target: Target, number: int, folder: Path) -> str:
    """Give a target one input; return ``"read"``, ``"refused"`` or what is wrong."""
    rng = random.Random(f"{target.name} {number}")
    content = variant(target.seeds, rng)
    begin = time.process_time()
    try:
        target.read(content, folder)
    except CcenvError as error:
        text = str(error)
        if "\n" in text or len(text) > LONGEST_MESSAGE:
            return f"message of {len(text)} characters, {text.count(chr(10))} line ends: {text[:200]!r}"
        outcome = "refused"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]!r}"
    else:
        outcome = "read"
    taken_s = time.process_time() - begin
    return outcome if taken_s < LONGEST_S else f"took {taken_s:.1f} s"


def fuzz(target: Target, numbers: Iterable[int]) -> Tally:
    tally = Tally()
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = os.getcwd()
        os.chdir(scratch)  # a relative name in a document finds nothing of ours
        try:
            for number in numbers:
                begin = time.process_time()
                outcome = one(target, number, Path(scratch))
                taken_s = time.process_time() - begin
                tally.inputs += 1
                tally.seconds += taken_s
                tally.slowest_s = max(tally.slowest_s, taken_s)
                tally.refused += outcome == "refused"
                if outcome not in ("refused", "read"):
                    tally.faults.append(f"{target.name}={number}: {outcome}")
        finally:
            os.chdir(before)
    return tally


def shares(count: int, names: Iterable[str] = ()) -> dict[str, int]:
    """Return how many inputs each target gets: by weight, cheap readers more than dear ones."""
    chosen = [TARGETS[name] for name in names] or list(TARGETS.values())
    total = sum(target.weight for target in chosen)
    return {target.name: max(1, round(count * target.weight / total)) for target in chosen}


def main(arguments: list[str]) -> int:
    if len(arguments) == 1 and "=" in arguments[0]:
        name, _, number = arguments[0].partition("=")
        target = TARGETS[name]
        content = variant(target.seeds, random.Random(f"{name} {number}"))
        sys.stdout.write(f"{content[:2000]!r}\n")
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)
            target.read(content, Path(scratch))
        return 0
    inputs = refused = faults = 0
    for name, count in shares(int(arguments[0]), arguments[1:]).items():
        tally = fuzz(TARGETS[name], range(count))
        inputs, refused, faults = inputs + tally.inputs, refused + tally.refused, faults + len(tally.faults)
        line = f"{name:16} {tally.inputs:8} inputs {tally.refused:8} refused {tally.seconds:7.1f} s"
        sys.stdout.write(f"{line}, slowest {tally.slowest_s:.2f} s, {len(tally.faults)} faults\n")
        sys.stdout.writelines(f"    {fault}\n" for fault in tally.faults[:8])
        sys.stdout.flush()
    sys.stdout.write(f"{inputs} inputs: {refused} refused in one line, {faults} faults\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
