"""The source distribution has the same bits whenever it is built: SOURCE_DATE_EPOCH, if set, is the time of its files."""

import os
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

EPOCH = os.environ.get("SOURCE_DATE_EPOCH")
GZIP_TIME = slice(4, 8)  # RFC 1952 s.2.3


class SameBits(sdist):
    """Builds the archive with that time in its files and its head."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Collect the files."""
        super().make_release_tree(base_dir, files)
        for entry in (Path(base_dir), *Path(base_dir).rglob("*")) if EPOCH else ():
            os.utime(entry, (int(EPOCH), int(EPOCH)))

    def make_archive(self, *args: str | None, **more: str | None) -> str:
        """Write the archive."""
        file = Path(super().make_archive(*args, **more | ({"owner": "root", "group": "root"} if EPOCH else {})))
        if EPOCH:
            content = bytearray(file.read_bytes())
            content[GZIP_TIME] = int(EPOCH).to_bytes(4, "little")
            file.write_bytes(content)
        return str(file)


setup(cmdclass={"sdist": SameBits})
