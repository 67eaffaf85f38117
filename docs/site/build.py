"""Build the documentation site: python docs/site/build.py [--check]. Nothing is fetched.

Needs the extra ``docs``. The site goes to build/docs/html. ``--check`` follows every link of the built pages and opens the pages
in a headless Chromium, at the width of a phone and of a desk; where none is installed it says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests")]

from pages import ROOT, code_sha256, notebooks, stage  # noqa: E402 - the folder of this file is no package
from reference import reference_pages  # noqa: E402

OUT = ROOT / "build" / "docs"


def stale_notebooks() -> list[str]:
    """Return the notebooks whose outputs are not of their code."""
    import json

    read = {file: json.loads(file.read_text(encoding="utf-8")) for file in notebooks()}
    return [
        file.name for file, content in read.items() if content["metadata"].get("ccenv", {}).get("sha256") != code_sha256(content)
    ]


def build(out: Path) -> int:
    """Build the site into an empty folder; any warning is an error."""
    from sphinx.cmd.build import build_main

    source, html = out / "source", out / "html"
    for folder in (source, html):
        shutil.rmtree(folder, ignore_errors=True)
    stage(source, reference_pages())
    return build_main(
        ["-W", "--keep-going", "-j", "2", "-c", str(HERE), "-d", str(out / "trees"), "-b", "html", str(source), str(html)]
    )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="follow all links and open the pages in a browser")
    options = parser.parse_args()
    if importlib.util.find_spec("sphinx") is None or importlib.util.find_spec("furo") is None:
        print("the documentation site needs the extra docs: make docs, or pip install 'ccenv[docs]'", file=sys.stderr)
        return 2
    started = time.monotonic()
    print("building the documentation site: some minutes; any warning ends it", flush=True)
    if stale := stale_notebooks():
        print(f"run again, their code has changed: {', '.join(stale)} (python docs/site/execute.py)", file=sys.stderr)
        return 1
    if failed := build(OUT):
        return failed
    print(f"built {OUT.relative_to(ROOT)}/html/index.html in {time.monotonic() - started:.0f} s")
    if not options.check:
        return 0
    from check import check

    return check(OUT / "html")


if __name__ == "__main__":
    sys.exit(main())
