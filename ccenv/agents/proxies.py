"""Proxies around any sender: they hold its ACKs back, so that it goes by a longer RTT ([Delta] s.5.3 and s.7.2).

Data take the same way as without a proxy, so their one-way delay is what it was ([Delta] Figure 3).
"""

from __future__ import annotations

import math
from typing import Literal

from ccenv.agents.sender import HeldSender
from ccenv.base.parameters import number

LONGEST_S = 10.0


def lambda_proxy(inner: str = "bbr1", target_s: float = 0.1, window_s: float = 10.0) -> HeldSender:
    """Put a sender behind a proxy that makes its smallest RTT target_s, whatever the path's ([Delta] Algorithm 1).

    At first ACKs are held for target_s; after each window for target_s less the propagation RTT that its smallest RTT shows.

    Args:
        inner: spec of the sender.
        target_s: lambda, in (0, LONGEST_S]; [Delta] s.6 takes 100 ms.
        window_s: W, over which the smallest RTT is taken and after which the hold changes, in (0, 1000]; the paper names no
            number, its footnote 7 the estimate of BBR, whose window is 10 s.

    Deviation: ACKs stay in order when the hold changes, and no hold is negative: on paths longer than target_s nothing is held.
    """
    target_s = number("lambda_proxy", "target_s", target_s, above=0, high=LONGEST_S)
    window_s = number("lambda_proxy", "window_s", window_s, above=0, high=1000)
    return _held("lambda_proxy", inner, "lambda", target_s, window_s)


def fixed_delay_proxy(inner: str = "cubic", delay_s: float = 0.05) -> HeldSender:
    """Put a sender behind a proxy that holds every ACK equally long ([Delta] s.7.2, the naive approach).

    Args:
        inner: spec of the sender.
        delay_s: that is added, in (0, LONGEST_S]; [Delta] s.7.2 takes 50 ms.
    """
    delay_s = number("fixed_delay_proxy", "delay_s", delay_s, above=0, high=LONGEST_S)
    return _held("fixed_delay_proxy", inner, "fixed", delay_s)


def _held(name: str, inner: str, mode: Literal["lambda", "fixed"], target_s: float, window_s: float = math.inf) -> HeldSender:
    from ccenv.agents import make_sender  # the registry imports this module

    sender = make_sender(str(inner))
    return HeldSender(f"{name}({sender.name})", sender, mode, target_s, window_s)  # type: ignore[arg-type]
