"""A run as cumulative curves: the arrays, the header, and their strict file format.

Row k is time k*dt_s; row 0 is the initial state. The format is described in docs/networks.md. Nothing in a file is ever executed:
one zip archive (.npz) of plain float64 arrays and a JSON header, no pickled objects.
"""

from __future__ import annotations

import html
import io
import os
import re
import zipfile
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError, PathError, TraceError, unknown_name
from ccenv.base.figure import line_picture
from ccenv.base.files import Format, canonical_json, write_atomic
from ccenv.base.foreign import JsonRules, as_path, read_arrays, read_bounded, shown_path
from ccenv.base.provenance import VERSION
from ccenv.base.results import TableResult
from ccenv.network.path import MBPS_IN_BPS, MODELS, Grid, Model, Path, make_grid

Floats = NDArray[np.float64]

MAX_FILE_BYTES = 256 << 20
"""Default size limit of :func:`load_trace`, compressed or not."""

PER_FLOW = ("A", "L", "L_free", "S", "rate_Bps", "cwnd_bytes")
PER_PATH = ("G", "link_rate_Bps")
MAY_BE_INFINITE = ("rate_Bps", "cwnd_bytes")

_BELIEF_PREFIX = "belief."
_BELIEF_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
FORMAT = Format("ccenv-trace", 1, "a trace", rules=JsonRules(max_bytes=1 << 20, max_depth=12, max_values=65_536))
_EPOCH = (1980, 1, 1, 0, 0, 0)  # fixed, so that equal traces are equal files


class TraceHeader(StrictModel):
    """Header of a trace.

    Attributes:
        model: network model, a key of ``ccenv.network.path.MODELS``.
        timing: ``"engine"``, or ``"smt"`` for proof timing.
        steps_per_rtt: K, steps per smallest Rm.
        dt_s: length of a step; follows from path and K.
        history: ``"empty"``: nothing happened before row 0; ``"free"``: rows before 0 are unknown (solver traces, cut-outs).
        past_rows: rows before the start of the trace proper: in a solver's counterexample they explain the initial state, with
            bytes that the sender's rule did not choose.
        senders: one name per flow.
        ccenv_version: version that wrote the trace.
    """

    format: Literal["ccenv-trace"] = "ccenv-trace"
    version: Literal[1] = 1
    path: Path
    model: str
    timing: Literal["engine", "smt"] = "engine"
    steps_per_rtt: int = Field(ge=1, strict=True)
    dt_s: float = Field(gt=0, allow_inf_nan=False)
    history: Literal["empty", "free"] = "empty"
    past_rows: int = Field(default=0, ge=0, strict=True)
    senders: tuple[str, ...]
    adversary: str
    seed: int | None = Field(default=None, ge=0, strict=True)
    ccenv_version: str = VERSION
    notes: str = ""


