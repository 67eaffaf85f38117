"""Pictures of traces: written whole, deterministic, and they show what the trace holds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path as FilePath

import numpy as np
import pytest
from legal_traces import legal_trace

from ccenv.base.errors import CcenvError, InputError
from ccenv.network.figure import build_figure, draw_trace, plot_trace


def test_writes_png_and_svg_that_depend_on_the_trace_only(tmp_path: FilePath) -> None:
    trace = legal_trace("ccac", 5, n_flows=2, n_steps=40, buffer_bdp=0.3)
    other = legal_trace("ccac", 6, n_flows=2, n_steps=40, buffer_bdp=0.3)
    for suffix, magic in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        for name, what in (("a", trace), ("b", trace), ("c", other)):
            plot_trace(what, tmp_path / (name + suffix))
        a, b, c = ((tmp_path / (name + suffix)).read_bytes() for name in "abc")
        assert a.startswith(magic)
        assert a == b
        assert a != c


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


def test_without_beliefs_and_buffer_there_is_less_to_show() -> None:
    trace = replace(legal_trace("ideal", 0, n_steps=10, buffer_bdp=math.inf), beliefs={})
    _, queue, _ = build_figure(trace).axes
    assert {line.get_label() for line in queue.get_lines()} == {"queue", "held by jitter"}


def test_draws_an_image_of_the_size_asked_for() -> None:
    trace = legal_trace("ideal", 1, n_steps=20)
    image = draw_trace(trace, 480, 400)
    assert image.shape == (400, 480, 3)
    assert image.dtype == np.uint8
    assert image.std() > 1
    np.testing.assert_array_equal(image, draw_trace(trace, 480, 400))
    assert (image != draw_trace(legal_trace("ideal", 2, n_steps=20), 480, 400)).any()


def test_refuses_what_it_cannot_write(tmp_path: FilePath) -> None:
    trace = legal_trace("ideal", 1, n_steps=4)
    with pytest.raises(InputError, match=r"ends in '.pdf'; allowed: .png, .svg"):
        plot_trace(trace, tmp_path / "x.pdf")
    with pytest.raises(CcenvError, match="cannot be written"):
        plot_trace(trace, tmp_path / "absent" / "x.png")
    with pytest.raises(InputError, match="at least 480 x 400"):
        draw_trace(trace, 100, 500)
