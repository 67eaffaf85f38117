"""What applications offer, in whole segments: bulk, a constant rate, on/off, a finite transfer, batches, web objects.

What an application outside of the kernel asks for (``asked``) is added by ``PacketEngine.offer``.
"""

from __future__ import annotations

import math

import numpy as np

from ccenv.base.random import uniform
from ccenv.engine.packet.layout import WORKLOAD_COUNTER, WORKLOADS
from ccenv.base.kernels.decorator import kernel

_RATE, _ON_OFF, _FINITE, _BATCHES, _WEB, _ASKED = (WORKLOADS[k] for k in ("rate", "on_off", "finite", "batches", "web", "asked"))
UNLIMITED = 2**52  # segments
LARGEST_OFFER = 2.0**50  # segments of a rate, far above what any run sends
ROUNDING = 1e-6  # segments: a time that is a whole number of gaps up to rounding counts as one
SHORTEST_S = 1e-9  # between two changes of what is offered
LATER_S = 1e300  # of what is asked for from outside: more may come
PARETO_SHAPE = 1.2  # sizes of web objects: [4CP] s.5
LARGEST_OBJECT = 1e5  # in units of the mean: the tail has no mean square


@kernel
def begin_application(fl, mss_bytes):  # type: ignore[no-untyped-def]
    """Set what is offered at the start of a flow."""
    kind = fl.workload
    fl.app_next_s = np.inf
    fl.app_segments = UNLIMITED
    if kind == _FINITE:
        fl.app_segments = np.int64(math.ceil(fl.workload_a / mss_bytes))
    elif kind == _ON_OFF:
        fl.app_next_s = fl.start_s + fl.workload_a
    elif kind in (_RATE, _BATCHES, _WEB):
        fl.app_segments = 0
        fl.app_next_s = fl.start_s
    elif kind == _ASKED:
        fl.app_segments = 0
        fl.app_next_s = LATER_S


@kernel
def offer(fl, now_s, mss_bytes, seed):  # type: ignore[no-untyped-def]
    """Bring what is offered up to now_s; app_next_s is when that changes next."""
    kind = fl.workload
    while fl.app_next_s <= now_s:
        if kind == _RATE:  # workload_a: bytes/s
            fl.app_segments = 1 + np.int64(min((now_s - fl.start_s) * fl.workload_a / mss_bytes + ROUNDING, LARGEST_OFFER))
            fl.app_next_s = max(fl.start_s + fl.app_segments * mss_bytes / fl.workload_a, now_s + SHORTEST_S)
        elif kind == _BATCHES:  # workload_a bytes every workload_b seconds
            fl.app_segments += np.int64(math.ceil(fl.workload_a / mss_bytes))
            fl.app_draws += 1.0
            fl.app_next_s = fl.start_s + fl.app_draws * fl.workload_b
        elif kind == _WEB:  # objects of mean size workload_a, exponential gaps of mean workload_b
            size = uniform(seed, 0.0, float(fl.index), WORKLOAD_COUNTER + fl.app_draws)
            gap = uniform(seed, 0.0, float(fl.index), WORKLOAD_COUNTER + fl.app_draws + 1.0)
            fl.app_draws += 2.0
            smallest_bytes = fl.workload_a * (PARETO_SHAPE - 1.0) / PARETO_SHAPE
            object_bytes = smallest_bytes * (1.0 - size) ** (-1.0 / PARETO_SHAPE)
            object_bytes = min(object_bytes, LARGEST_OBJECT * fl.workload_a)
            fl.app_segments += np.int64(math.ceil(object_bytes / mss_bytes))
            fl.app_next_s = fl.app_next_s - fl.workload_b * math.log(1.0 - gap)
        elif fl.app_segments == UNLIMITED:  # on/off: workload_a seconds on, workload_b off
            fl.app_segments = fl.next_segment
            fl.app_next_s += fl.workload_b
        else:
            fl.app_segments = UNLIMITED
            fl.app_next_s += fl.workload_a
