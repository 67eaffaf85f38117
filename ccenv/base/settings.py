"""Settings of a command and its Python function: one strict model, made from the function, and what fills it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, Field, create_model

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError, UnknownNameError, did_you_mean, shown
from ccenv.base.foreign import parse_yaml, read_yaml
from ccenv.base.units import MBPS, MILLISECONDS, SECONDS, quantity

_KEY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_UNITS = {"_s": SECONDS, "_ms": MILLISECONDS, "_mbps": MBPS}
_SUMMARY = re.compile(r"(?:Args|Attributes):\n((?: {4}.*\n|\n)+)")


def read_pairs(texts: Sequence[str], *, last_wins: bool = False) -> dict[str, Any]:
    """Read settings as typed after ``-s``.

    Raises InputError for another form, a key that is typed twice without ``last_wins``, or a file that is no table.

    Args:
        texts: ``KEY=VALUE`` with dots between the keys of groups, or names of YAML files; what is typed goes before a file's.
        last_wins: a key that is typed twice has its last value, as keys of configs do.

    Returns:
        dict: dotted key -> text after ``=``, or the value of the file.
    """
    typed: dict[str, Any] = {}
    from_files: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if equals and _KEY.fullmatch(key):
            if key in typed and not last_wins:
                raise InputError(f"-s {key} is given twice")
            typed[key] = value
        elif not equals and text.endswith((".yaml", ".yml")):
            data = read_yaml(Path(text))
            if not isinstance(data, dict):
                raise InputError(f"{text}: settings are a table of keys to values")
            from_files |= _flatten(data)
        else:
            raise InputError(f"-s {shown(text)} is neither of the form KEY=VALUE, KEY.KEY=VALUE nor a file FILE.yaml")
    return from_files | typed


def _flatten(data: dict[Any, Any], above: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in data.items():
        out |= _flatten(value, f"{above}{key}.") if isinstance(value, dict) and value else {f"{above}{key}": value}
    return out


def put(data: dict[str, Any], pairs: dict[str, Any]) -> dict[str, Any]:
    """Put pairs into nested data, texts read as YAML, and return it. Raises InputError for a key below one that is no group."""
    for name, value in pairs.items():
        *groups, last = name.split(".")
        target = data
        for key in groups:
            target = target.setdefault(key, {})
            if not isinstance(target, dict):
                raise InputError(f"-s {name}: {shown(key)} is not a group of settings")
        target[last] = parse_yaml(value, f"-s {name}: the value") if isinstance(value, str) else value
    return data


def settings_of(function: Callable[..., Any] | None, names: Sequence[str], more: dict[str, Any]) -> type[StrictModel]:
    """Make the settings model of a function.

    Args:
        function: or a class with fields, or None; whose keywords, types, defaults and meanings (of its docstring) the model has.
        names: of these keywords. Those that end in ``_s``, ``_ms`` or ``_mbps`` are read with units.
        more: name -> annotation and ``pydantic.Field`` of settings that the function has not.
    """
    fields: dict[str, Any] = {}
    if function is not None:
        parameters, meanings = inspect.signature(function).parameters, dict[str, str]()
        for one in reversed(inspect.getmro(function) if inspect.isclass(function) else (function,)):
            meanings |= read_meanings(inspect.getdoc(one) or "")
    for name in names:
        annotation = get_type_hints(function)[name]
        fields[name] = (annotation, Field(parameters[name].default, description=meanings.get(name, "")))
    for name, (annotation, field) in (fields | more).items():
        fields[name] = (Annotated[annotation, BeforeValidator(partial(_read_text, name, kinds_of(annotation)))], field)
    return create_model("Settings", __base__=StrictModel, **fields)


def kinds_of(annotation: Any) -> list[Any]:
    """Return the members of a union without None, or the type alone."""
    if get_origin(annotation) is Annotated:
        return kinds_of(get_args(annotation)[0])
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return [member for member in members if member is not type(None)]


def _read_text(name: str, kinds: Sequence[Any], value: Any) -> Any:
    """Return a value as pydantic takes it: a text with its unit read, or split at commas where a list is needed."""
    is_list = any(get_origin(kind) in (list, tuple) for kind in kinds)
    units = next((units for end, units in _UNITS.items() if name.endswith(end)), None)
    if value == "null" or value is None:
        return None
    parts = value.split(",") if isinstance(value, str) and is_list else value if isinstance(value, (list, tuple)) else [value]
    read = [quantity(f"-s {name}", part, units) if units and isinstance(part, str) else part for part in parts]
    return read if is_list else read[0] if len(read) == 1 else value


def read_settings(model: type[BaseModel], pairs: dict[str, Any], command: str) -> dict[str, Any]:
    """Return all settings of a model, those of ``pairs`` read and checked, the others as they are by default.

    Raises UnknownNameError for a key that the model has not: with near names and the list; InputError for a value that is not
    allowed.
    """
    data: dict[str, Any] = {}
    for key, value in pairs.items():
        name, dot, inner = key.partition(".")
        if name not in model.model_fields:
            raise unknown_setting(name, list(model.model_fields), command)
        if dot:
            data.setdefault(name, {})[inner] = value
        else:
            data[name] = value
    return dict(validate(model, data, f"-s of ccenv {command}"))


def unknown_setting(key: str, valid: Sequence[str], command: str) -> UnknownNameError:
    near = did_you_mean(key, valid)
    listed = f" Settings: {', '.join(valid)}." if valid else " It has none."
    return UnknownNameError(f"ccenv {command}: unknown setting {shown(key)}.{near if near.startswith(' Did') else ''}{listed}")


def read_meanings(doc: str) -> dict[str, str]:
    """Return what a docstring says about each argument or attribute, as one line each."""
    block = _SUMMARY.search(doc + "\n")
    out: dict[str, str] = {}
    names: list[str] = []
    for line in (block[1] if block else "").splitlines():
        text = line[4:]
        head, colon, rest = text.partition(": ")
        if text and not text.startswith(" ") and (colon or text.endswith(":")):
            names = [name.strip(" `*") for name in head.rstrip(":").split(",")]
            out |= dict.fromkeys(names, rest.strip())
        elif text.strip():
            out |= {name: f"{out[name]} {text.strip()}".strip() for name in names}
    return {name: text.replace("``", "").replace(":class:", "").rstrip(".") for name, text in out.items()}
