"""Every example in README.md and docs/*.md works as printed (conventions: docs_pages.py)."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from docs_pages import Block, changed, commands, read_blocks, run_here, run_page
from own_process import run_apart

from ccenv.network.laws import check_trace

ROOT = Path(__file__).parents[2]
PAGE_TIMEOUT_S = 900  # a page that hangs fails
SLOW_PAGE_TIMEOUT_S = 3600
MAX_IMAGE_BYTES = 200_000
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def run(name: str, folder: Path, timeout_s: float, slow: bool = False) -> None:
    ended = run_apart(run_here, ROOT / name, slow, folder=folder, limit_s=timeout_s)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", [name for name in PAGES if read_blocks(read(name))])
def test_page_runs(name: str, tmp_path: Path) -> None:
    run(name, tmp_path, PAGE_TIMEOUT_S)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAGES if read_blocks(read(name)) != read_blocks(read(name), slow=True)])
def test_page_runs_whole(name: str, tmp_path: Path) -> None:
    run(name, tmp_path, SLOW_PAGE_TIMEOUT_S, slow=True)


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\(([^)#\s]+)", read("docs/index.md")))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert not pages - linked - {"index.md"}, f"not in docs/index.md: {sorted(pages - linked - {'index.md'})}"


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", read(name))
    missing = [t for t in targets if "://" not in t and not (ROOT / name).parent.joinpath(t).exists()]
    assert not missing, f"{name} links to what is not there: {missing}"


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site's MyST make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_to_headings_lead_to_one(name: str) -> None:
    for file, anchor in re.findall(r"\]\(([^)#\s:]*\.md)?#([^)]+)\)", read(name)):
        target = (ROOT / name).parent / file if file else ROOT / name
        assert anchor in anchors(target.read_text(encoding="utf-8")), f"{name}: {file}#{anchor} is no heading"


def test_every_image_is_shown_and_small() -> None:
    shown = {target.rpartition("/")[2] for name in PAGES for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", read(name))}
    for image in (ROOT / "docs" / "images").iterdir():
        assert image.name in shown, f"{image.name} is on no page"
        assert image.stat().st_size < MAX_IMAGE_BYTES, f"{image.name} has {image.stat().st_size} bytes"


@pytest.mark.parametrize("name", PAGES)
def test_make_targets_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:`|\$ )make ([a-z]+)", read(name), re.MULTILINE))
    assert named <= targets, f"{name} names make targets that do not exist: {sorted(named - targets)}"


def test_the_readme_shows_both_commands_and_an_example() -> None:
    text = read("README.md")
    assert "make demo" in text
    assert "make test" in text
    examples = [block.code for block in read_blocks(text) if block.language == "python"]
    assert examples and all(code.count("\n") <= 15 for code in examples)


def test_the_readme_example_is_no_transient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    figures = importlib.import_module("figures")
    text = read("README.md")
    (output,) = (block.code for block in read_blocks(text) if block.kind == "output" and "copa:" in block.code)
    caption = re.search(r"!\[([^]]*)\]\(docs/images/starvation.png\)", text)
    assert caption is not None
    for name in figures.SENDERS:
        trace = figures.readme_run(name, figures.README_NETWORK)
        assert not check_trace(trace)
        share = figures.utilisation(trace)
        assert f"{name}: {share:.0%} of" in output and re.search(rf"{name}( keeps)? {share:.0%}", caption[1])
        if name == "copa":
            after = np.diff(trace.S[trace.n_steps // 2 :: trace.n_steps // 20, 0])
            assert after.max() / (trace.link_rate_Bps[1] * trace.times_s[-1] / 20) < 0.2


def test_a_wrong_output_fails() -> None:
    text = "```python\nprint(1)\n```\n<!-- output -->\n```\n2\n```\n"
    with pytest.raises(AssertionError, match="printed\n1"):
        run_page("page.md", read_blocks(text), lambda _: 0)
    assert not read_blocks("<!-- slow: x -->\n" + text)


def test_blocks_are_read_with_their_comments() -> None:
    page = (
        "<!-- file: a.py -->\n```python\nx = 1\n```\n"
        "```python\nimport a\n```\n"
        "<!-- not-run: root -->\n```console\n$ ccenv demo\n```\n"
        "<!-- slow: minutes -->\n```console\n$ ccenv gap\n```\n"
        "<!-- exit: 2 -->\n```console\n$ ccenv list\n$ ccenv x # no\nout\n```\n"
        "```\nplain\n```\n"
    )
    blocks = read_blocks(page)
    assert [(b.language, b.kind, b.line) for b in blocks] == [("python", "file", 3), ("python", "", 6), ("console", "exit", 18)]
    assert [b.line for b in read_blocks(page, slow=True)] == [3, 6, 14, 18]
    assert commands(blocks[2]) == [(["ccenv", "list"], 0), (["ccenv", "x"], 2)]


@pytest.mark.parametrize("code", ["$ make demo\n", "$ python x.py\n", "$ ccenv list envs | head\n", "$ cd x\n"])
def test_what_cannot_be_run_must_say_so(code: str) -> None:
    with pytest.raises(ValueError, match="not-run"):
        commands(Block("console", code, 1))


def test_a_change_is_made_in_each_of_its_places() -> None:
    text = "a\nb\n\nc\nd\n"
    assert changed(text, " a\n-b\n+x\n+y\n\n@@\n+z\n d\n") == "a\nx\ny\n\nc\nz\nd\n"


@pytest.mark.parametrize("change", ["-e\n", "-a\n+b\n", " b\n-b\n", "x\n"])
def test_a_change_that_does_not_fit_fails(change: str) -> None:
    with pytest.raises(ValueError, match=r"times|begins with"):
        changed("a\nb\na\n", change)


def test_a_copy_has_its_own_changes_only_and_its_failure_is_told(tmp_path: Path) -> None:
    check = "```python\nassert open('README.md').read(6) == '# {0}\\n'[:6]\n```\n"
    part = "<!-- {0}: README.md -->\n```diff\n-# ccenv\n+# {0}\n```\n" + check
    page, folder = tmp_path / "page.md", tmp_path / "empty"
    page.write_text(f"{part.format('change')}{part.format('anew')}```python\nraise SystemExit(7)\n```\n")
    folder.mkdir()
    assert run_apart(run_here, page, False, folder=folder, limit_s=PAGE_TIMEOUT_S).returncode == 7


def test_a_wrong_exit_code_and_a_broken_example_fail() -> None:
    with pytest.raises(AssertionError, match="exit code 3 instead of 0"):
        run_page("page.md", [Block("console", "$ ccenv x\n", 1)], lambda _: 3)
    with pytest.raises(ZeroDivisionError):
        run_page("page.md", [Block("python", "1 / 0\n", 1)], lambda _: 0)
