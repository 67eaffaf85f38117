"""Run the tutorials again and store their outputs: python docs/site/execute.py [NAME...]. Needs the extra ``docs``."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from pages import ROOT, code_sha256, notebooks

LIMIT_S = 600  # of one cell
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_BAR = re.compile(r"━ +\d+(/|%)| +(\d+%|\d+/[\d?]+)( +(-:--:--|\d+:\d\d:\d\d))?$")  # a bar of progress


def execute(file: Path) -> float:
    """Run one notebook in an empty folder, and store outputs, the hash of the code and the seconds that it took."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(file, as_version=4)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": folder}}).execute()
        folders = (folder, os.path.realpath(folder))
    seconds = time.monotonic() - started
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [output for output in _merged(_plain(output, folders) for output in cell.outputs) if _holds(output)]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "ccenv": {"sha256": code_sha256(notebook), "seconds": round(seconds, 1)},
    }
    text = json.dumps(json.loads(nbformat.writes(notebook)), indent=1, ensure_ascii=False) + "\n"
    file.write_text(text, encoding="utf-8")
    return seconds


def _plain(output: Any, folders: tuple[str, ...]) -> Any:
    """Drop the escapes of a terminal and the folder that a run happened in."""
    output.metadata = {} if "metadata" in output else output.get("metadata", {})
    text = json.dumps(output)
    for folder in folders:
        text = text.replace(folder + "/", "").replace(folder, ".")
    return type(output)(json.loads(text))


def _merged(outputs: Iterable[Any]) -> list[Any]:
    """Put pieces of one stream together, and leave out what was overwritten and bars of progress."""
    merged: list[Any] = []
    for output in outputs:
        if output["output_type"] == "stream" and merged and merged[-1]["output_type"] == "stream":
            merged[-1]["text"] = "".join(merged[-1]["text"]) + "".join(output["text"])
        else:
            merged.append(output)
    for output in merged:
        if output["output_type"] == "stream":
            lines = _ESCAPES.sub("", "".join(output["text"])).replace("\r\n", "\n").split("\n")
            shown = [line.rpartition("\r")[2].rstrip() for line in lines]
            output["text"] = "\n".join(line for line in shown if not _BAR.search(line))
    return merged


def _holds(output: Any) -> bool:
    return output["output_type"] != "stream" or bool("".join(output["text"]).strip())


def main() -> int:
    """Run the command."""
    os.environ |= {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "110", "PYTHONWARNINGS": "ignore"}
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if importlib.util.find_spec("nbclient") is None:
        print("running the notebooks needs the extra docs: make docs, or pip install 'ccenv[docs]'", file=sys.stderr)
        return 2
    wanted = sys.argv[1:]
    if unknown := set(wanted) - {file.stem for file in notebooks()}:
        print(
            f"no notebook {', '.join(sorted(unknown))}; there are {', '.join(file.stem for file in notebooks())}", file=sys.stderr
        )
        return 2
    for file in notebooks():
        if not wanted or file.stem in wanted:
            print(f"{file.relative_to(ROOT)}: {execute(file):.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
