"""Certificates for display, shipped or from a folder; ``Stored.confirm`` checks one before it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path as FilePath

from ccenv.base.config import data_folder
from ccenv.base.errors import InputError, unknown_name
from ccenv.base.foreign import is_file, read_bounded, read_lines
from ccenv.base.renamed import today
from ccenv.proofs.certificates.check import Refusal, check
from ccenv.proofs.certificates.fairness.reading import shipped_fair
from ccenv.proofs.certificates.reading import MAX_BYTES, Certificate, parse_certificate

SUFFIXES = (".certificate.json", ".certificate.json.xz")
CHECKS_KEPT = 64
"""Certificates whose check is remembered within a process."""


@dataclass(frozen=True)
class Stored:
    """A certificate as a file holds it, before any check."""

    file: FilePath
    certificate: Certificate
    content: bytes

    def confirm(self) -> None:
        """Check the certificate without solving. Raises InputError with the first refusal."""
        refusal = _refusal(self.content)
        if refusal is not None:
            raise InputError(f"{self.file}: the certificate is refused ({refusal.kind}): {refusal.field}: {refusal.text}")


def shipped_folder() -> FilePath:
    return data_folder("ccenv.proofs.certificates.shipped")


def stored(folder: FilePath) -> list[Stored]:
    """Read all certificates of a folder, by name.

    Raises InputError if the folder cannot be read, or a file of these names is no certificate.
    """
    try:
        files = sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIXES))
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror})") from None
    return [read_stored(file) for file in files]


def read_stored(file: FilePath) -> Stored:
    """Read a certificate, packed with xz or not. Raises InputError for a file that is none, or of another version."""
    if file.suffix == ".xz":
        lines = read_lines(file, max_bytes=MAX_BYTES, max_line_bytes=MAX_BYTES)
        content = b"".join(line + b"\n" for _, line in lines)
    else:
        content = read_bounded(file, MAX_BYTES)
    return Stored(file, parse_certificate(content, str(file)), content)


def find(text: str) -> FilePath:
    """Return the file that a user means: a path, or the name of a shipped theorem. Raises UnknownNameError if it is neither."""
    if is_file(text) or "/" in text or text.endswith(SUFFIXES):
        return FilePath(text)
    names = {file.name.removesuffix(SUFFIXES[1]): file for file in shipped_folder().glob(f"*{SUFFIXES[1]}")}
    if (name := today(text)) not in names:
        raise unknown_name("certificate", text, [*names, *shipped_fair()])
    return names[name]


@lru_cache(maxsize=CHECKS_KEPT)
def _refusal(content: bytes) -> Refusal | None:
    report = check(parse_certificate(content, "certificate"))
    return report.refusals[0] if report.refusals else None
