"""The packet log: what happened to each packet, in the order of time."""

from __future__ import annotations

import numpy as np

from ccenv.engine.compiled.calls import load, store
from ccenv.engine.packet.layout import (
    EVENT_STRIDE,
    LOG_EVENT,
    LOG_FLOW,
    LOG_LINK,
    LOG_SEGMENT,
    LOG_TIME,
    LOG_TX,
    SEGMENT,
    TX_STRIDE,
)
from ccenv.base.kernels.decorator import kernel

# Rows of a packet log as users see it; ``event`` is an index into layout.EVENTS, ``link`` is -1 at the ends.
LOG_DTYPE = np.dtype(
    [("time_s", "<f8"), ("event", "<i1"), ("flow", "<i2"), ("link", "<i2"), ("transmission", "<i8"), ("segment", "<i8")]
)
MAX_ROWS = 20_000_000
DEFAULT_ROWS = 5_000_000


@kernel(forceinline=True)
def note(run, event, time_s, fl, link, tx):
    """Log an event of a transmission; nothing without a packet log."""
    if run.packet_log_limit > 0:
        if run.packet_log_rows < run.packet_log_limit:
            at = run.packet_log_rows * EVENT_STRIDE
            store(run.packet_log_at, at + LOG_TIME, time_s)
            store(run.packet_log_at, at + LOG_EVENT, float(event))
            store(run.packet_log_at, at + LOG_FLOW, float(fl.index))
            store(run.packet_log_at, at + LOG_LINK, float(link))
            store(run.packet_log_at, at + LOG_TX, float(tx))
            store(run.packet_log_at, at + LOG_SEGMENT, load(fl.tx_at, (tx & fl.mask) * TX_STRIDE + SEGMENT))
        run.packet_log_rows += 1


def ordered(rows: np.ndarray, until_s: float) -> np.ndarray:
    """Return what was logged up to a time as LOG_DTYPE, in the order of time; what happened at one time stays in its order.

    Args:
        rows: (n, EVENT_STRIDE) as the kernel wrote them: deliveries are known before their time.
        until_s: end of the run.
    """
    rows = rows[rows[:, LOG_TIME] <= until_s]
    rows = rows[np.argsort(rows[:, LOG_TIME], kind="stable")]
    log = np.zeros(len(rows), LOG_DTYPE)
    for name, column in zip(LOG_DTYPE.names or (), rows.T, strict=True):
        log[name] = column
    return log
