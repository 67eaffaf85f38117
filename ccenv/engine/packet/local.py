"""Records in registers: a copy of a record that compiled code works on, with fields whose values are known to the compiler.

The compiler cannot keep a field of a record in a register across a write to a ring: for all it knows, the write may change the
field. A local copy has no address that a ring could have, so its fields live in registers. Fields that are known are constants:
what depends on them is decided when the code is compiled, and what they rule out is not there. The copy is taken, worked on and
written back in one function; all that it is passed to has to be inlined there (``forceinline``, or ``inline="always"``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, models, register_model

_ALIGNMENT = 64  # bytes


class LocalRecord(types.Type):  # type: ignore[misc]
    """The type of a local copy.

    Args:
        record: type of what it is a copy of.
        known: names and values of the fields that the compiler knows.
    """

    def __init__(self, record: types.Record, known: tuple[tuple[str, float], ...]) -> None:
        self.record, self.known = record, dict(known)
        super().__init__(name=f"LocalRecord({record.name}, {known})")

    @property
    def mangling_args(self) -> tuple[str, tuple[Any, ...]]:
        """What names of functions over this type are made of."""
        return "LocalRecord", (hashlib.sha256(self.name.encode()).hexdigest()[:16],)


@register_model(LocalRecord)
class _LocalRecordModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: LocalRecord) -> None:
        super().__init__(dmm, fe_type, ir.ArrayType(ir.IntType(8), fe_type.record.size).as_pointer())


@infer_getattr
class _LocalRecordAttributes(AttributeTemplate):  # type: ignore[misc]
    key = LocalRecord

    def generic_resolve(self, typ: LocalRecord, attr: str) -> Any:
        return typ.record.typeof(attr) if attr in typ.record.fields else None


def _member(context: Any, builder: Any, typ: LocalRecord, value: Any, attr: str) -> Any:
    return cgutils.get_record_member(builder, value, typ.record.offset(attr), context.get_data_type(typ.record.typeof(attr)))


@lower_getattr_generic(LocalRecord)
def _read(context: Any, builder: Any, typ: LocalRecord, value: Any, attr: str) -> Any:
    member = typ.record.typeof(attr)
    if attr in typ.known:
        return context.get_constant(member, typ.known[attr])
    return context.unpack_value(builder, member, _member(context, builder, typ, value, attr))


@lower_setattr_generic(LocalRecord)
def _write(context: Any, builder: Any, sig: Any, args: Any, attr: str) -> None:
    typ, given = sig.args
    if attr in typ.known:
        raise TypeError(f"{attr!r} is known to be {typ.known[attr]}: nothing may set it")
    target, value = args
    member = typ.record.typeof(attr)
    converted = context.cast(builder, value, given, member)
    context.pack_value(builder, member, converted, _member(context, builder, typ, target, attr))


def _copy(builder: Any, target: Any, source: Any, size: int) -> None:
    cgutils.raw_memcpy(builder, target, source, ir.IntType(64)(size), 1)


def copies_of(known: Mapping[str, float]) -> Any:
    """Return a compiled function that copies a record.

    Args:
        known: values of fields; every record that is copied must have them (``fits``). Code that sets one is not compiled.
    """
    fixed = tuple(sorted(known.items()))

    @intrinsic
    def local_copy(typing_context, record):
        local = LocalRecord(record, fixed)

        def generate(context, builder, signature, arguments):
            slot = cgutils.alloca_once(builder, context.get_value_type(local).pointee)
            slot.align = _ALIGNMENT
            _copy(builder, slot, arguments[0], record.size)
            return slot

        return local(record), generate

    return local_copy


def fits(known: Mapping[str, float]) -> Any:
    """Return a compiled function that tells whether the fields of a record have the values that a copy is to know."""
    fixed = tuple(sorted(known.items()))

    @intrinsic
    def has_known_values(typing_context, record):
        def generate(context, builder, signature, arguments):
            found = cgutils.true_bit
            for name, value in fixed:
                member = record.typeof(name)
                pointer = cgutils.get_record_member(builder, arguments[0], record.offset(name), context.get_data_type(member))
                present, wanted = context.unpack_value(builder, member, pointer), context.get_constant(member, value)
                equal = builder.icmp_signed if isinstance(member, types.Integer) else builder.fcmp_ordered
                found = builder.and_(found, equal("==", present, wanted))
            return found

        return types.boolean(record), generate

    return has_known_values


@intrinsic
def put_back(typing_context, local, record):
    """Write a local copy back into its record."""

    def generate(context, builder, signature, arguments):
        _copy(builder, arguments[1], arguments[0], record.size)
        return context.get_dummy_value()

    return types.void(local, record), generate