@dataclass(frozen=True, eq=False)
class Trace(TableResult):
    """A run of N flows over T steps. Arrays are float64 copies and read-only; ``dataclasses.replace`` makes a changed trace.

    Raises TraceError for a wrong shape, a number that is not finite, or a header that does not fit the arrays.

    Attributes:
        header: path, model, grid, senders, adversary.
        A: (T+1, N) cumulative bytes sent.
        L: (T+1, N) cumulative bytes lost, congestive and not.
        L_free: (T+1, N) cumulative bytes lost without congestion, part of L.
        S: (T+1, N) cumulative bytes delivered behind the delay element.
        G: (T+1,) cumulative tokens admitted, in bytes, after retroactive expiry.
        link_rate_Bps: (T+1,) C during the step that ends at the row; entry 0 equals entry 1.
        rate_Bps: (T+1, N) sending rate in force during the step; infinite: not paced.
        cwnd_bytes: (T+1, N) window in force during the step; infinite: none.
        beliefs: name -> (T+1, N); values may be infinite, never NaN.
    """

    header: TraceHeader
    A: Floats
    L: Floats
    L_free: Floats
    S: Floats
    G: Floats
    link_rate_Bps: Floats
    rate_Bps: Floats
    cwnd_bytes: Floats
    beliefs: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in PER_FLOW + PER_PATH:
            object.__setattr__(self, name, _freeze(name, getattr(self, name)))
        object.__setattr__(self, "beliefs", {name: _freeze(name, array) for name, array in self.beliefs.items()})
        _check_header(self.header)
        rows = self.G.shape[0] if self.G.ndim == 1 else 0
        if rows < 2:
            raise TraceError(f"array G has shape {self.G.shape}; it must be (T+1,) with at least one step")
        n_flows = self.header.path.n_flows
        expected = dict.fromkeys(PER_FLOW, (rows, n_flows)) | dict.fromkeys(PER_PATH, (rows,))
        for name, shape in expected.items():
            _check_values(name, getattr(self, name), shape, may_be_infinite=name in MAY_BE_INFINITE)
        if self.header.past_rows > rows - 2:
            raise TraceError(f"header: past_rows is {self.header.past_rows}; a trace of {rows} rows has at most {rows - 2}")
        for name, array in self.beliefs.items():
            if not _BELIEF_NAME.fullmatch(name):
                raise TraceError(f"belief name {name!r} is not allowed: letters, digits and _, at most 40")
            _check_values(f"beliefs[{name!r}]", array, (rows, n_flows), may_be_infinite=True)

    @property
    def n_steps(self) -> int:
        """T, the number of steps."""
        return int(self.G.shape[0]) - 1

    @property
    def start_row(self) -> int:
        """Row at which the trace proper begins, after its past."""
        return self.header.past_rows

    @property
    def n_flows(self) -> int:
        return self.header.path.n_flows

    @property
    def model(self) -> Model:
        return MODELS[self.header.model]

    @cached_property
    def grid(self) -> Grid:
        return make_grid(self.header.path, self.header.steps_per_rtt)

    @cached_property
    def times_s(self) -> Floats:
        """Time of each row, shape (T+1,)."""
        return np.arange(self.n_steps + 1, dtype=np.float64) * self.header.dt_s

    @cached_property
    def E(self) -> Floats:
        """Cumulative bytes that entered the bottleneck, A - L, shape (T+1, N)."""
        return self.A - self.L

    @cached_property
    def W(self) -> Floats:
        """Cumulative tokens wasted since row 0, in bytes, shape (T+1,)."""
        earned: Floats = np.cumsum(self.link_rate_Bps[1:] * self.header.dt_s)
        wasted: Floats = np.concatenate(([0.0], earned)) - (self.G - self.G[0])
        return wasted

    @cached_property
    def queue_bytes(self) -> Floats:
        """Bytes of all flows that wait for the link, max(0, E - G), shape (T+1,)."""
        entered: Floats = self.E.sum(axis=1)
        return np.maximum(0.0, entered - self.G)

    def __repr__(self) -> str:
        head = self.header
        senders, dt_ms = ", ".join(head.senders) or "no sender", 1e3 * head.dt_s
        return f"Trace({senders} on {head.model}, {self.n_steps} steps of {dt_ms:.4g} ms, adversary {head.adversary or 'none'})"

    def _make_frame(self, pandas: Any) -> Any:
        """Return a row per time and flow."""
        rows, flows = self.n_steps + 1, self.n_flows
        index = pandas.MultiIndex.from_product([self.times_s, range(flows)], names=["time_s", "flow"])
        data = {name: getattr(self, name).reshape(-1) for name in PER_FLOW}
        data |= {name: np.repeat(getattr(self, name), flows) for name in PER_PATH}
        data |= {name: array.reshape(rows * flows) for name, array in self.beliefs.items()}
        return pandas.DataFrame(data, index=index)

    def _repr_html_(self) -> str:
        """Show curves and queue in a notebook."""
        sent_mbps = np.diff(self.A.sum(axis=1), prepend=self.A[0].sum()) / self.header.dt_s / MBPS_IN_BPS
        got_mbps = np.diff(self.S.sum(axis=1), prepend=self.S[0].sum()) / self.header.dt_s / MBPS_IN_BPS
        rates = line_picture(self.times_s, {"sent": sent_mbps, "delivered": got_mbps}, "Mbit/s")
        return f"<p>{html.escape(repr(self))}</p>{rates}<br>" + line_picture(
            self.times_s, {"queue": self.queue_bytes / 1e3}, "kB"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as one .npz; see :func:`save_trace`."""
        save_trace(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], max_bytes: int = MAX_FILE_BYTES) -> Trace:
        return load_trace(path, max_bytes)


def _freeze(name: str, array: object) -> Floats:
    try:
        out = np.array(array, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise TraceError(f"array {name} does not hold numbers of one shape") from None
    out.flags.writeable = False
    return out


def _check_header(header: TraceHeader) -> None:
    if header.model not in MODELS:
        raise TraceError(f"header: {unknown_name('model', header.model, MODELS)}")
    if len(header.senders) != header.path.n_flows:
        raise TraceError(f"header: {len(header.senders)} senders for a path of {header.path.n_flows} flows")
    try:
        dt_s = make_grid(header.path, header.steps_per_rtt).dt_s
    except PathError as error:
        raise TraceError(f"header: {error}") from None
    if abs(header.dt_s - dt_s) > 1e-9 * dt_s:
        raise TraceError(
            f"header: dt_s is {header.dt_s!r}, but the path and steps_per_rtt {header.steps_per_rtt} make it {dt_s!r}"
        )


def _check_values(name: str, array: np.ndarray, shape: tuple[int, ...], *, may_be_infinite: bool) -> None:
    if array.shape != shape:
        raise TraceError(f"array {name} has shape {array.shape}; it must be {shape}")
    bad = np.isnan(array) if may_be_infinite else ~np.isfinite(array)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        allowed = "a number or infinite" if may_be_infinite else "finite"
        raise TraceError(f"array {name} is {array[at]} at {at}; it must be {allowed}")


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace atomically as one .npz without pickled objects. Equal traces make equal files.

    Raises CcenvError if the file cannot be written.
    """
    header = trace.header.model_dump(mode="json", exclude={"path"}) | {"path": trace.header.path.to_dict()}
    arrays: dict[str, np.ndarray] = {"header": np.frombuffer(canonical_json(header).encode(), dtype=np.uint8)}
    arrays |= {name: getattr(trace, name) for name in PER_FLOW + PER_PATH}
    arrays |= {_BELIEF_PREFIX + name: trace.beliefs[name] for name in sorted(trace.beliefs)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(name + ".npy", date_time=_EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            content = io.BytesIO()
            np.lib.format.write_array(content, array, version=(1, 0), allow_pickle=False)
            archive.writestr(member, content.getvalue())
    write_atomic(path, buffer.getvalue())


def load_trace(path: str | os.PathLike[str], max_bytes: int = MAX_FILE_BYTES) -> Trace:
    """Read a trace and check format, version, names, shapes and numbers. ``ccenv.network.laws`` decides whether it is *legal*.

    ``max_bytes`` limits the size, on disk and unpacked.

    Raises:
        TraceError: with the file name and what is wrong.
    """
    file = as_path("trace", path)
    try:
        content = read_bounded(file, max_bytes)
    except InputError as error:
        raise TraceError(str(error)) from None
    return parse_trace(content, shown_path(file), max_bytes)


def parse_trace(content: bytes, where: str, max_bytes: int = MAX_FILE_BYTES) -> Trace:
    """Return the trace of a file's content; ``where`` is its name for messages. Raises TraceError as :func:`load_trace`."""
    try:
        arrays = read_arrays(content, where, {"header": "|u1"}, max_bytes, other="<f8")
    except InputError as error:
        raise TraceError(str(error)) from None
    try:
        return _assemble(arrays)
    except TraceError as error:
        raise TraceError(f"{where}: {error}") from None


def _assemble(arrays: dict[str, np.ndarray]) -> Trace:
    if "header" not in arrays:
        raise TraceError("not a ccenv trace: array 'header' is missing")
    header = _read_header(arrays.pop("header"))
    beliefs = {name.removeprefix(_BELIEF_PREFIX): arrays.pop(name) for name in list(arrays) if name.startswith(_BELIEF_PREFIX)}
    expected = {item.name for item in fields(Trace)} - {"header", "beliefs"}
    missing = sorted(expected - set(arrays))
    if missing:
        raise TraceError(f"array {missing[0]!r} is missing")
    foreign = sorted(set(arrays) - expected)
    if foreign:
        raise TraceError(str(unknown_name("array", foreign[0][:40], expected)))
    return Trace(header=header, beliefs=beliefs, **arrays)


def _read_header(array: np.ndarray) -> TraceHeader:
    try:
        return validate(TraceHeader, FORMAT.parse(array.tobytes(), "header"), "header")
    except InputError as error:
        raise TraceError(str(error)) from None
