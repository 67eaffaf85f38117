"""All link rates that explain what one flow has seen, without rules: every pair of a rate and a buffer is tried."""

import numpy as np


def explains(rates, buffers, E, S, lossy, jitter_steps):
    """Tell for each rate and buffer whether a legal CCAC network shows this history.

    The admitted tokens G(t) that the laws allow are an interval at each step: from a value g either no token is wasted, which
    gives g + C, or some are, which gives max(g, E(t)) to g + C. So the union over an interval is an interval, too.

    Args:
        rates: (n,) link rates, bytes per step.
        buffers: (m,) buffer sizes, bytes.
        E: cumulative bytes that entered the queue, one per step.
        S: cumulative bytes delivered.
        lossy: whether bytes were lost in the step.
        jitter_steps: D, at least 1.

    Returns:
        np.ndarray: (n, m) bool.
    """
    rate, buffer = rates[:, None], buffers[None, :]
    low = np.full((len(rates), len(buffers)), -np.inf)
    # S(x) >= G(x - D), also where that lies before the history, and G grows by at most C in a step.
    high = np.min([S[x] + rate * (jitter_steps - 1 - x) for x in range(jitter_steps)], axis=0) + np.zeros(low.shape)
    possible = np.ones(low.shape, bool)
    for t in range(len(S)):
        low, high = np.minimum(low + rate, np.maximum(low, E[t])), high + rate
        low = np.maximum(low, np.maximum(S[t], E[t] - buffer))
        if t + jitter_steps < len(S):
            high = np.minimum(high, S[t + jitter_steps])
        if lossy[t]:
            high = np.minimum(high, E[t] - buffer)
        possible &= low <= high + 1e-9 * rate
    return possible


def exact_bounds(rates, true_buffer, E, S, lossy, jitter_steps):
    """Return the smallest and the largest of some rates that explain a history with any buffer (of sixty that are possible)."""
    full = [E[t] - S[t] for t, loss in enumerate(lossy) if loss]
    if full:
        held = max(E[t] - S[t + jitter_steps] for t in range(len(S) - jitter_steps))
        buffers = np.append(np.linspace(max(0.0, held), min(full), 60), true_buffer)
    else:
        buffers = np.array([true_buffer, 1e18])
    fits = rates[explains(rates, buffers, E, S, lossy, jitter_steps).any(axis=1)]
    return float(fits[0]), float(fits[-1])
