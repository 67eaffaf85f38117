"""What the operator evaluates: the suites of the board and the limits of each stage."""

from __future__ import annotations

from ccenv.benchmarks.suite import load_suite
from ccenv.config import shipped_names

# Nominal suite first, then the one with the adversary panel; before they ship, the small ones take their places.
_WANTED = (("standard-v1", "quick"), ("worst-case-v1", "attack"))


def default_suites() -> tuple[str, ...]:
    """Return the names of the suites that entries are evaluated on."""
    shipped = shipped_names("ccenv.benchmarks.suites", ".yaml")
    return tuple(wanted if wanted in shipped else small for wanted, small in _WANTED)


def nominal_suite() -> str:
    """Return name/version of the suite whose score ranks the senders."""
    suite = load_suite(default_suites()[0])
    return f"{suite.name}/{suite.version}"
