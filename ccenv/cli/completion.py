"""What the shell completes after Tab: values of arguments and options, by the kinds of ``ccenv list``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ccenv.registry import load_target

_KINDS, _CONFIGS = "ccenv.cli.catalog:KINDS", "ccenv.cli.catalog:CONFIGS"  # its own arguments are completed, too
Completion = Callable[[str], list[str]]


def names(*kinds: str) -> Completion:
    """Return a completion with the names of kinds of ``ccenv list``; a shell adds files where none begins with what is typed."""

    def complete(incomplete: str) -> list[str]:
        listed = load_target(_KINDS)
        return _beginning([item.name for kind in kinds for item in listed[kind]()], incomplete)

    return complete


def configs(kind: str) -> Completion:
    """Return a completion with the shipped configs of a kind, such as ``train``."""

    def complete(incomplete: str) -> list[str]:
        from ccenv.config import shipped_names

        return _beginning(shipped_names(load_target(_CONFIGS)[kind], ".yaml"), incomplete)

    return complete


def choices(*allowed: str) -> Completion:
    """Return a completion with fixed words."""
    return lambda incomplete: _beginning(allowed, incomplete)


def _beginning(found: Sequence[str], incomplete: str) -> list[str]:
    return [name for name in found if name.startswith(incomplete)]
