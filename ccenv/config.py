"""Typed configuration: strict models, YAML reading, suggestions for unknown keys."""

from __future__ import annotations

from importlib import resources
from pathlib import Path as FilePath
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from ccenv.errors import InputError, did_you_mean, unknown_name

ModelT = TypeVar("ModelT", bound=BaseModel)


class StrictModel(BaseModel):
    """Base of all configs: immutable, no unknown keys, finite numbers unless a field says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def validate(model: type[ModelT], data: Any, where: str) -> ModelT:
    """Validate data against a model; the first problem becomes one line.

    Args:
        model: the pydantic model.
        data: parsed YAML or JSON, or keyword values.
        where: name of the file or object for the message.

    Raises:
        InputError: with the path to the key, the value seen and what is allowed.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{where}: {_first_problem(model, error)}") from None


def _first_problem(model: type[BaseModel], error: ValidationError) -> str:
    first, *others = error.errors(include_url=False)
    if first["type"] == "missing":  # more likely misspelt
        siblings = (p for p in others if p["type"] == "extra_forbidden" and p["loc"][:-1] == first["loc"][:-1])
        first = next(siblings, first)
    location = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        valid = _fields_at(model, first["loc"][:-1])
        return f"unknown key {location!r}.{did_you_mean(str(first['loc'][-1]), valid)}"
    message = first["msg"].removeprefix("Value error, ")
    seen = first.get("input")
    if first["type"] == "missing":
        return f"{location}: missing"
    shown = "" if isinstance(seen, (dict, list, tuple, BaseModel)) else f" (got {seen!r})"
    return f"{location}: {message}{shown}" if location else f"{message}{shown}"


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    current: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        field = getattr(current, "model_fields", {}).get(part)
        if field is None:
            continue
        current = _model_in(field.annotation) or current
    return list(getattr(current, "model_fields", {}))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def read_yaml(path: FilePath) -> Any:
    """Read one YAML file. Raises InputError with the line of a syntax error."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}: not valid YAML{at}") from None


def find_data(package: str, name: str, suffix: str, what: str) -> FilePath:
    """Return the file for a shipped name or a path given by the user.

    Args:
        package: package that holds the shipped files, e.g. ``"ccenv.configs.train"``.
        name: ``"quick_sender"``, ``"quick_sender.yaml"`` or a path such as ``"configs/train/quick_sender.yaml"``.
        suffix: file ending with the dot, e.g. ``".yaml"``.
        what: what people call it, for the message: "suite", "config".

    Raises:
        UnknownNameError: if neither a file nor a shipped name exists.
    """
    given = FilePath(name)
    if given.suffix == suffix and given.is_file():
        return given
    root = FilePath(str(resources.files(package)))
    shipped = {p.stem: p for p in sorted(root.glob("*" + suffix))}
    stem = given.name.removesuffix(suffix)
    # A path such as configs/train/NAME.yaml names the shipped file also where there is no checkout.
    if stem in shipped and (len(given.parts) == 1 or given.parts[-2:-1] == (root.name,)):
        return shipped[stem]
    raise unknown_name(what, name, shipped)


def shipped_names(package: str, suffix: str) -> list[str]:
    """Return the names (without ending) of the files that a package ships."""
    root = FilePath(str(resources.files(package)))
    return sorted(p.name.removesuffix(suffix) for p in root.glob("*" + suffix))
