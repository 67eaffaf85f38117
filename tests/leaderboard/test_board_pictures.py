"""The board's pictures: names that do not cover each other, the overview, the viewer's RTT and moves, the sentence beside it."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from small_suite import small_suite
from synthetic import synthetic

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.benchmarks.run.runner import run_suite
from ccenv.engine.curve.engine import CurveEngine
from ccenv.leaderboard.evaluate.trace_view import POINTS, make_view
from ccenv.leaderboard.site import views
from ccenv.leaderboard.site.board import make_board
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.drawing import place_names
from ccenv.leaderboard.site.sections import Certified
from ccenv.leaderboard.site.sources import from_folders
from ccenv.leaderboard.site.views import explain, trace_view
from ccenv.network.metrics.trace import Window
from ccenv.network.path import make_path
from ccenv.network.trace import Trace


def played(sender: str, adversary: str, rtts: int = 60, **path: float) -> Trace:
    given = {"link_rate_mbps": 12, "rtt_ms": 40, "jitter_ms": 40, "buffer_bdp": 4, **path}
    engine = CurveEngine(
        [make_path(**given)], model="ccac", senders=[make_sender(sender)], adversary=make_adversary(adversary), record=True
    )
    engine.advance(rtts * engine.steps_per_rtt)
    return engine.trace(0)


def boxes(points: list[dict]) -> list[tuple[float, float, float, float]]:
    """Where the names are, without what surrounds a letter."""
    out = []
    for point in points:
        if point["name"] is not None:
            x, y, anchor = point["name"]
            width = 6.6 * len(point["label"])
            left = {"start": x, "end": x - width, "middle": x - width / 2}[anchor]
            out.append((left + 0.2, y - 9.8, left + width - 0.2, y + 1.8))
    return out


@pytest.mark.parametrize("seed", range(5))
def test_names_cover_neither_each_other_nor_points(seed: int) -> None:
    draw = np.random.Generator(np.random.Philox(seed))
    points = [{"label": f"sender_{i}", "x": float(draw.uniform(60, 610)), "y": float(draw.uniform(20, 270))} for i in range(40)]
    found = boxes(place_names(points, radius=5))
    assert len(found) > 10
    for a, b in itertools.combinations(found, 2):
        assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3]
    for left, top, right, bottom in found:
        assert left >= 50 and right <= 640
        assert not any(left < p["x"] + 4 and p["x"] - 4 < right and top < p["y"] + 4 and p["y"] - 4 < bottom for p in points)


def test_a_name_alone_stands_beside_its_point() -> None:
    (point,) = place_names([{"label": "reno", "x": 100.0, "y": 100.0}])
    assert point["name"] == (113.0, 104.0, "start")


def test_overview_places_score_worst_case_and_bound(tmp_path: Path) -> None:
    board = make_board(synthetic(8), Certified(()))
    picture = views.overview(board)
    assert picture is not None
    by_name = {point["label"]: point for point in picture["points"]}
    assert len(by_name) == 8
    for (label, _), entry in board.entries.items():
        point = by_name[label]
        assert entry.worst is not None
        assert point["worst"] == entry.worst.case.value
        assert (point["bound"] == 0.125) == (entry.envelope is not None)
    by_score = sorted(by_name.values(), key=lambda p: p["score"])
    assert [p["x"] for p in by_score] == sorted(p["x"] for p in by_score)
    by_worst = sorted(by_name.values(), key=lambda p: -p["worst"])
    assert [p["y"] for p in by_worst] == sorted(p["y"] for p in by_worst)
    assert all(56 <= p["x"] <= 616 and 16 <= p["y"] <= 272 for p in by_name.values())
    build_site(synthetic(8), tmp_path / "site")
    index = (tmp_path / "site" / "index.html").read_text()
    assert index.count('class="proved"') == 4
    assert "mean queueing delay" in index  # raw columns beside the score
    assert re.search(r'data-label="loss[^"]*" data-value="0.0"', index)


def test_no_overview_without_two_senders() -> None:
    assert views.overview(make_board(synthetic(1), Certified(()))) is None


@pytest.mark.parametrize(("sender", "adversary"), [("cubic", "kind"), ("bbr1", "square"), ("reno", "slowest"), ("copa", "hoard")])
def test_rtts_of_the_view_are_those_of_the_trace(sender: str, adversary: str) -> None:
    """The metrics compute delays from the curves in another way: the largest of them bounds every RTT, and is nearly reached."""
    trace = played(sender, adversary)
    view = make_view(trace)
    first, last, _ = Window(trace, 0, trace.n_steps).delays
    most_ms = 40 + 1e3 * float(np.maximum(first, last).max())
    rtts_ms = np.array(view["flows"][0]["rtt_ms"])
    assert len(rtts_ms) <= POINTS
    assert rtts_ms.min() >= 40 * (1 - 1e-3)
    assert rtts_ms.max() <= most_ms * (1 + 1e-3)
    assert rtts_ms.max() >= 40 + 0.7 * (most_ms - 40)  # the newest byte of an interval is not the oldest of its burst


def test_moves_of_the_view_are_those_of_the_network() -> None:
    kind, slow = (make_view(played("constant:rate_mbps=6", name)) for name in ("kind", "slowest"))
    assert max(kind["held_ms"]) == 0
    assert max(slow["held_ms"]) > 10  # D = 40 ms of a half-used link
    assert kind["rm_ms"] == 40
    assert np.mean(kind["wasted_mbps"][20:]) == pytest.approx(6, rel=0.1)  # half of the link finds no bytes
    full = make_view(played("constant:rate_mbps=24", "kind"))
    assert np.mean(full["wasted_mbps"][20:]) == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize(
    ("sender", "adversary", "said"),
    [
        (
            "constant:rate_mbps=3",
            "kind",
            r"25 % of the link is used: the sender sends only 25 % of the link rate, although the queue",
        ),
        (
            "constant:rate_mbps=36",
            "kind",
            r"100 % of the link is used: the sender sends 2\d\d % of the link rate, and 5\d % of it is lost\.$",
        ),
        (
            "constant:rate_mbps=6",
            "slowest",
            r"the network holds up to \d+ ms of bytes back \(RTTs are .* to .* ms on a path of 40 ms\)",
        ),
        ("cubic", "kind", r"the sender offers \d+ % of the link rate"),
    ],
)
def test_the_sentence_says_what_is_measured(sender: str, adversary: str, said: str) -> None:
    assert re.search(said, explain(make_view(played(sender, adversary)))), explain(make_view(played(sender, adversary)))


@pytest.mark.parametrize("n_flows", [1, 2])
@pytest.mark.parametrize(("sent", "lost"), [(0.0, 0.0), (0.0, 3.0), (1e-12, 5.0), (12.0, 0.0), (1e6, 1e6)])
def test_the_sentence_survives_silence_and_floods(sent: float, lost: float, n_flows: int) -> None:
    flow = {"sender": "x", "sent_mbps": [sent], "delivered_mbps": [0.0], "rtt_ms": [40.0]}
    view = {"time_s": [1.0], "link_mbps": [12.0], "queue_ms": [0.0], "lost_mbps": [lost], "flows": [flow] * n_flows}
    said = explain({**view, "held_ms": [0.0], "wasted_mbps": [12.0], "rm_ms": 40.0})
    assert ("the sender" in said) == (n_flows == 1)
    assert not re.search(r"nan|inf|-\d", said)
    assert trace_view({**view, "held_ms": [0.0], "wasted_mbps": [12.0], "rm_ms": 40.0})["panels"]


def test_a_view_of_an_older_version_is_drawn_without_rtt_and_moves() -> None:
    view = json.loads(json.dumps(make_view(played("reno", "square"))))
    complete = trace_view(view)
    for name in ("held_ms", "wasted_mbps", "rm_ms"):
        del view[name]
    del view["flows"][0]["rtt_ms"]
    older = trace_view(view)
    assert (complete["complete"], older["complete"]) == (True, False)
    assert (len(complete["panels"]), len(older["panels"])) == (3, 2)
    assert "rtt_ms" not in older["series"]
    assert older["why"].startswith("In the second half of the run")
    assert "the network" not in older["why"]


def test_the_page_of_a_sender_has_the_sentence_and_the_moves(tmp_path: Path) -> None:
    run_suite(small_suite(agents=["reno"]), tmp_path / "records", pictures=True)
    build_site(from_folders([tmp_path / "records"]), tmp_path / "site")
    page = next((tmp_path / "site" / "entries").glob("reno*.html")).read_text()
    assert 'class="why">In the second half of the run' in page
    assert "held back by the network" in page
    assert "RTT, reno" in page
