"""Trace files: what is read from each format, and one line for each thing that can be wrong."""

import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from ccenv.base.errors import InputError, UnknownNameError
from ccenv.cli.main import main
from ccenv.engine.packet.generators import made_trace
from ccenv.network.links import LinkTrace, load_trace, read_trace, save_trace, shipped_traces


def read(folder: Path, text: str, name: str = "trace.txt", **options: float) -> LinkTrace:
    file = folder / name
    file.write_text(text)
    return read_trace(file, **options).trace


def same_rows(one: LinkTrace, other: LinkTrace) -> None:
    """Times, values and delays are the same; what was carried before a row is summed in another order."""
    assert one.rows[:, [0, 1, 3]].tolist() == other.rows[:, [0, 1, 3]].tolist()
    assert one.rows[:, 2] == pytest.approx(other.rows[:, 2], rel=1e-12)


def carried(trace: LinkTrace, *times_s: float) -> list[float]:
    found: list[float] = trace.carried_bytes(np.array(times_s)).tolist()
    return found


def test_lines_are_opportunities_of_1500_bytes_or_rates_until_the_next_row(tmp_path: Path) -> None:
    trace = read(tmp_path, "0\n1\n1\n5\n")
    assert trace.kind == "opportunities" and trace.length_s == 0.005
    assert carried(trace, 0.0, 0.0009, 0.001, 0.0049) == [1500, 1500, 4500, 4500]
    # The last opportunity is that of the end, at which the next length begins with its own at 0 ms.
    assert carried(trace, 0.005, 0.006) == [7500, 10500] and trace.mean_Bps == 6000 / 0.005
    trace = read(tmp_path, "time_s,rate_mbps\n10,8\n11,0\n12,16\n13,8\n")
    assert trace.kind == "rate" and trace.length_s == 4.0
    assert carried(trace, 0.0, 0.5, 1.0, 2.0, 2.5, 4.0, 4.5) == [0, 5e5, 1e6, 1e6, 2e6, 4e6, 4.5e6]
    assert trace.longest_outage_s == 1.0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("0,8\n1,4\n2,8\n", "csv"),
        ("time_ms,rate_kbps\r\n0,8000\r\n1000,4000\r\n2000,8000\r\n", "csv"),
        ("rate_Bps,time_s\n1e6,5\n\n5e5,6\n1e6,7\n", "csv"),
        ("[[0, 8], [1, 4], [2, 8]]", "json"),
        ('[{"time_s": 0, "rate_mbps": 8}, {"time_s": 1, "rate_mbps": 4}, {"time_s": 2, "rate_mbps": 8}]', "json"),
        (
            '{"format": "ccenv-link-trace", "version": 1, "columns": ["time_s", "rate_mbps"], "length_s": 3, '
            '"rows": [[0, 8], [1, 4], [2, 8]]}',
            "json",
        ),
    ],
)
def test_formats_say_the_same(tmp_path: Path, text: str, name: str) -> None:
    file = tmp_path / "trace"
    file.write_text(text)
    found = read_trace(file)
    assert found.format == name and found.lines == 3
    assert found.trace.rows[:, :3].tolist() == [[0, 1e6, 0], [1, 5e5, 1e6], [2, 1e6, 1.5e6]] and found.trace.length_s == 3.0


