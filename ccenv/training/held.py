"""Hold a folder, so that two processes never write the same run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as FilePath

from ccenv.errors import CcenvError


@contextmanager
def held(folder: FilePath, what: str) -> Iterator[None]:
    """Hold an existing folder; the system lets go of it when the process ends, however it ends.

    Args:
        folder: to hold. The lock is on the folder itself: it leaves no file behind.
        what: is done there, for the message.

    Raises:
        CcenvError: if another holds it, or it cannot be locked.
    """
    import fcntl

    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CcenvError(f"{folder}: cannot be opened ({error.strerror})") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CcenvError(f"{folder}: another {what} is writing here; wait for it or give another --out") from None
    except OSError as error:
        os.close(descriptor)
        raise CcenvError(f"{folder}: cannot be locked ({error.strerror})") from None
    try:
        yield
    finally:
        os.close(descriptor)
