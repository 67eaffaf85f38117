"""What the machine code of a user's function freezes: functions that it calls, and globals, wherever they come from.

Text of a user's files does not tell it: a constant may be imported from a module of the user, read from the environment, or
computed. So the values themselves count, as they are when a kernel is compiled.
"""

from __future__ import annotations

import dis
import enum
import hashlib
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ccenv.base.provenance import is_of_user


def frozen_digest(function: FunctionType, file_digest: Callable[[Path], str]) -> str:
    """Return a digest of all that a function's machine code depends on besides types and options.

    Args:
        function: plain, as written.
        file_digest: digest of a file and of all that it imports from the package.

    Raises:
        Exception: of any kind, for a global that has no content to compare, as a lock.
    """
    digest, seen = hashlib.sha256(), set[object]()

    def add(*texts: object) -> None:
        digest.update("".join(f"{text}\n" for text in texts).encode())

    def add_value(value: Any, attributes: frozenset[str] = frozenset()) -> None:
        add(type(value).__qualname__)
        plain = getattr(value, "py_func", value)
        if isinstance(plain, FunctionType):
            add(sorted(getattr(value, "targetoptions", {}).items()))
            add_function(plain)
        elif isinstance(value, ModuleType):
            add(value.__name__)
            if (value, attributes) not in seen:
                seen.add((value, attributes))
                for name in sorted(attributes & vars(value).keys()):
                    add(name)
                    add_value(vars(value)[name], attributes)
        elif isinstance(value, enum.EnumMeta):
            members: dict[str, enum.Enum] = dict(value.__members__)
            add(value.__qualname__, [(name, member.value) for name, member in members.items()])
        elif isinstance(value, type) or callable(value):
            add(getattr(value, "__module__", ""), getattr(value, "__qualname__", value))
        elif isinstance(value, int | float | complex | str | bytes | None):
            add(repr(value))
        else:
            from numba.core.serialize import dumps

            digest.update(dumps(value))

    def add_function(plain: FunctionType) -> None:
        if plain in seen:
            return
        seen.add(plain)
        code = plain.__code__
        file = Path(code.co_filename).resolve()
        add(code.co_qualname)
        if file.is_file():
            add(file_digest(file))
        for value in (*(cell.cell_contents for cell in plain.__closure__ or ()), *(plain.__defaults__ or ())):
            add_value(value)
        if is_of_user(file):
            add_code(code, plain.__globals__)

    def add_code(code: CodeType, names: dict[str, Any]) -> None:
        digest.update(code.co_code)
        instructions = list(dis.get_instructions(code))
        attributes = frozenset(one.argval for one in instructions if one.opname in {"LOAD_ATTR", "LOAD_METHOD"})
        for name in sorted({one.argval for one in instructions if one.opname == "LOAD_GLOBAL"} & names.keys()):
            add(name)
            add_value(names[name], attributes)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                add_code(constant, names)
            else:
                add(repr(constant))

    add_function(function)
    return digest.hexdigest()
