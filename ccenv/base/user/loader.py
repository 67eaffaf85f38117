"""One loader for everything that code of a user can define: what is read, called and refused, whatever its kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any, Generic, TypeVar

from ccenv.base.errors import InputError, UnknownNameError, did_you_mean, shown, unknown_name
from ccenv.base.registry import parse_parameters
from ccenv.base.user import installed, limits
from ccenv.base.user.python_file import (
    describe_error,
    get_attribute,
    is_python_file,
    load_file,
    place,
    read_spec,
    require_parameters,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Guard:
    """Calls functions of a user under a time limit; what they raise becomes one line with file and line."""

    file: FilePath | str
    label: str = ""
    start: str = ""  # location of an error that no line of the file raised; by default the file
    passes: type[Exception] | tuple[type[Exception], ...] = ()  # errors that are raised as they are

    def call(self, what: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function, which messages about time call ``what``. Raises InputError for whatever it raises."""
        try:
            with limits.limited(what, limits.CALL_LIMIT_S):
                return function(*arguments, **named)
        except self.passes:
            raise
        except Exception as error:
            location = place(self.file, error)
            location = location if ":" in location else self.start or location
            raise InputError(f"{location}: {self.label and f'{self.label}: '}{describe_error(error)}") from error


def call(factory: Callable[..., Any], arguments: Mapping[str, Any], where: str, path: FilePath) -> Any:
    """Call a user's factory. Raises InputError with file and line for whatever it raises."""
    require_parameters(factory, arguments, where)
    return Guard(path, passes=InputError).call(getattr(factory, "__name__", where), factory, **arguments)


@dataclass(frozen=True)
class Loaded(Generic[T]):
    """A definition of a user, and what was made of it.

    Attributes:
        value: at first a module of functions, or what its attribute holds; then the thing itself.
        spec: as the user gave it.
        label: for tables: name of the plugin, or of the file without suffix, with the attribute if it is not the usual one.
        file, sha256: the source and its hash.
        attribute: that the user named.
        module: of a file; None: a plugin.
    """

    value: T
    spec: str
    label: str
    where: str
    file: FilePath
    sha256: str
    attribute: str
    parameters: dict[str, Any]
    module: ModuleType | None = None


@dataclass(frozen=True)
class UserKind(Generic[T]):
    """A kind of thing that users define."""

    name: str  # in messages, and of the plugins
    taken: Callable[[], Iterable[str]]  # names that no file and no plugin may have
    attribute: str  # what a file defines if its spec names nothing
    # makes the thing of a definition that is one; None: call the definition, and try what it returns
    accepts: Callable[[Loaded[Any]], T | None]
    forms: str  # what a file can define, for messages
    # the definition of a module (and its file, for messages) without the attribute; None: there is none
    fallback: Callable[[ModuleType, str], Any] = lambda module, file: None
    registered: str = ""  # word for the names that are taken; by default `name`
    plugins: bool = True  # whether plugins may define it

    def is_user(self, spec: object) -> bool:
        """Tell whether a spec names user code: a Python file or a plugin."""
        return is_python_file(spec) or (isinstance(spec, str) and self._find_plugin(spec) is not None)

    def load(self, spec: str, **more: Any) -> Loaded[T]:
        """Run the code that a spec names.

        Args:
            spec: ``FILE.py``, ``FILE.py:ATTRIBUTE``, ``FILE.py:ATTRIBUTE:key=value,...``, or a plugin with optional parameters.
            **more: further parameters.

        Raises:
            UnknownNameError: if there is no such plugin.
            InputError: one line with file and line, if the code cannot be run or does not define such a thing.
        """
        code = self._read_file(spec) if is_python_file(spec) else self._read_plugin(spec)
        code = replace(code, parameters={**code.parameters, **more})
        if isinstance(code.value, ModuleType):
            require_parameters(lambda: None, code.parameters, code.where)
        value = self.accepts(code)
        if value is None:
            if not callable(code.value):
                raise InputError(f"{code.where} is {shown(type(code.value).__name__)}; what it can be: {self.forms}")
            made = call(code.value, code.parameters, code.where, code.file)
            value = self.accepts(replace(code, value=made, parameters={}))
            if value is None:
                noun = f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"
                raise InputError(f"{code.where} returned {shown(type(made).__name__)}, not {noun}; what it can be: {self.forms}")
        return replace(code, value=value)

    def unknown(self, name: str) -> UnknownNameError:
        """Return the error for a name that neither ccenv nor a plugin has."""
        names = [plugin.name for plugin in installed.plugins(self.name, self.taken()) if not plugin.problem]
        return unknown_name(self.registered or self.name, name, [*self.taken(), *names])

    def _read_file(self, spec: str) -> Loaded[Any]:
        parsed = read_spec(spec)
        user = load_file(parsed.file, self.registered or self.name, self.taken())
        usual, label = parsed.attribute in ("", self.attribute), FilePath(parsed.file).stem
        if not usual:
            value, label = get_attribute(user.module, parsed.attribute, parsed.file), f"{label}.{parsed.attribute}"
        elif (value := getattr(user.module, self.attribute, None)) is None or isinstance(value, (str, int, float)):
            value = self.fallback(user.module, parsed.file)
        if value is None:
            hint = did_you_mean(self.attribute, [name for name, one in vars(user.module).items() if inspect.isfunction(one)])
            raise InputError(f"{parsed.file} defines no {self.name}; what it can define: {self.forms}{hint and f'.{hint}'}")
        source = (user.path, user.sha256, parsed.attribute)
        return Loaded(value, spec, label, parsed.where, *source, dict(parsed.parameters), user.module)

    def _find_plugin(self, spec: str) -> installed.Plugin | None:
        return installed.find(self.name, spec.partition(":")[0], self.taken()) if self.plugins else None

    def _read_plugin(self, spec: str) -> Loaded[Any]:
        if (plugin := self._find_plugin(spec)) is None:
            raise self.unknown(spec)
        value, file, sha256 = installed.load(plugin)
        parameters: dict[str, Any] = {**parse_parameters(spec.partition(":")[2])}
        return Loaded(value, spec, plugin.name, f"{plugin.name} of {plugin.package}", file, sha256, "", parameters)
