"""Files of interrupted downloads, so that the next pull of the same layer continues.

    incoming/part-<owner>-<digest>    bytes of a layer; locked while a pull writes it

An owner keeps one file of an interrupted download. `Images.collect` removes files that are a day old.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(folder: Path, owner: str, digest: str) -> Iterator[Path]:
    """Yield the locked file of a download, or a new one while another pull holds it.

    The file stays where the context ends with an exception and the caller has not removed it.
    """
    prefix = f"part-{owner}-"
    path = folder / f"{prefix}{digest.removeprefix('sha256:')}"
    descriptor = _lock(path)
    if descriptor is None:
        path = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
        descriptor = _lock(path)
    assert descriptor is not None
    try:
        yield path
    except BaseException:
        if not os.fstat(descriptor).st_size:
            path.unlink(missing_ok=True)
        _remove_others(folder, prefix, path)
        raise
    else:
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _lock(path: Path) -> int | None:
    """Open a file and lock it; None if another pull holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        # The holder before may have removed the name between the two calls.
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _remove_others(folder: Path, prefix: str, kept: Path) -> None:
    """Remove the files of earlier interrupted downloads of an owner."""
    for path in folder.glob(f"{prefix}*"):
        if path != kept and (descriptor := _lock(path)) is not None:
            path.unlink(missing_ok=True)
            os.close(descriptor)
