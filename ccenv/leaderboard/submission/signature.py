"""Optional signatures: ``ssh-keygen -Y`` over ``submission.json``, which names the hashes of all other files."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path as FilePath

from ccenv.base.errors import CcenvError, InputError
from ccenv.leaderboard.submission.document import DOCUMENT, SIGNATURE

NAMESPACE = "ccenv-submission"
_ARMOUR = re.compile(rb"-----BEGIN SSH SIGNATURE-----\r?\n[A-Za-z0-9+/=\r\n]+\r?\n-----END SSH SIGNATURE-----\r?\n?")
_GOOD = re.compile(r'^Good "ccenv-[a-z-]+" signature (?:for .* )?with (ED25519|ED25519-SK) key (SHA256:[A-Za-z0-9+/]{43})$')
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}(?=\s)")
_LIMIT_S = 20.0


def available() -> bool:
    """Tell whether signatures can be made and checked on this machine."""
    return shutil.which("ssh-keygen") is not None


def read_fingerprint(key: FilePath) -> str:
    """Return the fingerprint of a key of ssh. Raises CcenvError if ssh-keygen is missing or does not know it."""
    done = _run(["-l", "-E", "sha256", "-f", str(key)], b"")
    match = _FINGERPRINT.search(done.stdout.decode("utf-8", "replace")) if done.returncode == 0 else None
    if match is None:
        raise CcenvError(f"{key}: ssh-keygen does not sign with it ({_output_text(done)})")
    return match[0]


def sign(document: bytes, key: FilePath, namespace: str = NAMESPACE) -> bytes:
    """Return the signature of a document with an ed25519 key of ssh; it is invalid for any other ``namespace``.

    Raises CcenvError if ssh-keygen is missing or refuses; InputError if the key is of another type.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = FilePath(folder) / DOCUMENT
        file.write_bytes(document)
        done = _run(["-Y", "sign", "-n", namespace, "-f", str(key), str(file)], b"")
        signature = FilePath(folder) / SIGNATURE
        if done.returncode or not signature.is_file():
            raise CcenvError(f"{key}: ssh-keygen does not sign with it ({_output_text(done)})")
        content = signature.read_bytes()
    signed_by(document, content, str(key), namespace)
    return content


def signed_by(document: bytes, signature: bytes, where: str, namespace: str = NAMESPACE) -> str:
    """Return the fingerprint of the ed25519 key that signed a document.

    Raises InputError if the signature is damaged, of another document, or of another type of key; CcenvError if ssh-keygen is
    missing, since an unchecked signature is worthless.
    """
    if not _ARMOUR.fullmatch(signature):
        raise InputError(f"{where}: not an SSH signature")
    with tempfile.TemporaryDirectory() as folder:
        file = FilePath(folder) / "sig"
        file.write_bytes(signature)
        done = _run(["-Y", "check-novalidate", "-n", namespace, "-s", str(file)], document)
    match = _GOOD.match(done.stdout.decode("utf-8", "replace").strip()) if done.returncode == 0 else None
    if match is None:
        signed = DOCUMENT if namespace == NAMESPACE else namespace
        raise InputError(f"{where}: not a valid ed25519 signature of {signed} ({_output_text(done)})")
    return match[2]


def _output_text(done: subprocess.CompletedProcess[bytes]) -> str:
    text = (done.stdout + b" " + done.stderr).decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:160]


def _run(arguments: list[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    if not available():
        raise CcenvError("ssh-keygen is not installed: signatures can be neither made nor checked here")
    try:
        return subprocess.run(["ssh-keygen", *arguments], input=stdin, capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise CcenvError(f"ssh-keygen did not end within {_LIMIT_S:g} s") from None
