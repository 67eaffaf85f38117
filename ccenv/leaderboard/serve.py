"""A preview of the site for this machine only."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path as FilePath

from ccenv.errors import CcenvError, InputError
from ccenv.leaderboard.site import DATA

POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"


class _Handler(SimpleHTTPRequestHandler):
    """Files of the site, with the headers that a public server should send, no listings, no log."""

    def end_headers(self) -> None:
        """Add the headers."""
        self.send_header("Content-Security-Policy", POLICY + "; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def list_directory(self, path: object) -> None:
        """Refuse."""
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def make_server(site: FilePath, port: int) -> ThreadingHTTPServer:
    """Return a server for 127.0.0.1 that is not running yet.

    Args:
        site: folder that ``ccenv board build`` made.
        port: 0 for any free one.

    Raises:
        InputError: if the folder is no site or the port cannot be.
        CcenvError: if the port is taken.
    """
    if not (site / DATA).is_file():
        raise InputError(f"{site}: there is no site; make one: ccenv board build --out {site}")
    if not 0 <= port < 65536:
        raise InputError(f"--port is {port}; it must be 0 to 65535")
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, directory=str(site.resolve())))
    except OSError as error:
        raise CcenvError(f"port {port} cannot be used ({error.strerror}): give another --port") from None
