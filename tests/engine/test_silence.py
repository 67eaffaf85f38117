"""Flows that are silent for longer than the rings: kernel, reference, and what follows from the recorded curves alone."""

from __future__ import annotations

import numpy as np
import pytest
from compare import run_both
from hypothesis import given, settings
from hypothesis import strategies as st
from random_setup import MODELS
from silent_setup import SILENCES, silent_setup

from ccenv.agents import AGENTS
from ccenv.legality import check_trace

DENSITIES = (1, 4, 8, 16)
LONGEST_RINGS = 20
NAMES = sorted(AGENTS.names())


def play(sender, model, K, kind, rings, seed):
    """Hold kernel and reference together over one silence; return the engine."""
    path, run, steps, _ = silent_setup(np.random.default_rng(seed), kind, rings, model=model, K=K, sender=sender)
    engine, _ = run_both(path, steps=steps, K=K, **run)
    assert check_trace(engine.trace(0)) == []
    return engine


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sender", NAMES)
def test_silence_of_every_sender_on_every_model(sender, model):
    """Density and kind of silence go round, so that every sender and every model meets all of them."""
    turn = len(MODELS) * NAMES.index(sender) + MODELS.index(model)
    rng = np.random.default_rng(turn)
    rings = float(rng.choice([0.0, 1.0, 3.0, LONGEST_RINGS, rng.uniform(0, LONGEST_RINGS)]))
    play(sender, model, DENSITIES[(turn + turn // 4) % 4], SILENCES[turn % len(SILENCES)], rings, turn)


anything = given(
    sender=st.sampled_from(NAMES),
    model=st.sampled_from(MODELS),
    K=st.sampled_from(DENSITIES),
    kind=st.sampled_from(SILENCES),
    rings=st.one_of(st.sampled_from([0.0, 1.0, 3.0, float(LONGEST_RINGS)]), st.floats(0.0, LONGEST_RINGS)),
    seed=st.integers(0, 2**32 - 1),
)


@settings(max_examples=40)
@anything
def test_silence_kernel_is_the_reference(sender, model, K, kind, rings, seed):
    play(sender, model, K, kind, rings, seed)


@pytest.mark.slow
@settings(max_examples=2000)
@anything
def test_silence_kernel_is_the_reference_in_many_runs(sender, model, K, kind, rings, seed):
    play(sender, model, K, kind, rings, seed)
