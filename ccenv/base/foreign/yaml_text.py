"""YAML as data: maps, lists, texts and bounded numbers. No aliases, tags, dates or keys given twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any, NoReturn

import yaml

from ccenv.base.errors import InputError, shown
from ccenv.base.foreign.json_text import parse_number, parse_whole
from ccenv.base.foreign.reading import read_bounded, shown_path

MAX_BYTES = 262_144
MAX_DEPTH = 32
MAX_NODES = 65_536
_TAG = "tag:yaml.org,2002:"
_TRUTHS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_INFINITE = re.compile(r"[+-]?\.(inf|Inf|INF)", re.ASCII)


def parse_yaml(content: bytes | str, where: str, max_bytes: int = MAX_BYTES) -> Any:
    """Parse one YAML document. Raises InputError for anything else, with the line where the parser knows it.

    Plain words are read as in YAML 1.1, in the usual forms: ``true``/``yes``/``on``, ``null``/``~``/nothing, decimal numbers,
    ``.inf``. A date stays a text; octal, hexadecimal and sexagesimal numbers are refused. Messages call the document ``where``.

    Returns:
        dict with texts or whole numbers as keys, list, str, int, float, bool or None.
    """
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    if len(raw) > max_bytes:
        raise InputError(f"{where}: longer than {max_bytes} bytes")
    try:
        loader = _Composer(raw.decode("utf-8"))
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        return None if node is None else _value(node)
    except _NotAllowed as error:
        raise InputError(f"{where}: {error}") from None
    except Exception as error:
        # Besides yaml.YAMLError the parser raises ValueError, OverflowError, IndexError and others.
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}" if mark else ""
        raise InputError(f"{where}: not valid YAML{at}") from None


def read_yaml(file: FilePath, max_bytes: int = MAX_BYTES) -> Any:
    """Read one YAML file. Raises InputError if it cannot be read or as :func:`parse_yaml`."""
    return parse_yaml(read_bounded(file, max_bytes), shown_path(file), max_bytes)


class _NotAllowed(Exception):
    """A document that YAML allows and this reader does not."""


def _refuse(node: yaml.Node | yaml.Event, problem: str) -> NoReturn:
    at = f"line {node.start_mark.line + 1}: " if node.start_mark else ""
    raise _NotAllowed(at + problem)


class _Composer(yaml.SafeLoader):
    """Builds the tree of nodes; ends as soon as a bound is passed, before anything deep or large exists."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        peek: Callable[[], yaml.Event] = self.peek_event
        event = peek()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            _refuse(event, "anchors and aliases ('&', '*') are not allowed")
        self._nodes += 1
        if self._nodes > MAX_NODES:
            _refuse(event, f"more than {MAX_NODES} values")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            _refuse(event, f"more than {MAX_DEPTH} levels of nesting")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


# YAML 1.1 takes 1e12 for a text, YAML 1.2 and everybody else for a number.
_Composer.add_implicit_resolver(_TAG + "float", re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][0-9]+"), list("-+0123456789"))


def _value(node: yaml.Node) -> Any:
    tag = node.tag.removeprefix(_TAG)
    if isinstance(node, yaml.MappingNode) and tag == "map":
        return _mapping(node)
    if isinstance(node, yaml.SequenceNode) and tag == "seq":
        return [_value(item) for item in node.value]
    if isinstance(node, yaml.ScalarNode) and tag in _SCALARS:
        try:
            return _SCALARS[tag](node.value)
        except (InputError, KeyError):
            _refuse(node, f"{shown(node.value, 32)} is not allowed as {_WORDS[tag]}")
    _refuse(node, f"tag {shown(node.tag)} is not allowed")


def _mapping(node: yaml.MappingNode) -> dict[str | int, Any]:
    out: dict[str | int, Any] = {}
    for key_node, value_node in node.value:
        key = _value(key_node) if isinstance(key_node, yaml.ScalarNode) else None
        if not isinstance(key, str | int) or isinstance(key, bool):
            shown_key = shown(key_node.value, 32) if isinstance(key_node, yaml.ScalarNode) else "of several values"
            _refuse(key_node, f"key {shown_key} is neither a text nor a whole number")
        if key in out:
            _refuse(key_node, f"key {shown(key)} is given twice")
        out[key] = _value(value_node)
    return out


def _number(text: str) -> float:
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return parse_number(text.replace("_", ""), "number")


def _integer(text: str) -> int:
    plain = text.replace("_", "")
    if len(plain.lstrip("+-")) > 1 and plain.lstrip("+-").startswith("0"):
        raise InputError("octal in one version of YAML, decimal in the other")
    return parse_whole(plain, "number")


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "timestamp": str,
    "null": lambda text: {"": None, "~": None, "null": None, "Null": None, "NULL": None}[text],
    "bool": lambda text: _TRUTHS[text.lower()],
    "int": _integer,
    "float": _number,
}
_WORDS = {
    "str": "a text",
    "timestamp": "a text",
    "null": "nothing",
    "bool": "a truth value",
    "int": "a decimal whole number of at most 40 digits",
    "float": "a finite decimal number",
}
