"""Source pages of the site: the pages of docs/ with tables and links in place, notebooks as Markdown, the parts of the index."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

from tables.contents import fill  # noqa: E402 - the folder above is no package

# Pages of the repository outside docs/, and what they are called on the site.
OUTSIDE = {"README.md": "readme.md", "CHANGELOG.md": "changelog.md"}
REFERENCE = ("api", "cli", "schemas", "metrics", "signals", "registry")
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
_PART = re.compile(r"^## (.+)$", re.MULTILINE)
_IMAGE_SUFFIX = {"image/png": ".png", "image/svg+xml": ".svg"}


def parts_of_index(text: str) -> dict[str, list[str]]:
    """Return part -> pages from the lists of docs/index.md, in their order."""
    pieces = _PART.split(text)
    linked = {title: _LINK.findall(body) for title, body in zip(pieces[1::2], pieces[2::2], strict=True)}
    return {title: [target for _, target, _ in links if "://" not in target] for title, links in linked.items()}


def staged_name(page: Path) -> str:
    """Return the name that a page of the repository has on the site, without its ending for notebooks and Markdown."""
    relative = page.relative_to(ROOT).as_posix()
    return OUTSIDE.get(relative, relative.removeprefix("docs/"))


def turned(text: str, page: Path) -> str:
    """Return a page's text with links as they are on the site.

    Args:
        text: Markdown.
        page: where it stands in the repository.

    Raises:
        ValueError: for a link that leads nowhere.
    """

    def replace(found: re.Match[str]) -> str:
        target = found[2]
        if "://" in target:
            return found[0]
        file = (page.parent / target).resolve()
        if not file.exists():
            raise ValueError(f"{page.relative_to(ROOT)} links to {target}, which is not there")
        known = file.is_relative_to(DOCS) or file.relative_to(ROOT).as_posix() in OUTSIDE
        place = staged_name(file) if known else f"files/{file.name}"
        depth = len(Path(staged_name(page)).parts) - 1
        return found[1] + "../" * depth + re.sub(r"\.ipynb$", ".md", place) + found[3]

    pieces = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    pieces[::2] = [_LINK.sub(replace, piece) for piece in pieces[::2]]
    return "".join(pieces)


def code_sha256(notebook: dict[str, Any]) -> str:
    """Return the hash of a notebook's code: outputs that were recorded with another hash are stale."""
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256("\0".join(cells).encode()).hexdigest()


def notebooks() -> list[Path]:
    """Return the tutorials, in their order."""
    return sorted((DOCS / "tutorials").glob("*.ipynb"))


def notebook_page(file: Path) -> tuple[str, dict[str, bytes]]:
    """Return an executed notebook as Markdown, and its pictures: name beside the page -> content."""
    notebook = json.loads(file.read_text(encoding="utf-8"))
    out: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            out.append(turned(source, file))
            continue
        commands = source.startswith("!")
        code = re.sub(r"^!", "$ ", source, flags=re.MULTILINE) if commands else source
        out.append(f"```{'console' if commands else 'python'}\n{code}\n```")
        for output in cell["outputs"]:
            out.append(_output(output, f"{file.stem}-{len(pictures)}", pictures))
    seconds = notebook["metadata"]["ccenv"]["seconds"]
    out.append(f"*This page is the notebook `docs/tutorials/{file.name}` as it ran, in {seconds:.0f} s on two cores.*")
    return "\n\n".join(out) + "\n", pictures


def _output(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output["data"]
    for kind, suffix in _IMAGE_SUFFIX.items():
        if kind in data:
            content = "".join(data[kind])
            pictures[name + suffix] = base64.b64decode(content) if kind == "image/png" else content.encode()
            return f"![Output of the cell above]({name}{suffix})"
    if "text/html" in data:
        return f'```{{raw}} html\n<div class="output">{"".join(data["text/html"])}</div>\n```'
    return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"


def stage(folder: Path, reference: dict[str, str]) -> None:
    """Write all source pages into an empty folder.

    Args:
        folder: for Sphinx.
        reference: generated pages, file name below ``reference/`` -> Markdown.
    """
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in [ROOT / name for name in OUTSIDE] + sorted(DOCS.rglob("*.md")):
        _write(folder / staged_name(page), turned(fill(page.read_text(encoding="utf-8")), page))
    for file in notebooks():
        text, pictures = notebook_page(file)
        _write(folder / staged_name(file).replace(".ipynb", ".md"), text)
        for name, content in pictures.items():
            (folder / "tutorials" / name).write_bytes(content)
    for name, text in reference.items():
        _write(folder / "reference" / name, text)
    shutil.copytree(DOCS / "images", folder / "images", dirs_exist_ok=True)
    for name in ("data", "submission.schema.json"):
        source = DOCS / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    (folder / "files").mkdir()
    for text in [(ROOT / name).read_text(encoding="utf-8") for name in OUTSIDE] + [p.read_text() for p in DOCS.rglob("*.md")]:
        for name in re.findall(r"\]\((?:\.\./)?(LICENSE|CITATION\.cff)\)", text):
            shutil.copy(ROOT / name, folder / "files" / name)
    _write(folder / "index.md", turned(index, DOCS / "index.md") + _trees(index))


def _trees(index: str) -> str:
    """Return the table of contents of the side bar."""
    out = []
    for title, targets in parts_of_index(index).items():
        names = [staged_name((DOCS / target).resolve()) for target in targets if not target.startswith("site/")]
        names += [f"reference/{name}" for name in REFERENCE] if title == "Reference" else []
        lines = "\n".join(re.sub(r"\.(md|ipynb)$", "", name) for name in names)
        out.append(f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n")
    return "".join(out)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
