"""Belief time-outs in the proof of a distilled program: how much of its constants they leave.

A time-out lets C_L fall to what the last trace shows, so converged beliefs stay converged only above a lower C_L than without
time-outs, and from there less utilisation is sure. Both are looked for before the whole suite is decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path as FilePath

from ccenv.training.distill.claims import ClaimNumbers, write_suite
from ccenv.agents.programs import Program
from ccenv.proofs.claims.lemma_run import LemmaRun, run_lemma

LOOKED_FOR = (("C_L_low", "F.3 C_L"), ("utilisation", "F.7 utilisation"))


def weakened(
    folder: FilePath, program: Program, numbers: ClaimNumbers, preset: str, run_of: Callable[[FilePath], LemmaRun]
) -> ClaimNumbers:
    """Return the strongest constants found with which converged beliefs stay converged and utilisation holds.

    Args:
        folder: of the program; the suite is written there.
        program: the proved program.
        numbers: what was proved of it without time-outs.
        preset: of the time-outs.
        run_of: suite file -> how to run it.

    Returns:
        ClaimNumbers: with a constant unchanged where no value was proved; its lemma then says so.
    """
    for constant, lemma in LOOKED_FOR:
        suite = write_suite(folder, program, numbers, preset)
        found = run_lemma(replace(run_of(suite), bisect=True, recheck=None), lemma).bound
        if found is not None:
            numbers = replace(numbers, **{constant: Fraction(str(found))})
    return numbers
