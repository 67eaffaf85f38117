"""Theorems on the board: shown with a sender of their program, only if the checker confirmed the certificate, as a download."""

import html
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from synthetic import synthetic

from ccenv.agents import make_sender
from ccenv.base.config import shipped_names
from ccenv.base.errors import InputError, UnknownNameError
from ccenv.cli.main import main
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.sections import Certified
from ccenv.leaderboard.site.sources import Records
from ccenv.leaderboard.submission.identity import canonical_hash
from ccenv.proofs.certificates.library import find, read_stored, shipped_folder, stored
from ccenv.proofs.certificates.reading import FORMAT

QUICKEST = "cc_probe_drain"


@pytest.fixture(scope="module")
def records() -> Records:
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


def test_sentence_figures_and_certificate_stand_with_the_sender_that_they_are_about(records, tmp_path, capsys) -> None:
    site = tmp_path / "site"
    assert build_site(records, site)["theorems"] == 1
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


def test_a_theorem_of_a_contract_stands_with_the_agent_that_chooses_inside_it() -> None:
    certified = Certified(stored(shipped_folder()))
    agent = make_sender("learned_contract_u77_timeouts")
    (theorem,) = certified.theorems(canonical_hash(agent), "agent")
    assert "whoever chooses inside the contract learned_contract_u77_timeouts" in theorem.statement
    assert certified.theorems(canonical_hash(make_sender("learned_contract_u80")), "other") == []


@pytest.mark.parametrize(("field", "value"), [("sender", "learned_contract_u80"), ("sender", "small.json"), ("program", None)])
def test_a_theorem_of_other_intervals_stands_with_nobody(field, value, tmp_path) -> None:
    data = json.loads(read_stored(find("learned_contract_u77_timeouts")).content)
    if field == "sender":
        data["theorem"]["sender"] = value
    else:
        data["program"]["rule"]["else"]["then"]["rate"]["C_L"] = "2"
    (file,) = stored(write(tmp_path / "own", data))
    assert not Certified([file]).theorems(canonical_hash(make_sender("learned_contract_u77_timeouts")), "agent")


def test_a_certificate_of_an_operator_is_shown_beside_the_shipped_one(records, tmp_path) -> None:
    own = write(tmp_path / "own", genuine())
    assert build_site(records, tmp_path / "site", [own])["theorems"] == 2
    assert len([name for name in files(tmp_path / "site") if name.startswith("certificates/")]) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["figures"].update(utilisation=0.99), "figures"),
        (lambda d: d.update(statement="cc_probe_drain uses all of the link, for ever."), "statement"),
        (lambda d: d["assumptions"].pop(), "assumptions"),
        (lambda d: d["queries"].pop(), "missing query"),
        (lambda d: d["queries"][3].update(answer="sat"), "answer"),
        (lambda d: d["theorem"]["constants"].update(f="2/3"), "statement|composition|meaning"),
        (lambda d: d.update(laws=7), "laws"),
    ],
)
def test_a_forged_certificate_is_never_shown(change, said, records, tmp_path) -> None:
    data = genuine()
    change(data)
    site = tmp_path / "site"
    with pytest.raises(InputError, match=rf"own\.certificate\.json: the certificate is refused \(({said})\)"):
        build_site(records, site, [write(tmp_path / "forged", data)])
    assert not site.exists() and {p.name for p in tmp_path.iterdir()} == {"forged"}


def test_a_certificate_of_another_program_is_about_nobody_here(records, tmp_path) -> None:
    data = genuine()
    data["program"]["rule"]["then"]["rate"]["C_L"] = "5/2"
    assert build_site(records, tmp_path / "site", [write(tmp_path / "other", data)])["theorems"] == 1


def test_names_in_a_certificate_choose_no_file(records, tmp_path) -> None:
    data = genuine()
    data["theorem"]["name"] = "../../../outside"
    with pytest.raises(InputError, match=r"theorem\.name"):
        build_site(records, tmp_path / "site", [write(tmp_path / "own", data)])
    assert {p.name for p in tmp_path.iterdir()} == {"own"}
    data = genuine()
    data["program"]["name"] = "<script>alert(1)</script>"  # no name of a program: about nobody
    assert build_site(records, tmp_path / "site", [write(tmp_path / "own", data)])["theorems"] == 1


def test_a_folder_or_a_file_that_is_none_is_refused_in_one_line(records, tmp_path, capsys) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        build_site(records, tmp_path / "site", [tmp_path / "absent"])
    (tmp_path / "x.certificate.json.xz").write_bytes(lzma.compress(b"{}\n"))
    with pytest.raises(InputError, match="not a certificate"):
        stored(tmp_path)
    with pytest.raises(UnknownNameError, match="cc_qdel"):
        find("cc_qdl")
    assert main(["certificate", "check", str(tmp_path / "absent.certificate.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_shipped_certificates_are_named_after_theorems() -> None:
    names = {one.certificate.theorem.name for one in stored(shipped_folder())}
    assert {file.name.removesuffix(".certificate.json.xz") for file in shipped_folder().glob("*.certificate.json.xz")} == names
    assert names <= set(shipped_names("ccenv.configs.theorem", ".yaml"))
