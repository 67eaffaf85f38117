"""The error tree. Every message says what is wrong, the value seen, and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

MAX_MESSAGE_CHARS = 1_000


def one_line(text: str) -> str:
    """Return a text as one printable line: what cannot be printed is escaped, the middle of a long one is left out."""
    if len(text) > MAX_MESSAGE_CHARS:
        half = MAX_MESSAGE_CHARS // 2 - 3
        text = f"{text[:half]} ... {text[-half:]}"
    if text.isprintable():
        return text
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return escaped if len(escaped) <= MAX_MESSAGE_CHARS else one_line(escaped)


class CcenvError(Exception):
    """Base of all errors that ccenv raises for bad input or a broken run.

    The command line prints the message as one line and exits with code 2. Messages quote input, so they are made printable and
    shortened in the middle here, once for all.
    """

    def __init__(self, message: object = "") -> None:
        """Keep the message as one line of at most MAX_MESSAGE_CHARS characters."""
        super().__init__(one_line(str(message)))


class InputError(CcenvError):
    """A value, key, shape or unit that is not allowed."""


class UnexpectedArgumentError(InputError, TypeError):
    """An unexpected keyword argument; also a TypeError, as Python and its libraries expect."""


class UnknownNameError(InputError):
    """A name that no registry, file or table knows."""


class MissingFileError(InputError):
    """A file that is not there."""


class PathError(InputError):
    """A path (link rate, delays, buffer) that is impossible or does not fit the grid."""


class NoEncodingError(InputError):
    """A sender without an encoding for the solver."""


class TraceError(CcenvError):
    """A trace file that is truncated, foreign or inconsistent."""


class ProgramError(InputError):
    """A belief program that is malformed or mixes units."""


class EngineError(CcenvError):
    """A run with a number that is not finite; names environment, flow and time."""


class MissingExtraError(CcenvError):
    """An optional dependency that is not installed."""


class CcenvWarning(UserWarning):
    """Input that is accepted but looks like a mistake; the command line prints it as one line."""


def shown(value: Any, longest: int = 60) -> str:
    """Return a value for a message: ASCII, one line, at most ``longest`` characters."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * longest:
        return f"a number of {value.bit_length()} bits"  # Python itself refuses to write more than 4,300 digits
    if isinstance(value, str):
        value = value[: longest + 1]
    return cut(ascii(value), longest)


def cut(text: str, longest: int) -> str:
    """Return a text of at most ``longest`` characters, the last three of which are dots where some are left out."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def did_you_mean(name: str, valid: Iterable[str], limit: int = 3) -> str:
    """Return ' Did you mean ...?' with at most ``limit`` near valid names, or the list of valid names if none is near."""
    names = sorted(valid)
    name = name[:100]  # the search for near names takes time in the square of the length
    near = difflib.get_close_matches(name, names, n=limit, cutoff=0.5)
    if near:
        return " Did you mean " + " or ".join(repr(n) for n in near) + "?"
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f" Valid: {listed}." if names else ""


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> UnknownNameError:
    return UnknownNameError(f"unknown {kind} {shown(name, 100)}.{did_you_mean(name, valid)}")


def require_extra(module: str, extra: str) -> None:
    """Raise MissingExtraError unless a module such as ``"stable_baselines3"``, of an extra of ccenv, can be imported."""
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(f"{module} is not installed: pip install 'ccenv[{extra}]'")
