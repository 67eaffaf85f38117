"""Traces: arrays, files, what is refused, and pictures."""

import io
import json
import math
import re
import zipfile
from dataclasses import replace
from pathlib import Path as FilePath

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from legal_traces import MODEL_NAMES, legal_trace

from ccenv.base.errors import CcenvError, InputError, TraceError
from ccenv.network.figure import build_figure, draw_trace, plot_trace
from ccenv.network.trace import PER_FLOW, PER_PATH, Trace, load_trace


@pytest.fixture
def trace() -> Trace:
    return legal_trace("ccac", 7, n_flows=2, n_steps=20, buffer_bdp=0.3, loss_budget=0.1)


@pytest.fixture
def file(trace: Trace, tmp_path: FilePath) -> FilePath:
    path = tmp_path / "run.npz"
    trace.save(path)
    return path


def members(file: FilePath) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(file: FilePath, content: dict[str, bytes]) -> FilePath:
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return file


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


def header_of(file: FilePath) -> dict:
    return json.loads(np.lib.format.read_array(io.BytesIO(members(file)["header.npy"])).tobytes())


def as_header(text: str) -> bytes:
    return npy(np.frombuffer(text.encode(), np.uint8))


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_comes_back_as_it_was(model: str, tmp_path: FilePath) -> None:
    before = legal_trace(model, 3, n_flows=3, buffer_bdp=math.inf, n_steps=30)
    before.save(tmp_path / "run.npz")
    after = Trace.load(tmp_path / "run.npz")
    assert after.header == before.header
    for name in PER_FLOW + PER_PATH:
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert set(after.beliefs) == {"C_L", "C_U"} and np.isinf(after.beliefs["C_U"]).all()
    assert np.isinf(after.cwnd_bytes).all()
    after.save(tmp_path / "again.npz")
    assert (tmp_path / "run.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()
    with np.load(tmp_path / "run.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["A"], before.A)
        assert arrays["header"].dtype == np.uint8


def test_derived_curves_and_arrays_that_are_copies_and_read_only(trace: Trace) -> None:
    np.testing.assert_allclose(trace.W, np.cumsum(np.r_[0, trace.link_rate_Bps[1:] * trace.header.dt_s]) - trace.G)
    np.testing.assert_array_equal(trace.E, trace.A - trace.L)
    np.testing.assert_array_equal(trace.queue_bytes, np.maximum(0, trace.E.sum(axis=1) - trace.G))
    assert (trace.n_steps, trace.n_flows) == (20, 2) and trace.times_s[-1] == pytest.approx(20 * 0.01)
    mine = trace.A.copy()
    other = replace(trace, A=mine)
    mine += 1
    np.testing.assert_array_equal(other.A, trace.A)
    with pytest.raises(ValueError, match="read-only"):
        trace.A[0] = 1


@pytest.mark.parametrize(("change", "message"), [
    ({"A": np.zeros((21, 3))}, r"array A has shape \(21, 3\); it must be \(21, 2\)"),
    ({"G": np.zeros((1,))}, r"array G has shape \(1,\); it must be \(T\+1,\) with at least one step"),
    ({"G": np.zeros((3, 3))}, r"array G has shape \(3, 3\)"),
    ({"S": np.full((21, 2), np.nan)}, r"array S is nan at \(0, 0\); it must be finite"),
    ({"link_rate_Bps": np.full(21, np.inf)}, r"array link_rate_Bps is inf at \(0,\)"),
    ({"rate_Bps": np.full((21, 2), np.nan)}, r"array rate_Bps is nan at \(0, 0\); it must be a number or infinite"),
    ({"L": [["x"]]}, "array L does not hold numbers"),
    ({"beliefs": {"C_L": np.zeros((21, 1))}}, r"array beliefs\['C_L'\] has shape"),
    ({"beliefs": {"C L": np.zeros((21, 2))}}, "belief name 'C L' is not allowed"),
    ({"beliefs": {"C_L": np.full((21, 2), np.nan)}}, r"beliefs\['C_L'\] is nan"),
])  # fmt: skip
def test_refuses_arrays_that_are_no_run(trace: Trace, change: dict, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        replace(trace, **change)


@pytest.mark.parametrize(("change", "message"), [
    ({"model": "ccac2"}, "unknown model 'ccac2'. Did you mean 'ccac'"), ({"senders": ("a",)}, "1 senders for a path of 2 flows"),
    ({"dt_s": 0.02}, "dt_s is 0.02, but the path and steps_per_rtt 4 make it 0.01"),
])  # fmt: skip
def test_refuses_a_header_that_does_not_fit(trace: Trace, change: dict, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        replace(trace, header=trace.header.model_copy(update=change))


@given(share=st.floats(0, 0.999))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_refuses_a_truncated_file(share: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = tmp_path_factory.getbasetemp() / "whole.npz"
    if not whole.exists():
        legal_trace("ideal", 1, n_steps=10).save(whole)
    cut = tmp_path_factory.getbasetemp() / "cut.npz"
    data = whole.read_bytes()
    cut.write_bytes(data[: int(share * len(data))])
    with pytest.raises(TraceError, match=r"cut\.npz: truncated, damaged or not an \.npz file"):
        load_trace(cut)


@given(position=st.integers(0, 5000), value=st.integers(1, 255))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_a_flipped_byte_never_passes_as_another_run(position: int, value: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = tmp_path_factory.getbasetemp() / "one.npz"
    original = legal_trace("ideal", 1, n_steps=10)
    if not whole.exists():
        original.save(whole)
    data = bytearray(whole.read_bytes())
    data[position % len(data)] ^= value
    damaged = tmp_path_factory.getbasetemp() / "damaged.npz"
    damaged.write_bytes(bytes(data))
    try:
        after = load_trace(damaged)
    except TraceError:
        return
    assert after.header == original.header  # the flip hit something that carries no meaning, such as a time stamp
    np.testing.assert_array_equal(after.S, original.S)


@pytest.mark.parametrize(("name", "content", "said"), [
    ("x.npy", npy(np.zeros(3)), "not a ccenv trace: array 'header' is missing"), ("G.npy", None, "array 'G' is missing"),
    ("Gx.npy", npy(np.zeros(3)), "unknown array 'Gx'. Did you mean 'G'"),
    ("header", {"version": 2}, "version is 2; this ccenv reads ccenv-trace of version 1"),
    ("header", {"format": "other"}, "it must be 'ccenv-trace'"),
    ("header", {"sender": "x"}, "unknown key 'sender'. Did you mean 'senders'"), ("header", {"model": 3}, "model"),
    ("header", {"path": {"link_rate_Bps": -1, "flows": [{"rtt_s": 0.04}]}}, "path.link_rate_Bps"),
    ("header", {"steps_per_rtt": 10**400}, "header"), ("header.npy", as_header("{"), "not valid JSON"),
    ("header.npy", as_header("[]"), "not a trace: expected a JSON object"),
    ("header.npy", as_header("[" * 100_000), "100000 values; at most 65536 are allowed"),
    ("header.npy", npy(np.array([255, 254], np.uint8)), "header: not UTF-8 text (byte 0)"),
    ("A.npy", b"no array", "is not in .npy format 1.0"),
])  # fmt: skip
def test_refuses_damaged_and_foreign_arrays_and_pickles(name: str, content: object, said: str, file: FilePath) -> None:
    good = members(file)
    if name == "header":
        name, content = "header.npy", as_header(json.dumps(header_of(file) | content))
    if name == "x.npy":
        good = {}
    write(file, {key: data for key, data in (good | {name: content}).items() if data is not None})
    with pytest.raises(TraceError, match=rf"\A{re.escape(str(file))}.*{re.escape(said)}.*\Z"):
        load_trace(file)


@pytest.mark.parametrize(("name", "said"), [
    ("absent.npz", r"cannot be read \(No such file"), ("", r"cannot be read \(Is a directory"), ("text.npz", "not an .npz file"),
])  # fmt: skip
def test_refuses_what_is_no_archive(name: str, said: str, tmp_path: FilePath) -> None:
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(TraceError, match=rf"\A{re.escape(str(tmp_path / name))}.*{said}.*\Z"):
        load_trace(tmp_path / name)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_refuses_more_bytes_than_allowed_and_an_array_twice(file: FilePath) -> None:
    with pytest.raises(TraceError, match="longer than 100 bytes"):
        load_trace(file, max_bytes=100)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("A.npy", b"")
    with pytest.raises(TraceError, match="stored twice"):
        load_trace(file)


def test_writes_all_or_nothing(trace: Trace, file: FilePath, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        replace(trace, header=trace.header.model_copy(update={"notes": "new"})).save(file)
    assert file.read_bytes() == before and [f.name for f in tmp_path.iterdir()] == ["run.npz"]
    with pytest.raises(CcenvError, match=r"cannot be written \(No such file or directory\)"):
        trace.save(tmp_path / "absent" / "run.npz")


def test_writes_png_and_svg_that_depend_on_the_trace_only_and_refuses_others(tmp_path: FilePath) -> None:
    trace = legal_trace("ccac", 5, n_flows=2, n_steps=40, buffer_bdp=0.3)
    other = legal_trace("ccac", 6, n_flows=2, n_steps=40, buffer_bdp=0.3)
    for suffix, magic in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        for name, what in (("a", trace), ("b", trace), ("c", other)):
            plot_trace(what, tmp_path / (name + suffix))
        a, b, c = ((tmp_path / (name + suffix)).read_bytes() for name in "abc")
        assert a.startswith(magic) and a == b and a != c
    trace = legal_trace("ideal", 1, n_steps=4)
    with pytest.raises(InputError, match=r"ends in '.pdf'; allowed: .png, .svg"):
        plot_trace(trace, tmp_path / "x.pdf")
    with pytest.raises(CcenvError, match="cannot be written"):
        plot_trace(trace, tmp_path / "absent" / "x.png")
    with pytest.raises(InputError, match="at least 480 x 400"):
        draw_trace(trace, 100, 500)


def test_panels_show_the_curves() -> None:
    trace = legal_trace("cbr_delay", 4, n_flows=2, n_steps=60, buffer_bdp=0.3)
    curves, queue, rates, beliefs = build_figure(trace).axes
    lines = {line.get_label(): line.get_ydata() for line in curves.get_lines()}
    np.testing.assert_allclose(lines["A sent"], trace.A.sum(axis=1) / 1e6)
    np.testing.assert_allclose(lines["S delivered"], trace.S.sum(axis=1) / 1e6)
    lines = {line.get_label(): line.get_ydata() for line in queue.get_lines()}
    np.testing.assert_allclose(lines["queue"], trace.queue_bytes / 1e3)
    assert set(lines) == {"queue", "held by jitter", "loss", "buffer"}
    lines = {line.get_label(): line.get_ydata() for line in rates.get_lines()}
    assert {"0 sends", "0 delivers", "1 sends", "1 delivers", "link"} == set(lines)
    np.testing.assert_allclose(lines["0 sends"], np.diff(trace.A[:, 0]) / trace.header.dt_s / 125_000)
    assert max(line.get_ydata().max() for line in beliefs.get_lines()) <= 3 * trace.link_rate_Bps.max() / 125_000


def test_a_picture_has_the_size_asked_for_and_shows_what_is_there() -> None:
    trace = replace(legal_trace("ideal", 0, n_steps=10, buffer_bdp=math.inf), beliefs={})
    _, queue, _ = build_figure(trace).axes
    assert {line.get_label() for line in queue.get_lines()} == {"queue", "held by jitter"}
    trace = legal_trace("ideal", 1, n_steps=20)
    image = draw_trace(trace, 480, 400)
    assert image.shape == (400, 480, 3) and image.dtype == np.uint8 and image.std() > 1
    np.testing.assert_array_equal(image, draw_trace(trace, 480, 400))
    assert (image != draw_trace(legal_trace("ideal", 2, n_steps=20), 480, 400)).any()
