"""A published board: complete, checkable by anybody, brought up to date in place, and nothing else in the folder is touched."""

import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import locked
from ccenv.cli.main import main
from ccenv.leaderboard.site import publish as module
from ccenv.leaderboard.site.publish import HEAD, INDEX, RECORDS, SUMS, publish
from ccenv.leaderboard.store.database import BoardStore
from ccenv.leaderboard.store.home import WORK, Home, close_round
from ccenv.leaderboard.store.submit import submit_reviewed


def sums(folder: Path) -> dict[str, str]:
    return {name: digest for digest, name in (line.split("  ") for line in (folder / SUMS).read_text().splitlines())}


def agree(folder: Path) -> bool:
    """The list names every file of the folder but itself, each with its checksum."""
    here = {str(f.relative_to(folder)): f for f in folder.rglob("*") if f.is_file() and f.name != SUMS}
    return sums(folder) == {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in here.items()}


def test_a_publication_is_complete_and_can_be_audited(home: Home, store: BoardStore, tmp_path: Path) -> None:
    close_round(store, home)  # without the secret nobody can check seeds
    result = publish(store, home, tmp_path / "public")
    assert agree(tmp_path / "public") and result["written"] == result["files"] == len(sums(tmp_path / "public"))
    assert {INDEX, "board.json", "404.html", "_headers", RECORDS, HEAD} <= set(sums(tmp_path / "public"))
    copy = ["--board", str(tmp_path / "copy")]
    assert main(["board", "import", str(tmp_path / "public" / RECORDS), *copy]) == 0
    audit = ["board", "audit", *copy, "-s", "sample=1", "-s", "proofs=0", "--expect-head", str(tmp_path / "public" / HEAD)]
    assert main(audit) == 0


def test_secrets_stay_at_home(home: Home, store: BoardStore, tmp_path: Path) -> None:
    import lzma

    publish(store, home, tmp_path / "public")
    secrets = [file.read_text().strip() for file in (home.folder / "secrets").glob("*.hex")]
    assert secrets
    for file in (tmp_path / "public").rglob("*"):
        if file.is_file():
            content = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
            assert not any(secret.encode() in content for secret in secrets), file
            assert str(home.folder).encode() not in content, file


