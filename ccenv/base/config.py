"""Typed configuration: strict models, suggestions for unknown keys, shipped files by name."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path as FilePath
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ccenv.base.errors import InputError, UnknownNameError, did_you_mean, shown
from ccenv.base.foreign.reading import is_file

ModelT = TypeVar("ModelT", bound=BaseModel)


class StrictModel(BaseModel):
    """Base of all configs: immutable, no unknown keys, finite numbers unless a field says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _exact_numbers(cls, data: Any) -> Any:
        """Refuse what only equals a number: ``true``, and ``1.0`` where whole numbers are the only choice (a format version)."""
        if isinstance(data, dict):
            wrong = {name: "it must be a number" for name in cls._numbers() if isinstance(data.get(name), bool)}
            for name in cls._literal_wholes():
                if name in data and type(data[name]) is not int:
                    wrong[name] = "it must be a whole number that this ccenv knows"
            if wrong:  # each at its own place, so that a message can name it
                raise ValidationError.from_exception_data(
                    cls.__name__,
                    [
                        {"type": "value_error", "loc": (name,), "input": data[name], "ctx": {"error": message}}
                        for name, message in wrong.items()
                    ],
                )
        return data

    @classmethod
    @cache
    def _literal_wholes(cls) -> tuple[str, ...]:
        def whole(annotation: Any) -> bool:
            return get_origin(annotation) is Literal and all(type(value) is int for value in get_args(annotation))

        return tuple(name for name, field in cls.model_fields.items() if whole(field.annotation))

    @classmethod
    @cache
    def _numbers(cls) -> tuple[str, ...]:
        def number(annotation: Any) -> bool:
            kinds = {annotation, *get_args(annotation)}
            return bool(kinds & {int, float}) and kinds <= {annotation, int, float, type(None)}

        return tuple(name for name, field in cls.model_fields.items() if number(field.annotation))


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
    location = ".".join(_plain(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        valid = _fields_at(model, first["loc"][:-1])
        return f"unknown key {shown(location, 120)}.{did_you_mean(_plain(first['loc'][-1]), valid)}"
    message = " ".join(first["msg"].removeprefix("Value error, ").split())
    seen = first.get("input")
    if first["type"] == "missing":
        return f"{location}: missing"
    got = "" if isinstance(seen, (dict, list, tuple, BaseModel)) else f" (got {shown(seen, 100)})"
    return f"{location}: {message}{got}" if location else f"{message}{got}"


def _plain(part: object) -> str:
    """Return a key for a message: as it is, or shortened and escaped."""
    text = str(part)
    return text if text.isprintable() and len(text) <= 40 else shown(text, 40)


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


def data_folder(name: str) -> FilePath:
    """Return a folder of shipped files, named as a package is, such as ``"ccenv.configs.train"``; it needs no ``__init__.py``."""
    root, *inner = name.split(".")
    return FilePath(str(resources.files(root))).joinpath(*inner)


def find_data(package: str, name: str, suffix: str, what: str) -> FilePath:
    """Return the file for a shipped name or a path given by the user.

    Args:
        package: folder that holds the shipped files, e.g. ``"ccenv.configs.train"``.
        name: ``"quick_sender"``, ``"quick_sender.yaml"`` or a path such as ``"configs/train/quick_sender.yaml"``.
        suffix: file ending with the dot, e.g. ``".yaml"``.
        what: what people call it, for the message: "suite", "config".

    Raises:
        UnknownNameError: if neither a file nor a shipped name exists.
    """
    given = FilePath(name)
    if given.suffix == suffix and is_file(given):
        return given
    root = data_folder(package)
    shipped = {p.stem: p for p in sorted(root.glob("*" + suffix))}
    stem = given.name.removesuffix(suffix)
    # A path such as configs/train/NAME.yaml names the shipped file also where there is no checkout.
    if stem in shipped and (len(given.parts) == 1 or given.parts[-2:-1] == (root.name,)):
        return shipped[stem]
    hint = did_you_mean(stem, shipped)
    if given.is_dir():
        raise UnknownNameError(f"{shown(name, 100)}: is a folder; a {what} is a file that ends with {suffix}.{hint}")
    if (given.suffix == suffix or len(given.parts) > 1) and not is_file(given):
        raise UnknownNameError(f"{shown(name, 100)}: file not found, and no {what} has this name.{hint}")
    raise UnknownNameError(f"unknown {what} {shown(name, 100)}.{hint}")


def shipped_names(package: str, suffix: str) -> list[str]:
    """Return the names (without ending) of the files that a package ships."""
    root = data_folder(package)
    return sorted(p.name.removesuffix(suffix) for p in root.glob("*" + suffix))
