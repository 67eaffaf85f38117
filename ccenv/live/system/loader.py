"""Compiled programs into the kernel: the parts of libbpf.so.1 that it takes, through ctypes.

A congestion control is held by a link: it is gone when the process that holds it ends, also where that is killed.
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
from ccenv.live.needs import LIBRARY
from ccenv.live.scenario import LiveError

BPF_F_LINK, BPF_STRUCT_OPS = 1 << 13, 44
BPF_ENABLE_STATS, BPF_STATS_RUN_TIME = 32, 0
RECORD_DTYPE = np.dtype(
    [
        *((name, kind[name]) for kind in (ACK_DTYPE, STATE_DTYPE) for name in kind.names or ()),
        ("shortest_rtt_us", "<u8"),
        ("answered_us", "<u8"),  # when the chooser wrote its newest answer
    ],
    align=True,
)
_PRINT = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)
_LIBC = ctypes.CDLL(None, use_errno=True)


class Refusal(LiveError):
    """The kernel or the library refused a program.

    Attributes:
        log: all that was said about it, with the verifier's own lines.
    """

    def __init__(self, message: str, log: str) -> None:
        """Keep the log."""
        super().__init__(message)
        self.log = log


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

        Args:
            name: under which it was exported.
            content: of ``ccenv.live.export.bpf.compile_bpf``.
            records: of a recording program: how many to keep room for.

        Raises:
            Refusal: if the kernel refuses it; the log says why.
            LiveError: if a congestion control of its name is there, or the library is missing.
        """
        self.name, self.records = name, np.zeros(0, RECORD_DTYPE)
        self._library, self._link = _library(), -1
        self._lines: list[str] = []
        self._print = _PRINT(self._hear)
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
        kept = b.bpf_object__find_map_by_name(self._object, b"records") if records else None
        if kept:
            b.bpf_map__set_max_entries(kept, records)
        if b.bpf_object__load(self._object) != 0:
            raise self._refusal("load")
        if kept:
            self._memory = mmap.mmap(b.bpf_map__fd(kept), records * RECORD_DTYPE.itemsize, mmap.MAP_SHARED)
            self.records = np.frombuffer(self._memory, RECORD_DTYPE)
        attached = b.bpf_map__attach_struct_ops(self._map)
        if not attached:
            raise self._refusal("register")
        if (b.libbpf_major_version(), b.libbpf_minor_version()) >= (1, 2):
            self._link = os.dup(b.bpf_link__fd(attached))
            return
        # Older libraries fill the map only; the link is what registers.
        ctypes.set_errno(0)
        link = b.bpf_link_create(b.bpf_map__fd(self._map), 0, BPF_STRUCT_OPS, None)
        if link < 0:
            raise self._refusal("register", -link)
        self._link = link

    def _hear(self, level: int, text: bytes, arguments: int) -> int:
        line = ctypes.create_string_buffer(1 << 16)
        _LIBC.vsnprintf(line, c_size_t(len(line)), text, c_void_p(arguments))
        if level <= 1:  # warnings and information; not what is for debugging
            self._lines.append(line.value.decode(errors="replace"))
        return 0

    def _refusal(self, step: str, number: int = 0) -> LiveError:
        number = number or ctypes.get_errno()
        log = "".join(self._lines)
        if number == errno.EEXIST:
            return LiveError(f"a congestion control named {self.name} is loaded already; unregister it or give --name")
        if number in (errno.EPERM, errno.EACCES) and "BEGIN PROG LOAD LOG" not in log:
            return LiveError(f"loading {self.name} needs CAP_BPF and CAP_PERFMON; run as root")
        last = _last_word(log) or f"{os.strerror(number)} ({step})"
        return Refusal(f"the kernel refused {self.name}: {last}", log)

    def record(self, socket_fd: int) -> None:
        """Let a socket write the records."""
        lanes = self._library.bpf_object__find_map_by_name(self._object, b"lanes")
        self._set(self._library.bpf_map__fd(lanes), socket_fd, np.array([0, len(self.records)], np.uint32))

    def chooser_files(self) -> tuple[int, int]:
        """Return the files of the maps by which a process chooses: decisions and answers, and what rings for them."""
        b = self._library
        choices, bell = (b.bpf_map__fd(b.bpf_object__find_map_by_name(self._object, name)) for name in (b"choices", b"bell"))
        return int(choices), int(bell)

    def written(self) -> np.ndarray:
        """Return what was recorded, in its order; also of sockets that are closed."""
        return self.records[: int(np.count_nonzero(self.records["now_us"]))]

    def _set(self, map_fd: int, key: int, value: np.ndarray) -> None:
        place = np.array([key], np.int32)
        ctypes.set_errno(0)
        if self._library.bpf_map_update_elem(map_fd, place.ctypes.data, value.ctypes.data, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def cost_ns(self) -> dict[str, float]:
        """Return the mean time of each hook that ran while statistics were on: nanoseconds per call."""
        found = {}
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
                    found[hook] = time_ns / count
        return found

    def close(self) -> None:
        """Unregister it; flows that still use it keep it until they end."""
        if self._link >= 0:
            os.close(self._link)
            self._link = -1
        if self._object:
            self._library.bpf_object__close(self._object)
            self._object = None


_RUN_TIME, _RUN_COUNT = 24, 25  # of struct bpf_prog_info, in units of eight bytes


def count_time() -> int:
    """Let the kernel measure the time of BPF programs as long as the returned file is open; -1 where it does not."""
    attributes = np.zeros(16, np.uint32)
    attributes[0] = BPF_STATS_RUN_TIME
    number = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine)
    if number is None:
        return -1
    return int(_LIBC.syscall(number, BPF_ENABLE_STATS, c_void_p(attributes.ctypes.data), attributes.nbytes))


def _last_word(log: str) -> str:
    """Return the verifier's last line that says something, or the library's."""
    inside = log.partition("BEGIN PROG LOAD LOG")[2].partition("END PROG LOAD LOG")[0]
    lines = [line.strip() for line in (inside or log).splitlines()]
    said = [line for line in lines if line and not line.startswith(("processed ", "--", "verification time", "stack depth"))]
    return said[-1] if said else ""
