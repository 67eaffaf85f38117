"""The error tree. Every message says what is wrong, the value seen, and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CcenvError(Exception):
    """Base of all errors that ccenv raises for bad input or a broken run.

    The command line prints the message as one line and exits with code 2.
    """


class InputError(CcenvError):
    """A value, key, shape or unit that is not allowed."""


class UnknownNameError(InputError):
    """A name that no registry, file or table knows."""


class PathError(InputError):
    """A path (link rate, delays, buffer) that no network can have or the grid cannot hold."""


class NoEncodingError(InputError):
    """A sender that the solver has no encoding of."""


class TraceError(CcenvError):
    """A trace file that is truncated, foreign or inconsistent."""


class ProgramError(InputError):
    """A belief program that is malformed or mixes units."""


class EngineError(CcenvError):
    """A run that left the finite numbers; names environment, flow and time."""


class MissingExtraError(CcenvError):
    """An optional dependency that is not installed."""


def did_you_mean(name: str, valid: Iterable[str], limit: int = 3) -> str:
    """Return ' Did you mean ...?' with the nearest valid names, or the list of valid names.

    Args:
        name: the name as given.
        valid: all names that would have been accepted.
        limit: how many suggestions to give at most.
    """
    names = sorted(valid)
    name = name[:100]  # the search for near names takes time in the square of the length
    near = difflib.get_close_matches(name, names, n=limit, cutoff=0.5)
    if near:
        return " Did you mean " + " or ".join(repr(n) for n in near) + "?"
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f" Valid: {shown}." if names else ""


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> UnknownNameError:
    """Return the error for an unknown name of a kind, with suggestions."""
    from ccenv.foreign.names import shown  # which needs the errors

    return UnknownNameError(f"unknown {kind} {shown(name, 100)}.{did_you_mean(name, valid)}")


def require_extra(module: str, extra: str) -> None:
    """Raise MissingExtraError unless an optional module can be imported.

    Args:
        module: import name, e.g. ``"stable_baselines3"``.
        extra: the extra of ccenv that brings it, e.g. ``"train"``.
    """
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(f"{module} is not installed: pip install 'ccenv[{extra}]'")
