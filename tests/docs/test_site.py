"""The documentation site without building it: configuration, parts of the index, links, reference pages; and its checks."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "site"))

import pages  # noqa: E402 - the folder of the site's tools is no package
import reference  # noqa: E402
from check import dead_links  # noqa: E402
from docstrings import to_markdown  # noqa: E402

INDEX = (DOCS / "index.md").read_text(encoding="utf-8")


def test_the_configuration_loads() -> None:
    values: dict[str, object] = {}
    exec((DOCS / "site" / "conf.py").read_text(encoding="utf-8"), values)
    assert values["html_theme"] == "furo"
    for name in values["html_css_files"]:
        assert (DOCS / "site" / values["html_static_path"][0] / name).is_file()


def test_the_index_has_four_parts_and_names_every_page_once() -> None:
    parts = pages.parts_of_index(INDEX)
    assert list(parts) == ["Tutorials", "How-to", "Reference", "Explanation", "Appendix"]
    named = [target for targets in parts.values() for target in targets]
    assert len(named) == len(set(named))
    there = {file.relative_to(DOCS).as_posix() for file in [*DOCS.glob("*.md"), *pages.notebooks()]} - {"index.md"}
    assert set(named) == there | {"../README.md", "../CHANGELOG.md"}


def test_pages_are_staged_with_links_that_lead_somewhere(tmp_path: Path) -> None:
    pages.stage(tmp_path, {f"{name}.md": f"# {name}\n" for name in pages.REFERENCE})
    for page in tmp_path.rglob("*.md"):
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
    trees = re.findall(r"```\{toctree\}\n.*?\n\n(.*?)\n```", (tmp_path / "index.md").read_text(), re.DOTALL)
    assert len(trees) == 5
    listed = {name for tree in trees for name in tree.split()}
    assert {page.relative_to(tmp_path).as_posix()[:-3] for page in tmp_path.rglob("*.md")} == listed | {"index"}


def test_a_link_to_nowhere_stops_the_build() -> None:
    with pytest.raises(ValueError, match=r"index\.md links to nowhere\.md"):
        pages.turned("[a](nowhere.md)", DOCS / "index.md")
    assert pages.turned("```\n[a](nowhere.md)\n```", DOCS / "index.md")


@pytest.mark.parametrize("name", sorted(reference.API))
def test_the_api_page_of_a_room_holds_its_public_names(name: str) -> None:
    page = reference.api_page(name, "title")
    assert page.count("\n### ") > 0
    assert " at 0x" not in page
    assert page.count("```") % 2 == 0


def test_the_top_level_and_every_command_are_in_the_reference() -> None:
    import ccenv

    page = reference.api_page("ccenv", "title")
    for name in ccenv.__all__:
        assert name.startswith("_") or (f"### `{name}`" in page and reference.examples(name)), name
    from ccenv.cli.main import GROUPS

    page = reference.cli_page()
    for group in GROUPS:
        assert f"## `ccenv {group.name}`" in page
    for command in ("ccenv board publish", "ccenv verify property", "ccenv compare"):
        assert re.search(rf"^#+ `{command}`", page, re.MULTILINE)
    assert "| `--budget`" in page


def test_schemas_metrics_and_signals_are_in_the_reference() -> None:
    from ccenv.agents import callbacks as signals
    from ccenv.network.metrics.table import METRICS
    from ccenv.training.config import TrainConfig

    schemas, metrics, fields = reference.schemas_page(), reference.metrics_page(), reference.signals_page()
    assert all(f"| `{name}` |" in schemas for name in TrainConfig.model_fields)
    assert all(f"## `{name}`" in metrics for name in METRICS)
    for record in (signals.ACK, signals.LOSS, signals.TICK, signals.VIEW, signals.MOVE):
        assert all(f"| `{name}` |" in fields for name in record.names or ())
    assert "newly acknowledged by this signal" in fields  # the comments of the source are the meanings
    assert "log2(C\\_U / C\\_L)" in fields or "log2(C_U / C_L)" in fields
    for name, page in (("copa", reference.registry_page()), ("hoard", reference.registry_page())):
        assert f"`{name}`" in page


def test_docstrings_become_markdown() -> None:
    text = to_markdown("""Do it.

    See ``x`` and :func:`make_path`; a * b, <tag>.

    Args:
        a: first
            and more.
        b (int): second.

    Raises:
        InputError: if wrong.

        code = 1
    """)
    assert "See `x` and `make_path`; a * b, \\<tag>." in text
    assert "- `a`: first and more." in text
    assert "**Args**" in text and "**Raises**" in text
    assert "- `InputError`: if wrong." in text


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="b.html#y">1</a><a href="c.html">2</a><a href="#x">3</a><a href="#z">4</a>'
    )
    (tmp_path / "b.html").write_text(
        '<p><a href="../outside.html">5</a><a href="https://example.org/x">6</a><a href="https://nowhere">7</a>'
    )
    (tmp_path.parent / "outside.html").write_text("")
    found = {line.split(": ")[1] for line in dead_links(tmp_path)}
    assert found == {"b.html#y", "c.html", "#z", "../outside.html", "https://nowhere"}
