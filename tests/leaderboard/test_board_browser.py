"""The board in a real browser, opened from files: sorting, filtering, entry pages, keyboard, phone width, dark, no requests."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import BROWSER, Chromium
from small_suite import small_suite
from synthetic import synthetic

from ccenv.benchmarks.run.runner import run_suite
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.sources import from_folders

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium installed: apt-get install chromium")

NAMES = 'Array.from(document.querySelectorAll("table.board tbody tr:not([hidden]) th"), (th) => th.dataset.value)'
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty invented senders."""
    folder = tmp_path_factory.mktemp("browser") / "site"
    build_site(synthetic(40), folder)
    return folder


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run with worst traces."""
    folder = tmp_path_factory.mktemp("played")
    run_suite(small_suite(agents=["reno"]), folder / "records", pictures=True)
    build_site(from_folders([folder / "records"]), folder / "site")
    return folder / "site"


def heading(column: int) -> str:
    return f'document.querySelector("#senders-table thead th:nth-child({column + 1}) button")'


def clean(browser: Chromium, site: Path) -> bool:
    """Nothing in the console, and nothing asked for but files of the site."""
    return browser.console == [] and all(url.startswith(site.as_uri()) for url in browser.requests)


@pytest.mark.parametrize("width", [1300, 375])
def test_sorting_and_width(browser: Chromium, site: Path, width: int) -> None:
    browser.open((site / "index.html").as_uri(), width)
    start = browser.look(NAMES)
    assert len(start) == 40
    browser.look(heading(1) + ".click()")
    assert browser.look(NAMES) == sorted(start)
    browser.look(heading(1) + ".click()")
    assert browser.look(NAMES) == sorted(start, reverse=True)
    assert browser.look(heading(1) + '.parentElement.getAttribute("aria-sort")') == "descending"
    browser.look(heading(0) + ".click()")
    assert browser.look(NAMES) == start
    assert browser.look(WIDE) == 0  # tables scroll inside their frames, the page does not
    assert browser.look('getComputedStyle(document.querySelector("table.board")).borderSpacing') == "0px"  # style sheet loaded
    assert clean(browser, site)


def test_sorting_by_keyboard_and_filters(browser: Chromium, site: Path) -> None:
    browser.open((site / "index.html").as_uri(), 1300)
    start = browser.look(NAMES)
    browser.look(heading(0) + ".focus()")
    browser.press("Tab")
    assert browser.look("document.activeElement === " + heading(1))
    browser.press("Enter")
    assert browser.look(NAMES) == sorted(start)
    browser.open((site / "index.html").as_uri(), 1300)
    assert browser.look(set_filter("kind", "classic")) == "4 of 40" and browser.look(set_filter("kind", "")) == "40 of 40"
    assert browser.look(set_filter("verdict", "verified")) == "20 of 40"
    assert browser.look(set_filter("verdict", "none")) == "20 of 40"
    assert browser.look(set_filter("verdict", "refuted")) == "0 of 40"
    assert browser.look(set_filter("verdict", "")) == "40 of 40"
    assert browser.look(set_filter("text", "SENDER_0007")) == "1 of 40" and browser.look(NAMES) == ["sender_0007"]
    assert browser.look(set_filter("text", "author 7")) == "1 of 40"


def set_filter(kind: str, value: str) -> str:
    return (
        f"(() => {{ const c = document.querySelector('[data-filter={kind}]'); c.value = '{value}';"
        " c.dispatchEvent(new Event('input', {bubbles: true})); return document.querySelector('.count').textContent; })()"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_kind_of_page_fits_a_phone(browser: Chromium, site: Path, scheme: str) -> None:
    pages = [site / "index.html", site / "method.html", site / "adversaries.html"]
    pages += [next((site / "entries").glob("sender_0002*")), *sorted((site / "suites").iterdir())]
    for page in pages:
        browser.open(page.as_uri(), 375, scheme=scheme)
        assert browser.look(WIDE) == 0, page
        assert clean(browser, site), (page, browser.console)
    paper = browser.look("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in paper[4:-1].split(",")) < 200) == (scheme == "dark")


def test_the_worst_trace_can_be_read_by_keyboard_and_fits_a_phone(browser: Chromium, played: Path) -> None:
    page = next((played / "entries").glob("reno*.html"))
    browser.open(page.as_uri(), 1000)
    browser.look('document.querySelector(".viewer svg").focus()')
    browser.press("Home")
    first = browser.look('document.querySelector(".viewer output").textContent')
    browser.press("ArrowRight")
    second = browser.look('document.querySelector(".viewer output").textContent')
    assert "Mbit/s" in first and re.search(r"RTT [\d. +]+ ms, held [\d.]+ ms, not used [\d.]+", second)
    assert float(first.split(" s:")[0]) < float(second.split(" s:")[0])
    assert browser.look('document.querySelector(".viewer .cursor").getAttribute("visibility")') == "visible"
    assert clean(browser, played)
    browser.open(next((played / "entries").glob("reno*.html")).as_uri(), 375)
    assert browser.look(WIDE) == 0
    assert browser.look('document.querySelector(".viewer .why").textContent').startswith("In the second half of the run")
    assert browser.look('document.querySelectorAll(".viewer .curve").length') >= 7  # link, sent, delivered, queue, RTT, two moves


def test_rows_are_cards_on_a_phone_and_links_lead_to_entries(browser: Chromium, site: Path) -> None:
    shown = 'getComputedStyle(document.querySelector("#senders-table tbody tr")).display'
    label = 'getComputedStyle(document.querySelector("#senders-table tbody td:nth-child(3)"), "::before").content'
    browser.open((site / "index.html").as_uri(), 375)
    assert (browser.look(shown), browser.look(label)) == ("grid", '"power"')
    browser.open((site / "index.html").as_uri(), 1300)
    assert (browser.look(shown), browser.look(label)) == ("table-row", "none")
    target = browser.look('document.querySelector("#senders-table tbody a").href')
    browser.open(target, 1300)
    assert browser.look('document.querySelector("h1").textContent').startswith("sender_")
    assert browser.look('document.querySelectorAll("svg.plot").length') >= 2
