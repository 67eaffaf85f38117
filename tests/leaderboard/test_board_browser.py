"""The board in a real browser: opened from a file, sorted by a click, at desktop and phone width."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from small_suite import small_suite

from ccenv.benchmarks.runner import run_suite
from ccenv.leaderboard.site import build_site

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium installed: apt-get install chromium")

# Appended to the site's own script, because the policy of the pages allows no other.
PROBE = """
const table = document.querySelector("table.board");
const names = () => Array.from(table.tBodies[0].rows, (row) => row.querySelector("th").dataset.value);
const press = (column) => table.tHead.rows[0].cells[column].querySelector("button").click();
const seen = { start: names() };
press(1); seen.up = names();
press(1); seen.down = names(); seen.mark = table.tHead.rows[0].cells[1].getAttribute("aria-sort");
press(0); seen.rank = names();
seen.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
seen.styled = getComputedStyle(table).borderSpacing;
seen.images = Array.from(document.images, (image) => image.naturalWidth);
document.title = JSON.stringify(seen);
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    run_suite(small_suite(agents=["reno", "cc_qdel", "cubic"]), folder / "records")
    build_site([folder / "records"], folder / "site")
    with open(folder / "site" / "board.js", "a", encoding="utf-8") as file:
        file.write(PROBE)
    return folder / "site"


def open_page(page: Path, width: int) -> tuple[dict, str]:
    """Open a page from its file; return what the probe saw and what the browser complained about."""
    command = [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    command += [f"--window-size={width},900", "--virtual-time-budget=5000", "--dump-dom", page.as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    title = re.search(r"<title>(.*?)</title>", ended.stdout)
    assert title is not None
    seen = title[1].replace("&quot;", '"').replace("&lt;", "<").replace("&amp;", "&")
    assert seen.startswith("{"), f"the script did not run: {ended.stderr}"
    console = "\n".join(line for line in ended.stderr.splitlines() if "CONSOLE" in line)
    return json.loads(seen), console


@pytest.mark.parametrize("width", [1300, 500])
def test_index_sorts_and_fits(site: Path, width: int) -> None:
    seen, console = open_page(site / "index.html", width)
    assert console == ""  # nothing refused by the policy, no script error
    assert seen["up"] == sorted(seen["start"]) == ["cc_qdel", "cubic", "reno"]
    assert seen["down"] == seen["up"][::-1]
    assert seen["mark"] == "descending"
    assert seen["rank"] == seen["start"]
    assert seen["wide"] == 0  # tables scroll inside their frames, the page does not
    assert seen["styled"] == "0px"  # the style sheet was loaded


def test_sender_page_shows_its_picture(site: Path) -> None:
    page = next((site / "senders").glob("reno*.html"))
    seen, console = open_page(page, 500)
    assert console == ""
    assert seen["wide"] == 0
    assert len(seen["images"]) == 1
