"""A local preview server of the site."""

from __future__ import annotations

import os
import socket
import stat
import threading
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError, InputError
from ccenv.leaderboard.site.build import DATA

POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"


MOST_CONNECTIONS = 32
SILENCE_S = 5.0  # without a byte
WHOLE_S = 30.0  # of a connection, however its bytes are spread


class _Handler(SimpleHTTPRequestHandler):
    """Serves files of the site with the headers of a public server; no links, listings or log."""

    timeout = SILENCE_S

    def send_head(self) -> Any:
        """Refuse everything but plain files of the site, such as links and pipes."""
        path = self.translate_path(self.path)
        if not _is_site_file(FilePath(path)):
            self.send_error(404)
            return None
        return super().send_head()

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY + "; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def list_directory(self, path: object) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _is_site_file(path: FilePath) -> bool:
    """Tell whether a path below the resolved folder is a plain file, or a folder with an index, and no link."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):  # the page of a folder is its index
            return not (path / "index.htm").exists() and _is_site_file(path / "index.html")
        return stat.S_ISREG(mode) and path.resolve() == path
    except (OSError, ValueError):
        return False


class _Server(ThreadingHTTPServer):
    """A server with limits on the number and duration of connections."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread, or close the connection if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve, with a limit on the duration of a connection."""
        timer = threading.Timer(WHOLE_S, _hang_up, (request,))
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that the client or the time limit ended."""


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def make_server(site: FilePath, port: int) -> ThreadingHTTPServer:
    """Return a server for 127.0.0.1, not yet running.

    Raises InputError if the folder is no site or the port is invalid; CcenvError if the port is taken.
    """
    if not (site / DATA).is_file():
        raise InputError(f"{site}: there is no site; make one: ccenv board build --out {site}")
    if not 0 <= port < 65536:
        raise InputError(f"--port is {port}; it must be 0 to 65535")
    try:
        return _Server(("127.0.0.1", port), partial(_Handler, directory=str(site.resolve())))
    except OSError as error:
        raise CcenvError(f"port {port} cannot be used ({error.strerror}): give another --port") from None