@pytest.mark.parametrize(("text", "said"), [
    ("", "the trace is empty"), ("\n\n", "the trace is empty"), ("time_s,rate_mbps\n", "the trace is empty"),
    ("[]", "the trace is empty"), ("1\n2\nx\n", "line 3: a number in each of 1 columns is needed (got 'x')"),
    ("1\n2\n3.5\n", "row 3: a whole number of milliseconds is needed (got 3.5)"),
    ("1\n-2\n", "row 2: a whole number of milliseconds"), ("5\n3\n", "time goes backwards in row 2: 0.003 s after 0.005 s"),
    ("0\n0\n", "the last opportunity is at 0 ms"), ("0,1\n1,2\n1,3\n", "time stands still in row 3"),
    ("0,1\n2,2\n1,3\n", "time goes backwards in row 3"), ("0,1\n1,\n2,3\n", "line 2: a number in each of 2 columns is needed"),
    ("0,1\n1\n2,3\n", "line 2: 1 columns; 2 are needed"), ("0,1\n1,nan\n", "row 2 holds a number that is not finite"),
    ("0,1\n1,-3\n", "a rate of -375000 bytes/s in row 2"), ("0,1\n1,1e9\n", "allowed are 0 to 1.25e+11"),
    ("0,0\n1,0\n", "the link's rate is 0 for ever"), ("time_s,bytes\n0,0\n1,0\n", "the link's rate is 0 for ever"),
    ("0,1\n1,1\n200,1\n", "a gap of 199 s before row 3; at most 60 s"), ("1\n2\n90000\n", "a gap of 89.998 s before row 3"),
    ("time_s,rate\n0,1\n", "unknown column 'rate'"), ("time_s,time_ms,rate_mbps\n0,0,1\n", "a time, one of rate and bytes"),
    ("0,1,2\n", "3 columns without a header"), ("time_s,rate_mbps,delay_ms\n0,1,-5\n1,1,5\n", "a delay of -0.005 s in row 1"),
    ('{"rows": [[0, 1]]}', "format and version must be 'ccenv-link-trace' and 1"),
    ('{"format": "ccenv-link-trace", "version": 1, "columns": ["time_s", "rate_mbps"], "rows": [[0]]}', "row 1 must have 2"),
    ('[[0, 1], [1, "2"]]', "row 2: a finite number is needed (got '2')"), ("[[0, 1], [1, 2]", "line 1"),
])  # fmt: skip
def test_what_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    file = tmp_path / "trace"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_trace(file)
    assert said in str(error.value)
    assert main(["links", "import", str(file), "--json", "-o", str(tmp_path / "out.json")]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and str(error.value)[-40:] in printed.err
    assert not (tmp_path / "out.json").exists()


def test_gaps_are_as_long_as_the_user_allows(tmp_path: Path) -> None:
    text = "0,1\n1,1\n200,1\n"
    assert read(tmp_path, text, max_gap_s=200).length_s > 200
    with pytest.raises(InputError, match="at most 5 s"):
        read(tmp_path, text, max_gap_s=5)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    for kind in ("cellular", "leo", "wifi"):
        trace = made_trace({"kind": kind, "mean_Bps": 3e6, "length_s": 20.0}, 4)
        save_trace(tmp_path / "t.json", trace, "a note")
        again = read_trace(tmp_path / "t.json").trace
        assert (again.kind, again.length_s) == (trace.kind, trace.length_s)
        same_rows(again, trace)


def test_import_tells_format_and_rates(tmp_path: Path, answer) -> None:
    file, out = tmp_path / "t.csv", tmp_path / "o.json"
    file.write_text("time_s,rate_mbps,delay_ms\n" + "".join(f"{t},{8 if t % 2 else 4},{t % 3}\n" for t in range(20)))
    found = answer(["links", "import", str(file), "--json", "-o", str(out)])
    assert (found["format"], found["kind"], found["lines"], found["length_s"]) == ("csv", "rate", 20, 20.0)
    assert found["mean_mbps"] == pytest.approx(6.0) and found["peak_mbps"] == pytest.approx(8.0)
    assert found["largest_delay_s"] == 0.002 and read_trace(out).trace.rows.tolist() == read_trace(file).trace.rows.tolist()


def test_shipped_traces_are_those_of_their_generators() -> None:
    names = shipped_traces()
    assert set(names) == {"cellular_20", "leo_100", "wifi_40"}
    for name, file in names.items():
        kind, mbps = name.split("_")
        made = made_trace({"kind": kind, "mean_Bps": float(mbps) * 125_000}, 1)
        same_rows(load_trace(name), made)
        assert file.stat().st_size < 300_000


def test_names_of_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError, match="Did you mean 'cellular_20'"):
        load_trace("celular_20")
    with pytest.raises(InputError):
        load_trace("../elsewhere.csv")
    (tmp_path / "own.csv").write_text("0,8\n1,4\n")
    first = load_trace("own.csv")
    assert load_trace("own.csv") is first  # read once
    (tmp_path / "own.csv").write_text("0,8\n1,4\n2,4\n")
    assert len(load_trace("own.csv").rows) == 3


@pytest.mark.slow
def test_ten_million_lines_are_read_in_bounds(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_bytes(b"\n".join(b"%d" % (k // 2) for k in range(10_000_000)) + b"\n")
    begin = time.process_time()
    tracemalloc.start()
    found = read_trace(file)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    assert found.lines == 10_000_000 and found.trace.mean_Bps == pytest.approx(2 * 1500 * 1000, rel=1e-3)
    assert peak_bytes < 2e9 and time.process_time() - begin < 60
