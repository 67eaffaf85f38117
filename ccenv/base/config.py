"""Typed configuration: strict models, suggestions for unknown keys, shipped files by name."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path as FilePath
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ccenv.base.errors import InputError, UnknownNameError, did_you_mean, shown
from ccenv.base.foreign.reading import is_file
from ccenv.base.renamed import today, with_keys_of_today

ModelT = TypeVar("ModelT", bound=BaseModel)


class StrictModel(BaseModel):
    """Base of all configs: immutable, no unknown keys, finite numbers unless a field says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _todays_keys(cls, data: Any) -> Any:
        return with_keys_of_today(data) if isinstance(data, dict) and "shield" in cls.model_fields else data

    @model_validator(mode="before")
    @classmethod
    def _exact_numbers(cls, data: Any) -> Any:
        """Refuse what only equals a number: ``true``, and ``1.0`` where whole numbers are the only choice (a format version)."""
        if isinstance(data, dict):
            wrong = {name: "it must be a number" for name in cls._number_fields() if isinstance(data.get(name), bool)}
            for name in cls._integer_literals():
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
    def _integer_literals(cls) -> tuple[str, ...]:
        def is_integer_literal(annotation: Any) -> bool:
            return get_origin(annotation) is Literal and all(type(value) is int for value in get_args(annotation))

        return tuple(name for name, field in cls.model_fields.items() if is_integer_literal(field.annotation))

    @classmethod
    @cache
    def _number_fields(cls) -> tuple[str, ...]:
        def is_number(annotation: Any) -> bool:
            types = {annotation, *get_args(annotation)}
            return bool(types & {int, float}) and types <= {annotation, int, float, type(None)}

        return tuple(name for name, field in cls.model_fields.items() if is_number(field.annotation))


def validate(model: type[ModelT], data: Any, where: str) -> ModelT:
    """Validate parsed data or keyword values against a model; ``where`` names the file or object in messages.

    Raises InputError for the first problem: path to the key, value seen, what is allowed.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{where}: {_first_problem(model, error)}") from None


def _first_problem(model: type[BaseModel], error: ValidationError) -> str:
    first, *later = error.errors(include_url=False)
    if first["type"] == "missing":  # more likely misspelt
        siblings = (p for p in later if p["type"] == "extra_forbidden" and p["loc"][:-1] == first["loc"][:-1])
        first = next(siblings, first)
    location = ".".join(_plain(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        valid = _find_fields(model, first["loc"][:-1])
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


def _find_fields(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    current: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        field = getattr(current, "model_fields", {}).get(part)
        if field is None:
            continue
        current = _find_model(field.annotation) or current
    return list(getattr(current, "model_fields", {}))


def _find_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        nested_model = _find_model(argument)
        if nested_model is not None:
            return nested_model
    return None


def data_folder(name: str) -> FilePath:
    """Return a folder of shipped files, named as a package is, such as ``"ccenv.configs.train"``; it needs no ``__init__.py``."""
    root, *inner = name.split(".")
    return FilePath(str(resources.files(root))).joinpath(*inner)


def find_data(package: str, name: str, suffix: str, what: str) -> FilePath:
    """Return the file for a shipped name or a path given by the user.

    Raises UnknownNameError if neither a file nor a shipped name exists.

    Args:
        package: folder that holds the shipped files, e.g. ``"ccenv.configs.train"``.
        name: ``"quick_sender"``, ``"quick_sender.yaml"`` or a path such as ``"configs/train/quick_sender.yaml"``.
        suffix: with the dot, e.g. ``".yaml"``.
        what: noun for messages: "suite", "config".
    """
    path = FilePath(name)
    if path.suffix == suffix and is_file(path):
        return path
    root = data_folder(package)
    shipped = {p.stem: p for p in sorted(root.glob("*" + suffix))}
    stem = path.name.removesuffix(suffix)
    stem = stem if stem in shipped else today(stem)
    # A path such as configs/train/NAME.yaml names the shipped file also where there is no checkout.
    if stem in shipped and (len(path.parts) == 1 or path.parts[-2:-1] == (root.name,)):
        return shipped[stem]
    hint = did_you_mean(stem, shipped)
    if path.is_dir():
        raise UnknownNameError(f"{shown(name, 100)}: is a folder; a {what} is a file that ends with {suffix}.{hint}")
    if (path.suffix == suffix or len(path.parts) > 1) and not is_file(path):
        raise UnknownNameError(f"{shown(name, 100)}: file not found, and no {what} has this name.{hint}")
    raise UnknownNameError(f"unknown {what} {shown(name, 100)}.{hint}")


def shipped_names(package: str, suffix: str) -> list[str]:
    """Return the names (without ending) of the files that a package ships."""
    root = data_folder(package)
    return sorted(p.name.removesuffix(suffix) for p in root.glob("*" + suffix))
