"""What a board shows of leagues and theorems."""

import html
import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest
from synthetic import synthetic

from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.base.config import shipped_names
from ccenv.base.errors import InputError, UnknownNameError
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.cli.main import main
from ccenv.leaderboard.evaluate.score import SUITES
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.sections import Certified, read_quic
from ccenv.leaderboard.site.sources import Records
from ccenv.leaderboard.site.views import FURTHER
from ccenv.leaderboard.submission.identity import canonical_hash
from ccenv.proofs.certificates.library import find, read_stored, shipped_folder, stored
from ccenv.proofs.certificates.reading import FORMAT
from ccenv.quic.suite import FORMAT as QUIC
from ccenv.quic.suite import SUITE
from ccenv.training.league.record import read_record

DATA = Path(__file__).parents[2] / "docs" / "data"
RECORDED, QUIC_RECORD = DATA / "league.json", DATA / "quic-v1.json"
CELL = re.compile(r'<td class="value m[0-7]" data-value="([^"]*)">([^<]*)</td>')


@pytest.fixture(scope="module")
def records() -> Records:
    return synthetic(2)


@pytest.fixture(scope="module")
def site(records: Records, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("leagues") / "site"
    assert build_site(records, out, leagues=[RECORDED])["leagues"] == 1
    return out


def recorded() -> Any:
    return json.loads(RECORDED.read_text())


def written(folder: Path, data: dict[str, Any]) -> Path:
    file = folder / "league.json"
    file.write_text(json.dumps(data))
    return file


def test_the_page_shows_the_record_of_a_league_which_is_a_download(site: Path) -> None:
    data, text = recorded(), (site / "leagues.html").read_text()
    cells = CELL.findall(text)
    assert [float(value) for value, _ in cells] == [value for row in data["payoffs"] for value in row]
    assert [shown for _, shown in cells] == [f"{value:.2f}" for row in data["payoffs"] for value in row]
    for name in (*data["senders"], *data["networks"]):
        assert name in text
    shades = {int(shade) for shade in re.findall(r'class="value m([0-7])"', text)}
    assert {0, 7} <= shades  # the scale is that of this matrix
    for one in data["rounds"]:
        low, high = one["interval"]
        assert f'<b>{one["exploitability"]:.3f}</b> <span class="by">{low:.3f} to {high:.3f}</span>' in text
    for name, weight in data["sender_mixture"].items():
        assert re.search(rf'data-value="{name}">{name}</th>\s*<td class="value" data-value="[^"]+">{weight:.2f}</td>', text)
    assert f"{data['value']:.3f}" in text and f"{data['best']['guarantee']:.3f}" in text
    assert 'href="leagues/full-0.json" download' in (site / "leagues.html").read_text()
    assert read_record(site / "leagues" / "full-0.json") == read_record(RECORDED)
    (told,) = json.loads((site / "board.json").read_text())["leagues"]
    assert told["record"] == "leagues/full-0.json" and told["value"] == recorded()["value"]
    assert [one["exploitability"] for one in told["rounds"]] == recorded()["exploitability"]


def test_two_builds_are_equal_and_a_league_that_is_left_out_goes(records: Records, site: Path, tmp_path: Path) -> None:
    build_site(records, tmp_path / "site", leagues=[RECORDED])
    page = (site / "leagues.html").read_bytes()
    assert (tmp_path / "site" / "leagues.html").read_bytes() == page
    assert build_site(records, tmp_path / "site")["leagues"] == 0
    assert not (tmp_path / "site" / "leagues.html").exists() and not (tmp_path / "site" / "leagues").exists()
    assert "eague" not in (tmp_path / "site" / "index.html").read_text()
    assert json.loads((tmp_path / "site" / "board.json").read_text())["leagues"] == []


def test_names_of_a_record_are_text_and_choose_no_file(records: Records, tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>../../x"
    file = written(tmp_path, json.loads(json.dumps(recorded()).replace('"round-03"', json.dumps(bad))))
    build_site(records, tmp_path / "site", leagues=[file])
    text = (tmp_path / "site" / "leagues.html").read_text()
    assert bad not in text and html.escape(bad) in text and "style=" not in text and len(re.findall("<script", text)) == 1
    assert {p.name for p in tmp_path.iterdir()} == {"league.json", "site"}


@pytest.mark.parametrize(
    ("change", "said"),
    [(lambda d: d["payoffs"].pop(), "payoffs"), (lambda d: d["payoffs"][0].__setitem__(0, 1e308), "payoffs"),
     (lambda d: d["payoffs"][2].append(0.5), "payoffs"), (lambda d: d["payoffs"][0].__setitem__(0, "1.0"), "payoffs"),
     (lambda d: d["senders"].__setitem__(1, d["senders"][0]), "named twice"),
     (lambda d: d["sender_mixture"].update(start=0.2), "do not add up to 1"),
     (lambda d: d["rounds"][4]["network_mixture"].update(nobody=0.0), "'nobody', who is not in the league"),
     (lambda d: d.update(value=0.99), "value is 0.99"),
     (lambda d: d["rounds"][9].update(exploitability=0.0), "what the two sides gain"),
     (lambda d: d["rounds"][9].update(interval=[0.2, 0.1]), "interval"),
     (lambda d: d["exploitability"].reverse(), "exploitability"), (lambda d: d["rounds"].pop(3), "rounds"),
     (lambda d: d.update(name="../../index"), "name"), (lambda d: d.update(status="running"), "not finished"),
     (lambda d: d.update(format="ccenv-board"), "not the record of a league"),
     (lambda d: d.update(more=1), "unknown key 'more'")],
)  # fmt: skip
def test_a_record_that_contradicts_itself_is_never_shown(change, said, records, tmp_path):
    data = recorded()
    change(data)
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        build_site(records, tmp_path / "site", leagues=[written(tmp_path, data)])
    assert "\n" not in str(refused.value) and not (tmp_path / "site").exists()


def test_the_command_takes_folders_of_leagues_and_refuses_one_twice(made, tmp_path, capsys, refused):
    folder = tmp_path / "full-0"
    folder.mkdir()
    written(folder, recorded())
    own = ["--records", str(made), "--out", str(tmp_path / "site")]
    assert main(["board", "build", *own, "-s", f"league={folder}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["leagues"] == 1
    refused(["board", "build", *own, "-s", f"league={folder},{RECORDED}"])
    refused(["board", "build", *own, "-s", f"league={tmp_path}/absent.json"], "absent.json")
    assert (tmp_path / "site" / "leagues.html").exists()  # the board that was there stays


QUICKEST = "cc_probe_drain"


@pytest.fixture(scope="module")
def theorem_records() -> Records:
    """Two invented senders; the first plays cc_probe_drain, as far as its hash tells."""
    made = synthetic(2)
    first = made.benches[0].submission
    made.players[first] = canonical_hash(make_sender(QUICKEST))
    return made


def genuine() -> dict[str, Any]:
    return json.loads(read_stored(find(QUICKEST)).content)


def write(folder: Path, data: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    head = {"format", "version"}
    (folder / "own.certificate.json").write_bytes(FORMAT.content({k: v for k, v in data.items() if k not in head}))
    return folder


def files(site: Path) -> set[str]:
    return {str(file.relative_to(site)) for file in site.rglob("*") if file.is_file()}


def test_sentence_figures_and_certificate_stand_with_the_sender_that_they_are_about(theorem_records, tmp_path, capsys) -> None:
    site = tmp_path / "site"
    assert build_site(theorem_records, site)["theorems"] == 1
    data = genuine()
    (name,) = [name for name in files(site) if name.startswith("certificates/")]
    index = (site / "index.html").read_text()
    assert "utilisation ≥ 0.33" in index and "loss ≤ 1.21" in index  # 6/5 as the next float above it, rounded up
    assert data["statement"] in html.unescape(index)
    (page,) = [p.read_text() for p in (site / "entries").glob("sender_0000*.html")]
    assert f'href="../{name}" download' in page and "not claimed" in page
    (other,) = [p.read_text() for p in (site / "entries").glob("sender_0001*.html")]
    assert "certificates/" not in other
    senders = json.loads((site / "board.json").read_text())["senders"]
    (told,) = [theorem for sender in senders for theorem in sender["theorems"]]
    assert told["certificate"] == name and told["utilisation"] == pytest.approx(1 / 3) and told["inflight_bdp"] is None
    assert main(["certificate", "check", str(site / name), "--json"]) == 0  # what is downloaded is what is checked
    assert json.loads(capsys.readouterr().out)["statement"] == told["statement"] == data["statement"]


def test_a_theorem_of_any_number_of_flows_has_a_column_and_quic_too(tmp_path, capsys) -> None:
    made, site = synthetic(2), tmp_path / "site"
    name = made.benches[0].manifest.agents[0].label
    made.players[made.benches[0].submission] = sender_hash(make_sender("ever_delay"))
    quinn = {"stack": "quinn", "sender": name, "attacked": 0.875, "searched": None, "legal": True}
    rows = [quinn, {"stack": "Linux", "sender": name, "attacked": 0.1}]
    record = tmp_path / "quic.json"
    record.write_bytes(QUIC.content({"suite": SUITE, "rows": rows}))
    assert build_site(made, site, quic=[record])["theorems"] == 1
    index = (site / "index.html").read_text()
    assert "rates within 2.92" in index and ">0.88 <" in index and ">0.10 <" not in index
    (told,) = [one for one in json.loads((site / "board.json").read_text())["senders"] if one["theorems"]]
    assert told["quic"] == [{"stack": "quinn", "attacked": 0.875}]
    (theorem,) = told["theorems"]
    assert theorem["flows"] == "any" and theorem["rtt_rtts"] > 10 and theorem["ratio"] < 3
    (file,) = (site / "certificates").iterdir()
    assert main(["certificate", "check", str(file), "--json"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("broken", "reason"),
    [({"rows": None}, "no rows"), ({"rows": {"a": 1}}, "no rows"), ({"suite": "quick"}, "no rows"),
     ({"rows": [[1]]}, "no sender"), ({"rows": [{"stack": "quinn"}]}, "no sender"), ({"sender": ["reno"]}, "no sender"),
     ({"attacked": "0.5"}, "utilisation"), ({"attacked": True}, "utilisation"), ({"attacked": -1}, "utilisation"),
     ({"attacked": 1e300}, "utilisation"), ({"legal": False}, "no result"), ({"twin": False}, "no result"),
     ({"stack": "picoquic"}, "given twice")],
)  # fmt: skip
def test_a_record_of_quic_runs_that_is_none_is_refused(broken: dict[str, Any], reason: str, tmp_path: Path) -> None:
    record = json.loads((QUIC_RECORD).read_text())
    assert set(read_quic([QUIC_RECORD])) >= {"reno", "cc_qdel"}
    row = next(row for row in record["rows"] if (row["stack"], row["sender"]) == ("quinn", "reno"))
    (record if broken.keys() <= record.keys() else row).update(broken)
    file = tmp_path / "quic.json"
    file.write_text(json.dumps(record))
    with pytest.raises(InputError, match=reason):
        read_quic([file])


def test_the_index_tells_what_further_suites_found() -> None:
    assert all(set(names) <= set(load_suite(suite).table) for suite, names in FURTHER.items())
    assert set(FURTHER) < set(SUITES)


def test_a_theorem_of_a_shield_stands_with_the_agent_that_chooses_inside_it() -> None:
    certified = Certified(stored(shipped_folder()))
    agent = make_sender("learned_shield_u77_timeouts")
    (theorem,) = certified.theorems(canonical_hash(agent), "agent")
    assert "whoever chooses inside the shield learned_shield_u77_timeouts" in theorem.statement
    assert certified.theorems(canonical_hash(make_sender("learned_shield_u80")), "other") == []


@pytest.mark.parametrize(("field", "value"), [("sender", "learned_shield_u80"), ("sender", "small.json"), ("program", None)])
def test_a_theorem_of_other_intervals_stands_with_nobody(field, value, tmp_path) -> None:
    data = json.loads(read_stored(find("learned_shield_u77_timeouts")).content)
    if field == "sender":
        data["theorem"]["sender"] = value
    else:
        data["program"]["rule"]["else"]["then"]["rate"]["C_L"] = "2"
    (file,) = stored(write(tmp_path / "own", data))
    assert not Certified([file]).theorems(canonical_hash(make_sender("learned_shield_u77_timeouts")), "agent")


def test_a_certificate_of_an_operator_is_shown_beside_the_shipped_one(theorem_records, tmp_path) -> None:
    own = write(tmp_path / "own", genuine())
    assert build_site(theorem_records, tmp_path / "site", [own])["theorems"] == 2
    assert len([name for name in files(tmp_path / "site") if name.startswith("certificates/")]) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [(lambda d: d["figures"].update(utilisation=0.99), "figures"),
     (lambda d: d.update(statement="cc_probe_drain uses all of the link, for ever."), "statement"),
     (lambda d: d["assumptions"].pop(), "assumptions"), (lambda d: d["queries"].pop(), "missing query"),
     (lambda d: d["queries"][3].update(answer="sat"), "answer"),
     (lambda d: d["theorem"]["constants"].update(f="2/3"), "statement|composition|meaning"),
     (lambda d: d.update(laws=7), "laws")],
)  # fmt: skip
def test_a_forged_certificate_is_never_shown(change, said, theorem_records, tmp_path) -> None:
    data = genuine()
    change(data)
    site = tmp_path / "site"
    with pytest.raises(InputError, match=rf"own\.certificate\.json: the certificate is refused \(({said})\)"):
        build_site(theorem_records, site, [write(tmp_path / "forged", data)])
    assert not site.exists() and {p.name for p in tmp_path.iterdir()} == {"forged"}


def test_names_in_a_certificate_choose_no_file_and_one_of_another_program_is_about_nobody_here(theorem_records, tmp_path) -> None:
    data = genuine()
    data["theorem"]["name"] = "../../../outside"
    with pytest.raises(InputError, match=r"theorem\.name"):
        build_site(theorem_records, tmp_path / "site", [write(tmp_path / "own", data)])
    assert {p.name for p in tmp_path.iterdir()} == {"own"}
    data = genuine()
    data["program"]["name"] = "<script>alert(1)</script>"  # no name of a program: about nobody
    assert build_site(theorem_records, tmp_path / "site", [write(tmp_path / "own", data)])["theorems"] == 1
    data = genuine()
    data["program"]["rule"]["then"]["rate"]["C_L"] = "5/2"
    assert build_site(theorem_records, tmp_path / "site", [write(tmp_path / "other", data)])["theorems"] == 1


def test_a_folder_or_a_file_that_is_none_is_refused_in_one_line(theorem_records, tmp_path, refused) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        build_site(theorem_records, tmp_path / "site", [tmp_path / "absent"])
    (tmp_path / "x.certificate.json.xz").write_bytes(lzma.compress(b"{}\n"))
    with pytest.raises(InputError, match="not a certificate"):
        stored(tmp_path)
    with pytest.raises(UnknownNameError, match="cc_qdel"):
        find("cc_qdl")
    refused(["certificate", "check", str(tmp_path / "absent.certificate.json")])


def test_shipped_certificates_are_named_after_theorems() -> None:
    names = {one.certificate.theorem.name for one in stored(shipped_folder())}
    assert {file.name.removesuffix(".certificate.json.xz") for file in shipped_folder().glob("*.certificate.json.xz")} == names
    assert names <= set(shipped_names("ccenv.configs.theorem", ".yaml"))
