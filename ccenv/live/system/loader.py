"""Loading of compiled programs into the kernel with libbpf.so.1, through ctypes.

A congestion control is held by a link, so it is unregistered when the process that holds the link ends, also after a kill.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from ctypes import c_char_p, c_int, c_longlong, c_size_t, c_uint32, c_void_p
from functools import cache

import numpy as np

from ccenv.live.export.twin import ACK_DTYPE, STATE_DTYPE
from ccenv.live.requirements import LIBRARY
from ccenv.live.scenario import LiveError

BPF_F_LINK, BPF_STRUCT_OPS = 1 << 13, 44
BPF_ENABLE_STATS, BPF_STATS_RUN_TIME = 32, 0
RECORD_DTYPE = np.dtype(
    [
        *((name, dtype[name]) for dtype in (ACK_DTYPE, STATE_DTYPE) for name in dtype.names or ()),
        ("shortest_rtt_us", "<u8"),
        ("answered_us", "<u8"),  # when the chooser wrote its newest answer
    ],
    align=True,
)
_PRINT = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)
_LIBC = ctypes.CDLL(None, use_errno=True)


class Refusal(LiveError):
    """The kernel or the library refused a program."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log  # all messages about it, with the verifier's lines


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError:
        raise LiveError(f"no {LIBRARY}; apt install libbpf1") from None
    for name, result, arguments in (
        ("bpf_object__open_mem", c_void_p, (c_void_p, c_size_t, c_void_p)),
        ("bpf_object__load", c_int, (c_void_p,)),
        ("bpf_object__close", None, (c_void_p,)),
        ("bpf_object__find_map_by_name", c_void_p, (c_void_p, c_char_p)),
        ("bpf_object__find_program_by_name", c_void_p, (c_void_p, c_char_p)),
        ("bpf_program__fd", c_int, (c_void_p,)),
        ("bpf_map__fd", c_int, (c_void_p,)),
        ("bpf_map__set_map_flags", c_int, (c_void_p, c_uint32)),
        ("bpf_map__set_max_entries", c_int, (c_void_p, c_uint32)),
        ("bpf_map__attach_struct_ops", c_void_p, (c_void_p,)),
        ("bpf_link__fd", c_int, (c_void_p,)),
        ("bpf_link_create", c_int, (c_int, c_int, c_int, c_void_p)),
        ("bpf_map_update_elem", c_int, (c_int, c_void_p, c_void_p, c_longlong)),
        ("bpf_obj_get_info_by_fd", c_int, (c_int, c_void_p, c_void_p)),
        ("libbpf_minor_version", c_uint32, ()),
        ("libbpf_major_version", c_uint32, ()),
        ("libbpf_set_print", c_void_p, (_PRINT,)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Program:
    """A program in the kernel, registered as a congestion control until it is closed.

    Attributes:
        name: of the congestion control.
        records: RECORD_DTYPE, shared with the kernel; empty for a program that does not record.
    """

    def __init__(self, name: str, content: bytes, records: int = 0) -> None:
        """Load and register a compiled object.

        Raises Refusal if the kernel refuses it; the log says why; LiveError if a congestion control of its name is loaded, or the
        library is missing.

        Args:
            name: under which it was exported.
            content: of ``ccenv.live.export.bpf.compile_bpf``.
            records: capacity of a recording program.
        """
        self.name, self.records = name, np.zeros(0, RECORD_DTYPE)
        self._library, self._link = _library(), -1
        self._lines: list[str] = []
        self._print = _PRINT(self._collect_line)
        self._library.libbpf_set_print(self._print)
        self._content = ctypes.create_string_buffer(content, len(content))
        self._object = self._library.bpf_object__open_mem(self._content, len(content), None)
        if not self._object:
            raise self._refusal("open")
        try:
            self._load(records)
        except BaseException:
            self.close()
            raise

    def _load(self, records: int) -> None:
        b = self._library
        self._map = b.bpf_object__find_map_by_name(self._object, b"program")
        if not self._map:
            raise Refusal(f"{self.name}: the object has no congestion control", "")
        b.bpf_map__set_map_flags(self._map, BPF_F_LINK)
        records_map = b.bpf_object__find_map_by_name(self._object, b"records") if records else None
        if records_map:
            b.bpf_map__set_max_entries(records_map, records)
        if b.bpf_object__load(self._object) != 0:
            raise self._refusal("load")
        if records_map:
            self._memory = mmap.mmap(b.bpf_map__fd(records_map), records * RECORD_DTYPE.itemsize, mmap.MAP_SHARED)
            self.records = np.frombuffer(self._memory, RECORD_DTYPE)
        attached = b.bpf_map__attach_struct_ops(self._map)
        if not attached:
            raise self._refusal("register")
        if (b.libbpf_major_version(), b.libbpf_minor_version()) >= (1, 2):
            self._link = os.dup(b.bpf_link__fd(attached))
            return
        # Older libraries only fill the map; the link registers it.
        ctypes.set_errno(0)
        link = b.bpf_link_create(b.bpf_map__fd(self._map), 0, BPF_STRUCT_OPS, None)
        if link < 0:
            raise self._refusal("register", -link)
        self._link = link

    def _collect_line(self, level: int, text: bytes, arguments: int) -> int:
        line = ctypes.create_string_buffer(1 << 16)
        _LIBC.vsnprintf(line, c_size_t(len(line)), text, c_void_p(arguments))
        if level <= 1:  # warnings and information, without debugging messages
            self._lines.append(line.value.decode(errors="replace"))
        return 0

    def _refusal(self, step: str, number: int = 0) -> LiveError:
        number = number or ctypes.get_errno()
        log = "".join(self._lines)
        if number == errno.EEXIST:
            return LiveError(f"a congestion control named {self.name} is loaded already; unregister it or give -s name=...")
        if number in (errno.EPERM, errno.EACCES) and "BEGIN PROG LOAD LOG" not in log:
            return LiveError(f"loading {self.name} needs CAP_BPF and CAP_PERFMON; run as root")
        last = _last_reason(log) or f"{os.strerror(number)} ({step})"
        return Refusal(f"the kernel refused {self.name}: {last}", log)

    def record(self, socket_fd: int) -> None:
        lanes = self._library.bpf_object__find_map_by_name(self._object, b"lanes")
        self._set(self._library.bpf_map__fd(lanes), socket_fd, np.array([0, len(self.records)], np.uint32))

    def chooser_files(self) -> tuple[int, int]:
        """Return the files of a chooser's maps: decisions with answers, and the ring that signals them."""
        b = self._library
        choices, bell = (b.bpf_map__fd(b.bpf_object__find_map_by_name(self._object, name)) for name in (b"choices", b"bell"))
        return int(choices), int(bell)

    def written(self) -> np.ndarray:
        """Return the records in order, also those of closed sockets."""
        return self.records[: int(np.count_nonzero(self.records["now_us"]))]

    def _set(self, map_fd: int, key: int, value: np.ndarray) -> None:
        key_array = np.array([key], np.int32)
        ctypes.set_errno(0)
        if self._library.bpf_map_update_elem(map_fd, key_array.ctypes.data, value.ctypes.data, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def cost_ns(self) -> dict[str, float]:
        """Return the mean nanoseconds per call of each hook that ran while statistics were on."""
        costs_ns = {}
        for hook in ("init", "pkts_acked", "cong_control"):
            program = self._library.bpf_object__find_program_by_name(self._object, f"program_{hook}".encode())
            info = np.zeros(64, np.uint64)
            length = np.array([info.nbytes], np.uint32)
            if (
                program
                and self._library.bpf_obj_get_info_by_fd(
                    self._library.bpf_program__fd(program), info.ctypes.data, length.ctypes.data
                )
                == 0
            ):
                time_ns, count = int(info[_RUN_TIME]), int(info[_RUN_COUNT])
                if count:
                    costs_ns[hook] = time_ns / count
        return costs_ns

    def close(self) -> None:
        """Unregister the program; flows that still use it keep it until they end."""
        if self._link >= 0:
            os.close(self._link)
            self._link = -1
        if self._object:
            self._library.bpf_object__close(self._object)
            self._object = None


_RUN_TIME, _RUN_COUNT = 24, 25  # of struct bpf_prog_info, in units of eight bytes


def count_time() -> int:
    """Let the kernel measure the time of BPF programs while the returned file is open; -1 if it does not."""
    attributes = np.zeros(16, np.uint32)
    attributes[0] = BPF_STATS_RUN_TIME
    number = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine)
    if number is None:
        return -1
    return int(_LIBC.syscall(number, BPF_ENABLE_STATS, c_void_p(attributes.ctypes.data), attributes.nbytes))


def _last_reason(log: str) -> str:
    """Return the last informative line of the verifier, or of the library."""
    inside = log.partition("BEGIN PROG LOAD LOG")[2].partition("END PROG LOAD LOG")[0]
    lines = [line.strip() for line in (inside or log).splitlines()]
    reasons = [line for line in lines if line and not line.startswith(("processed ", "--", "verification time", "stack depth"))]
    return reasons[-1] if reasons else ""