def test_again_nothing_is_written_and_afterwards_only_what_differs(home: Home, store: BoardStore, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    publish(store, home, folder)
    before = sums(folder)
    assert publish(store, home, folder)["written"] == 0
    submit_reviewed(store, home, "cubic")
    result = publish(store, home, folder)
    assert 0 < result["written"] < result["files"] and sums(folder)[HEAD] != before[HEAD] and agree(folder)


def test_what_is_not_of_the_board_stays(home: Home, store: BoardStore, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("mine")
    (folder / "CNAME").write_text("board.example.org")
    publish(store, home, folder)
    publish(store, home, folder, records=False)
    assert (folder / ".git" / "config").read_text() == "mine" and (folder / "CNAME").read_text() == "board.example.org"
    assert not (folder / "records").exists()  # ours, and no longer wanted


def test_foreign_files_are_not_overwritten(home: Home, store: BoardStore, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text("my diary")
    with pytest.raises(InputError, match=r"index\.html: is there already and no board was published here"):
        publish(store, home, tmp_path)
    assert [file.name for file in tmp_path.iterdir() if file.name != "board"] == [INDEX]
    assert (tmp_path / INDEX).read_text() == "my diary"
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is not a folder"):
        publish(store, home, tmp_path / "file")


@pytest.mark.parametrize("line", ["x", f"{'a' * 64}  ../../precious", f"{'a' * 64}  /etc/passwd", f"{'a' * 63}  index.html"])
def test_a_forged_list_removes_nothing(home: Home, store: BoardStore, tmp_path: Path, line: str) -> None:
    folder = tmp_path / "deep" / "public"
    publish(store, home, folder)
    (tmp_path / "precious").write_text("x")
    with (folder / SUMS).open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(InputError, match="SHA256SUMS:"):
        publish(store, home, folder)
    assert (tmp_path / "precious").read_text() == "x"


def test_nothing_is_written_through_a_link(home: Home, store: BoardStore, tmp_path: Path) -> None:
    folder, outside = tmp_path / "public", tmp_path / "outside"
    publish(store, home, folder)
    shutil.move(folder / "entries", outside)
    (folder / "entries").symlink_to(outside)
    before = {file.name: file.read_bytes() for file in outside.iterdir()}
    with pytest.raises(InputError, match="link"):
        publish(store, home, folder)
    assert {file.name: file.read_bytes() for file in outside.iterdir()} == before


def test_an_interrupted_publication_goes_on(home, store, tmp_path, monkeypatch):
    """At every write in turn the process ends; the next call must come to the same folder as one that was never stopped."""
    publish(store, home, tmp_path / "whole")
    old = shutil.copytree(tmp_path / "whole", home.folder.with_name("old"))
    (old / "entries" / "gone.html").write_text("an entry of the past")
    text = (old / SUMS).read_text() + f"{'0' * 64}  entries/gone.html\n"
    (old / SUMS).write_text(text)
    (old / INDEX).write_text("an older index")
    (old / "style.css").write_text("an older style")
    real, left = module.write_atomic, [0]

    def dying(file: Path, content: bytes) -> None:
        if left[0] == 0:
            raise CcenvError("killed")
        left[0] -= 1
        real(file, content)

    for writes in range(4):
        shutil.copytree(old, tmp_path / f"try{writes}")
        left[0] = writes
        with monkeypatch.context() as patch:
            patch.setattr(module, "write_atomic", dying)
            with pytest.raises(CcenvError, match="killed"):
                publish(store, home, tmp_path / f"try{writes}")
        publish(store, home, tmp_path / f"try{writes}")
        assert agree(tmp_path / f"try{writes}") and sums(tmp_path / f"try{writes}") == sums(tmp_path / "whole")


def test_halves_of_a_killed_publication_are_removed(home: Home, store: BoardStore, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    publish(store, home, folder)
    halves = [
        folder / ".index.html.9999999.0a1b2c3d.tmp",
        folder / "entries" / f".{next((folder / 'entries').iterdir()).name}.9999999.00000000.tmp",
    ]
    others = [folder / ".mine.1.00000000.tmp", folder / ".index.html.tmp"]
    for file in [*halves, *others]:
        file.write_text("x")
    publish(store, home, folder)
    assert not any(file.exists() for file in halves) and all(file.exists() for file in others)


def test_command_line(home: Home, store: BoardStore, tmp_path: Path, refused, answer) -> None:
    store.close()
    result = answer(["board", "publish", str(tmp_path / "public"), "--board", str(home.folder), "--json"])
    assert result["folder"] == str(tmp_path / "public") and result["written"] == result["files"]
    refused(["board", "publish", str(tmp_path / "public"), "--board", str(tmp_path / "nowhere")], "there is no board yet")


def test_the_boards_folder_has_its_lock_where_the_others_are(home: Home, store: BoardStore, tmp_path: Path) -> None:
    assert store.records() and main(["board", "publish", str(tmp_path / "public"), "--board", str(home.folder)]) == 0
    assert not (home.folder / "publish").exists()
    assert [file.relative_to(home.folder).as_posix() for file in home.folder.rglob("publish*")] == ["work/publish.lock"]
    assert not list((tmp_path / "public").rglob("*.lock"))


def test_one_publication_waits_for_another_and_not_for_an_evaluation(home: Home, store: BoardStore, tmp_path: Path) -> None:
    command = ["board", "publish", str(tmp_path / "public"), "--board", str(home.folder)]
    with locked(home.folder / WORK, "evaluation of this board"):
        assert main(command) == 0
    with ThreadPoolExecutor(1) as other, home.publishing():
        second = other.submit(main, command)
        with pytest.raises(TimeoutError):
            second.result(0.5)
    assert second.result() == 0 and agree(tmp_path / "public")
