"""What the kernel reads of a batch besides its records: shared tables, memory, and what networks begin with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SENDER_DTYPE = np.dtype(
    [
        ("hold_s", "<f8"),
        ("hold_target_s", "<f8"),
        ("hold_window_s", "<f8"),
        ("step_at", "<i8"),
        ("watches", "<i8"),
        ("per_packet", "<i8"),
    ]
)


class Tables(NamedTuple):
    """What the networks of a batch share.

    Attributes:
        route: (2, flows, HOPS) link, and pipe, of each hop of data and of ACKs.
        pipes, boxes, monitors: (n,) records as they begin.
        box_words: (boxes, ADVERSARY_SLOTS) states of their adversaries.
        policies: (monitors, bytes) uint8: records of the policies, as they begin.
        delay_tables: (flows,) addresses of replayed delays.
        traces: (n, 2) address and number of rows of the traces of links.
        grid_flows: (n,) flow of each grid.
        senders: (senders,) SENDER_DTYPE.
        beliefs: (senders,) BELIEFS_DTYPE templates.
    """

    route: np.ndarray
    pipes: np.ndarray
    boxes: np.ndarray
    monitors: np.ndarray
    box_words: np.ndarray
    policies: np.ndarray
    delay_tables: np.ndarray
    traces: np.ndarray
    grid_flows: np.ndarray
    senders: np.ndarray
    beliefs: np.ndarray


class Memory(NamedTuple):
    """What records point into.

    Attributes:
        rings: (B, words) float64.
        trees: (B, words) winner trees of event sources.
        shares: (B, monitors, flows, 2) of the monitors.
        box_words: (B, boxes, ADVERSARY_SLOTS) states of the adversaries of jitter boxes.
        policies: (B, monitors, bytes) uint8: records of policies.
    """

    rings: np.ndarray
    trees: np.ndarray
    shares: np.ndarray
    box_words: np.ndarray
    policies: np.ndarray


class Beginnings(NamedTuple):
    """What k networks begin with.

    Attributes:
        links: (k, links) LINK_DTYPE: rates, delays, buffers, disciplines.
        flows: (k, flows) FLOW_DTYPE: paths, receivers, workloads, sender_index.
        changes: (k, n, 3) rate changes in the order of time; infinite: none.
        mss_bytes: (k,).
        keys: (k,) what their random numbers depend on.
        start_rates_Bps: (k, monitors) before the first decision; 0: the usual one.
    """

    links: np.ndarray
    flows: np.ndarray
    changes: np.ndarray
    mss_bytes: np.ndarray
    keys: np.ndarray
    start_rates_Bps: np.ndarray
