"""A numba dispatcher that compiles less and caches machine code by content.

A function that only other kernels call gets no Python wrappers and no machine code of its own: it is part of theirs. One
compilation serves all literal arguments of a type. Neither changes a result.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

from numba import types
from numba.core import sigutils, typing
from numba.core.bytecode import FunctionIdentity
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher

# Numba numbers functions and records as they come in a process and names machine code by the numbers. Two processes then give
# one name to two functions, and a third that reads both from the disk plays the first one in place of the second. With numbers
# that are never given twice, also after a fork, each compilation has a name of its own.
FunctionIdentity._unique_ids = iter(partial(secrets.randbits, 64), None)


class _Part(JITCodeLibrary):
    """A function as part of others: optimised as numba does it, but without machine code of its own."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _Compiler(_FunctionCompiler):
    """Compiles without wrappers while ``bare`` holds."""

    bare = False

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = self.bare
        return flags

    def compile_part(self, args: Any) -> Any:
        target = self.targetdescr.target_context
        flags = Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        library = _Part(target.codegen(), self.py_func.__qualname__)
        result = compile_extra(
            self.targetdescr.typing_context, target, self.py_func, args=args, return_type=None, flags=flags, locals=self.locals,
            library=library, pipeline_class=self.pipeline_class,
        )._replace(entry_point=object())  # fmt: skip
        target.insert_user_function(result.entry_point, result.fndesc, [result.library])
        return result


class Kernel(CPUDispatcher):
    """A compiled function. Made by :mod:`ccenv.base.kernels.decorator`."""

    def __init__(self, py_func: Any, locals: Any = None, targetoptions: Any = None) -> None:
        from ccenv.base.kernels.cache import Store

        super().__init__(py_func, locals, targetoptions)
        self._compiler: Any = _Compiler(py_func, self.targetdescr, self.targetoptions, self.locals, Compiler)
        self._bare: set[tuple[Any, ...]] = set()  # signatures that Python cannot call yet
        self._parts: set[tuple[Any, ...]] = set()  # signatures that have no machine code yet
        self._cache = Store(py_func, self.targetoptions)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return what numba asks for where another kernel calls this one."""
        plain = {name: types.unliteral(arg) for name, arg in kws.items()}
        signature, args = self._compiler.fold_argument_types(tuple(types.unliteral(arg) for arg in args), plain)
        self._compile_part(tuple(args))
        name = self.py_func.__name__
        template = typing.make_concrete_template(f"CallTemplate({name})", key=name, signatures=self.nopython_signatures)
        return template, signature, args, {}

    def address(self, *args: Any) -> int:
        """Return the address of the machine code for arguments of these types, in numba's own calling convention."""
        with global_compiler_lock:
            self._drop(self._parts, args)
            if args not in self.overloads:
                with self._cache.turn(args, self.targetctx, bare=True):
                    self._compile_bare(args)
            result = self.overloads[args]
        return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))

    def _compile_part(self, args: tuple[Any, ...]) -> None:
        with global_compiler_lock:
            if args not in self.overloads and self._can_compile:
                with self._compiling_counter:
                    result = self._compiler.compile_part(args)
                self.overloads[args] = result
                self._parts.add(args)

    def _compile_bare(self, args: tuple[Any, ...]) -> None:
        with global_compiler_lock:
            self._compiler.bare = self._cache.bare = True
            try:
                super().compile(args)
            finally:
                self._compiler.bare = self._cache.bare = False

    def add_overload(self, cres: Any) -> None:
        """Keep a result; only results with a wrapper are registered for calls from Python."""
        for environment in cres._find_referenced_environments():  # those of its parts
            cres.library.codegen.set_env(environment.env_name, environment)
        if self._compiler.bare:
            self.overloads[tuple(cres.signature.args)] = cres
            self._bare.add(tuple(cres.signature.args))
        else:
            super().add_overload(cres)

    def compile(self, sig: Any) -> Any:
        """Compile for a call from Python, also where a kernel's call has been compiled before."""
        with global_compiler_lock:
            args = tuple(sigutils.normalize_signature(sig)[0])
            self._drop(self._bare, args)
            self._drop(self._parts, args)
            if args in self.overloads:
                return super().compile(sig)
            with self._cache.turn(sig, self.targetctx):
                return super().compile(sig)

    def get_compile_result(self, sig: Any) -> Any:
        """Return the result for a first-class function, which needs wrappers."""
        with global_compiler_lock:
            self._drop(self._bare, tuple(sig.args))
            self._drop(self._parts, tuple(sig.args))
            return super().get_compile_result(sig)

    def _drop(self, incomplete: set[tuple[Any, ...]], args: tuple[Any, ...]) -> None:
        if args in incomplete:
            incomplete.discard(args)
            del self.overloads[args]
