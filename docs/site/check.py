"""Check the built site: every link leads somewhere; in a browser no console error, no request to elsewhere, no page too wide."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from chromium import Chromium

WIDTHS = (1280, 375)
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
BROKEN = "Array.from(document.images).filter((image) => !(image.complete && image.naturalWidth)).map((image) => image.src)"


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what leads somewhere, and what can be led to."""
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def dead_links(site: Path) -> list[str]:
    """Return the links inside a site that lead nowhere, and those by address, which must at least be whole: page: link."""
    pages = {file: Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    dead = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                if parts.scheme.startswith("http") and not re.fullmatch(r"[\w.-]+\.[a-z]+(:\d+)?", parts.netloc):
                    dead.append(f"{file.relative_to(site)}: {link}")
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            known = target.is_file() and (not anchor or target.suffix != ".html" or anchor in pages[target].anchors)
            if not known or not target.is_relative_to(site.resolve()):
                dead.append(f"{file.relative_to(site)}: {link}")
    return dead


def wrong_in_browser(site: Path) -> list[str]:
    """Open every page at each width, with a browser of its own, and return what is wrong."""
    from chromium import Chromium

    with ExitStack() as ends:
        profiles = [Path(ends.enter_context(tempfile.TemporaryDirectory())) for _ in WIDTHS]
        browsers = [ends.enter_context(Chromium(profile)) for profile in profiles]
        with ThreadPoolExecutor(len(WIDTHS)) as pool:
            return [line for lines in pool.map(partial(_wrong_at, site), browsers, WIDTHS) for line in lines]


def _wrong_at(site: Path, browser: Chromium, width: int) -> list[str]:
    wrong = []
    for file in sorted(site.rglob("*.html")):
        browser.open(file.as_uri(), width)
        found = [f"console: {line}" for line in browser.console]
        found += [f"asks for {url}" for url in browser.requests if not url.startswith((site.as_uri(), "data:"))]
        if excess := browser.look(WIDE):
            found.append(f"{excess} pixels wider than the screen")
        found += [f"no picture at {url}" for url in browser.look(BROKEN)]
        wrong += [f"{file.relative_to(site)} at {width}: {what}" for what in found]
    return wrong


def check(site: Path) -> int:
    """Check a built site and print what is wrong; 0 where nothing is."""
    from chromium import BROWSER

    site, started = site.resolve(), time.monotonic()
    wrong = dead_links(site)
    pages = len(list(site.rglob("*.html")))
    if BROWSER is None:
        print("not opened in a browser: no Chromium is installed (apt-get install chromium)")
    else:
        wrong += wrong_in_browser(site)
    for line in wrong:
        print(line, file=sys.stderr)
    opened = "" if BROWSER is None else f", opened at {' and '.join(map(str, WIDTHS))} pixels"
    print(f"checked {pages} pages{opened} in {time.monotonic() - started:.0f} s: {len(wrong)} problems")
    return 1 if wrong else 0
