"""One flow over one drop-tail link of constant rate: its events with all that changes in registers. Compiled.

The code of the events is that of all networks (``events``). Rate changes, decisions, ticks and the log come between two calls.

The compiler cannot keep a field of a record in a register across a write to a ring: for all it knows, the write may change the
field. A local copy has no address that a ring could have, so its fields live in registers. Fields that are known are constants:
what depends on them is decided when the code is compiled, and what they rule out is not there. The copy is taken, worked on and
written back in one function; all that it is passed to has to be inlined there (``forceinline``, or ``inline="always"``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, models, register_model

from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import load
from ccenv.engine.packet.events import end_service, send_packets, take_feedback
from ccenv.engine.packet.layout import AGGREGATIONS, DISCIPLINES, JITTERS, TRACE_KINDS
from ccenv.engine.packet.monitor import ACKS
from ccenv.engine.packet.sources import FIRST_LINK, RATE_CHANGES

_ALIGNMENT = 64  # bytes


class LocalRecord(types.Type):  # type: ignore[misc]
    """The type of a local copy of a record; ``known`` are names and values of the fields that the compiler knows."""

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
    typ, value_type = sig.args
    if attr in typ.known:
        raise TypeError(f"{attr!r} is known to be {typ.known[attr]}: nothing may set it")
    target, value = args
    member = typ.record.typeof(attr)
    converted = context.cast(builder, value, value_type, member)
    context.pack_value(builder, member, converted, _member(context, builder, typ, target, attr))


def _copy_local(builder: Any, target: Any, source: Any, size: int) -> None:
    cgutils.raw_memcpy(builder, target, source, ir.IntType(64)(size), 1)


def copies_of(known: Mapping[str, float]) -> Any:
    """Return a compiled function that copies a record with known fields (``fits``). Code that sets one is not compiled."""
    fixed = tuple(sorted(known.items()))

    @intrinsic
    def local_copy(typing_context, record):
        local = LocalRecord(record, fixed)

        def generate(context, builder, signature, arguments):
            slot = cgutils.alloca_once(builder, context.get_value_type(local).pointee)
            slot.align = _ALIGNMENT
            _copy_local(builder, slot, arguments[0], record.size)
            return slot

        return local(record), generate

    return local_copy


def fits(known: Mapping[str, float]) -> Any:
    """Return a compiled function that tells whether the fields of a record have the values that a copy is to know."""
    fixed = tuple(sorted(known.items()))

    @intrinsic
    def has_known_values(typing_context, record):
        def generate(context, builder, signature, arguments):
            equals_all = cgutils.true_bit
            for name, value in fixed:
                member = record.typeof(name)
                pointer = cgutils.get_record_member(builder, arguments[0], record.offset(name), context.get_data_type(member))
                present, expected = context.unpack_value(builder, member, pointer), context.get_constant(member, value)
                equal = builder.icmp_signed if isinstance(member, types.Integer) else builder.fcmp_ordered
                equals_all = builder.and_(equals_all, equal("==", present, expected))
            return equals_all

        return types.boolean(record), generate

    return has_known_values


@intrinsic
def put_back(typing_context, local, record):
    def generate(context, builder, signature, arguments):
        _copy_local(builder, arguments[1], arguments[0], record.size)
        return context.get_dummy_value()

    return types.void(local, record), generate


LEAVES = 8  # that the tree of such a network has
_LINK, _FLOW = FIRST_LINK, FIRST_LINK + 1  # their sources
_RUN_HAS = {
    **{"n_links": 1, "n_flows": 1, "n_pipes": 0, "n_boxes": 0, "n_arrivals": 0},
    **{"packet_log_limit": 0, "tree_leaves": LEAVES},
}
_LINK_HAS = {
    **{"index": 0, "discipline": DISCIPLINES["drop_tail"], "mixed": 0, "trace_kind": TRACE_KINDS["none"]},
    "policer_Bps": 0.0,
}
_FLOW_HAS = {
    **{"index": 0, "n_hops": 1, "access_s": 0.0, "burst_s": 0.0, "jitter_kind": JITTERS["none"], "pool": -1},
    **{"ack_aggregation": AGGREGATIONS["none"], "reorders": 0, "ack_path": 0, "ack_hops": 0, "per_packet": 0},
    **{"hold_window_s": 0.0, "offers": 0, "rack": 0},
}
_run_fits, _link_fits, _flow_fits = fits(_RUN_HAS), fits(_LINK_HAS), fits(_FLOW_HAS)
_copy_run, _copy_link, _copy = copies_of(_RUN_HAS), copies_of(_LINK_HAS), copies_of({})
_copy_flow = copies_of(_FLOW_HAS | {"started": 1})


@kernel(forceinline=True)
def is_single(a, run):
    """Tell whether a network is one flow over one plain link."""
    return _run_fits(run) and _link_fits(a.links[0]) and _flow_fits(a.flows[0])


@kernel(forceinline=True)
def advance_single(a, network, sources, end_s, max_events):
    """Process the events of the link and the flow up to the first one of another source, or ``end_s``, exclusive.

    ``is_single`` holds for the network, and the flow has begun.
    """
    tree, watching = network.tree_at, a.monitors[max(a.flows[0].monitor, 0)]
    end_s = min(end_s, load(tree, LEAVES + RATE_CHANGES))  # at equal times the source with the lowest number is first
    other_s = np.inf
    for source in range(_FLOW + 1, LEAVES):
        other_s = min(other_s, load(tree, LEAVES + source))
    run, ln, fl, monitor = _copy_run(network), _copy_link(a.links[0]), _copy_flow(a.flows[0]), _copy(watching)
    while run.error == 0 and run.events < max_events:
        link_s, flow_s = load(tree, LEAVES + _LINK), load(tree, LEAVES + _FLOW)
        now_s = min(link_s, flow_s)
        if not now_s < end_s or now_s > other_s:
            break
        run.events += 1
        run.now_s = now_s
        if link_s <= flow_s:
            end_service(a, run, sources, ln, fl, now_s)
        else:
            take_feedback(a, run, sources, fl, monitor, now_s)
            send_packets(a, run, sources, fl, ln, now_s)
            if fl.monitor >= 0 and monitor.clock == ACKS:
                other_s = min(other_s, load(tree, LEAVES + sources.monitors + fl.monitor))
    put_back(run, network)
    put_back(ln, a.links[0])
    put_back(fl, a.flows[0])
    put_back(monitor, watching)
