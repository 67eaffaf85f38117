"""Wrapped senders: choosers inside shields, and proxies that delay the ACKs of any sender ([Delta] s.5.3 and s.7.2).

Proxies leave the data path, and so the one-way delay, unchanged ([Delta] Figure 3).
"""

from __future__ import annotations

import math
from typing import Any, Literal

from ccenv.agents.programs import Program, load_program
from ccenv.agents.sender import HeldSender, PolicySender, ShieldSender
from ccenv.base.errors import InputError
from ccenv.base.registry import number

SHIPPED = "learned_shield_u80"


def shield(file: str = SHIPPED, chooser: str = "", policy: str = "") -> ShieldSender:
    """Put a chooser inside a shield.

    Args:
        file: a shield (.json), or the name of an agent that runs inside one.
        chooser: ``lo``, ``hi``, ``middle``, ``random`` (anew at each decision, keyed by the seed), ``policy`` or ``external``; by
            default ``policy`` if there is one, else ``middle``.
        policy: a policy (.safetensors with its card, or the folder of the pair) whose output is the position in the interval.
    """
    program = load_shield(str(file))
    who = str(chooser) or ("policy" if policy else "middle")
    return ShieldSender(f"{program.name}.{who}", program, who, _policy(str(policy)) if policy else None)


def load_shield(spec: str) -> Program:
    """Return the shield of a file or of an agent that runs inside one.

    Raises:
        UnknownNameError: if neither an agent nor a file has this name.
        ProgramError: if the file is damaged or no shield.
        InputError: for an agent without a shield.
    """
    if spec.endswith(".json"):
        return ShieldSender(spec, load_program(spec), "lo").program  # refuses a program without intervals
    from ccenv.agents import make_sender  # the registry imports this module

    sender = make_sender(spec)
    if not isinstance(sender, ShieldSender):
        raise InputError(f"agent {spec!r} has no shield; a file (.json) or an agent that runs inside one is needed")
    return sender.program


def _policy(spec: str) -> PolicySender:
    from ccenv.agents.learned import load_policy

    loaded: Any = load_policy(spec)
    policy = loaded.policy if isinstance(loaded, ShieldSender) else loaded
    if not isinstance(policy, PolicySender):
        raise InputError(f"{spec!r} holds no policy")
    return policy


LONGEST_S = 10.0


def lambda_proxy(inner: str = "bbr1", target_s: float = 0.1, window_s: float = 10.0) -> HeldSender:
    """Put a sender behind a proxy that makes its smallest RTT target_s, whatever the path's ([Delta] Algorithm 1).

    At first ACKs are held for target_s; after each window for target_s less the propagation RTT inferred from its smallest RTT.

    Args:
        inner: spec of the sender.
        target_s: lambda, in (0, LONGEST_S]; [Delta] s.6 takes 100 ms.
        window_s: W, over which the smallest RTT is taken and after which the hold changes, in (0, 1000]; the paper gives no
            number, but its footnote 7 refers to BBR's estimate, whose window is 10 s.

    Deviation: ACKs stay in order when the hold changes, and no hold is negative: on paths longer than target_s nothing is held.
    """
    target_s = number("lambda_proxy", "target_s", target_s, above=0, high=LONGEST_S)
    window_s = number("lambda_proxy", "window_s", window_s, above=0, high=1000)
    return _held("lambda_proxy", inner, "lambda", target_s, window_s)


def fixed_delay_proxy(inner: str = "cubic", delay_s: float = 0.05) -> HeldSender:
    """Put a sender behind a proxy that holds every ACK for ``delay_s`` in (0, LONGEST_S] ([Delta] s.7.2: naive, 50 ms)."""
    delay_s = number("fixed_delay_proxy", "delay_s", delay_s, above=0, high=LONGEST_S)
    return _held("fixed_delay_proxy", inner, "fixed", delay_s)


def _held(name: str, inner: str, mode: Literal["lambda", "fixed"], target_s: float, window_s: float = math.inf) -> HeldSender:
    from ccenv.agents import make_sender  # the registry imports this module

    sender = make_sender(str(inner))
    return HeldSender(f"{name}({sender.name})", sender, mode, target_s, window_s)  # type: ignore[arg-type]
