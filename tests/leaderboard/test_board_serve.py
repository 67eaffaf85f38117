"""The preview server: plain files of the site only, few connections, and none for ever."""

from __future__ import annotations

import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ccenv.leaderboard.site import serve
from ccenv.leaderboard.site.build import DATA


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, int]]:
    monkeypatch.setattr(serve, "WHOLE_S", 1.0)
    folder = tmp_path / "site"
    (folder / "entries").mkdir(parents=True)
    for name in (DATA, "index.html", "entries/a.html"):
        (folder / name).write_text("a page")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "round-1.hex").write_text("secret")
    with serve.make_server(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield folder, int(server.server_address[1])
        server.shutdown()
        thread.join()


def answer(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as response:
        return bytes(response.read())


def test_hostile_links_of_a_site_are_not_followed(site: tuple[Path, int]) -> None:
    folder, port = site
    secret = folder.parent / "secret"
    (folder / "link.html").symlink_to(secret / "round-1.hex")
    (folder / "inside.html").symlink_to(folder / "index.html")
    (folder / "folder").symlink_to(secret)
    (folder / "entries" / "index.html").symlink_to(secret / "round-1.hex")
    os.mkfifo(folder / "pipe.html")
    assert answer(port, "index.html") == answer(port, "entries/a.html") == b"a page"
    for path in (
        "link.html",
        "inside.html",
        "folder/round-1.hex",
        "folder/",
        "pipe.html",
        "entries/",
        "entries/../link.html",
        "a%00b",
    ):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            answer(port, path)


def test_hostile_connections_are_few_and_end(site: tuple[Path, int]) -> None:
    _, port = site
    before = threading.active_count()
    slow = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(3 * serve.MOST_CONNECTIONS)]
    for connection in slow:
        connection.sendall(b"GET /index.html HTTP/1.0\r\nX: ")
    time.sleep(0.3)
    assert threading.active_count() - before <= 2 * serve.MOST_CONNECTIONS  # each with the thread of its time limit
    end_s = time.monotonic() + 60
    while slow and time.monotonic() < end_s:
        for connection in slow:
            with suppress(OSError):
                connection.sendall(b"x")  # never silent, never done
        slow = [connection for connection in slow if not _is_over(connection)]
        time.sleep(0.1)
    assert not slow
    assert answer(port, "index.html") == b"a page"


def _is_over(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        over = connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        over = True
    if over:
        connection.close()
    return over
