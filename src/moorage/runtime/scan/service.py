"""Malware scan of a folder before it is published."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from moorage.runtime.scan.clamd import Clamd
from moorage.runtime.scan.findings import Finding, ScanUnavailable
from moorage.runtime.scan.matching import Matcher, TooSlow

__all__ = ["Finding", "Purpose", "ScanUnavailable", "Scanner"]

FILE_TIMEOUT_S = 10
FOLDER_TIMEOUT_S = 60  # Usual folders take a second; a hostile one must not occupy a thread for long.
REPOSITORY_TIMEOUT_S = 300  # 740 MB in 20,000 files took 59 s on a busy machine with 2 cores.
MAX_SOURCE_BYTES = 32 * 2**20  # Larger source files are data or native libraries, which the rules do not refuse.
MAX_CACHED_FILES = 100_000  # files that passed; about 15 MB


class Purpose(StrEnum):
    """Use of a folder, which selects the rules."""

    UPLOAD = "upload"  # an uploaded site: all rules, and no symbolic links
    SITE = "site"  # a built site: all rules; the build has checked its links
    SOURCE = "source"  # sources of an app or function: without the rules for native programs and install scripts


_SKIP: dict[Purpose, tuple[str, ...]] = {
    Purpose.UPLOAD: (),
    Purpose.SITE: (),
    Purpose.SOURCE: ("executable-", "dropper-"),
}


class Scanner:
    """Finds files that must not be published. Thread-safe; blocks.

    Content that passed the rules under a name is not matched again, because most files of a deployment are unchanged.
    Findings are not cached, and ClamAV checks every file each time, because its signatures change.
    """

    def __init__(self, clamd: str) -> None:
        """`clamd` is the daemon's address, or "" for none."""
        self._clamd = Clamd.at(clamd) if clamd else None
        self._passed: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, folder: Path, purpose: Purpose = Purpose.UPLOAD) -> Finding | None:
        """Return the first finding by file name, or None; raises ScanUnavailable.

        The rules check all files before ClamAV checks any, because ClamAV is slower.
        """
        timeout_s = FOLDER_TIMEOUT_S if purpose is Purpose.UPLOAD else REPOSITORY_TIMEOUT_S
        deadline = time.monotonic() + timeout_s
        return self._check_rules(folder, purpose, deadline) or self._check_clamd(folder, purpose, deadline)

    def _check_rules(self, folder: Path, purpose: Purpose, deadline: float) -> Finding | None:
        matcher = Matcher()
        for name in files_of(folder):
            left_s = _left_s(deadline)
            file = folder / name
            if file.is_symlink() or not file.is_file():
                if purpose is Purpose.UPLOAD:
                    return Finding(name, "not-a-file", "is neither a file nor a folder")
                continue  # A link in a repository points to a file that is scanned itself, or out of the folder.
            if purpose is Purpose.SOURCE and file.stat().st_size > MAX_SOURCE_BYTES:
                continue
            key = _key(file, name, purpose)
            if self._has_passed(key):
                continue
            try:
                match = matcher.find(file, name, timeout_s=min(left_s, FILE_TIMEOUT_S), skip=_SKIP[purpose])
            except TooSlow:
                _left_s(deadline)
                return Finding(name, "too-slow", f"could not be scanned within {FILE_TIMEOUT_S} seconds")
            if match is not None:
                return Finding(name, match.rule, match.why)
            self._add_passed(key)
        return None

    def _check_clamd(self, folder: Path, purpose: Purpose, deadline: float) -> Finding | None:
        if self._clamd is None:
            return None
        for name in files_of(folder):
            _left_s(deadline)
            file = folder / name
            if purpose is not Purpose.UPLOAD and (file.is_symlink() or not file.is_file()):
                continue
            if signature := self._clamd.find(file):
                return Finding(name, "clamav", f"matches the virus signature {signature}")
        return None

    def _has_passed(self, key: bytes) -> bool:
        with self._lock:
            if key not in self._passed:
                return False
            self._passed.move_to_end(key)
            return True

    def _add_passed(self, key: bytes) -> None:
        with self._lock:
            self._passed[key] = None
            while len(self._passed) > MAX_CACHED_FILES:
                self._passed.popitem(last=False)


def _left_s(deadline: float) -> int:
    left_s = int(deadline - time.monotonic())
    if left_s < 1:
        raise ScanUnavailable("The scan took too long: there are too many files, or too large ones")
    return left_s


def _key(file: Path, name: str, purpose: Purpose) -> bytes:
    """Return the cache key; the rules of a process never change."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256")
    digest.update(b"\0" + os.fsencode(name) + b"\0" + purpose.encode())
    return digest.digest()


def files_of(folder: Path) -> Iterator[str]:
    """Return the sorted relative paths of all files; links are not followed."""

    def fail(error: OSError) -> None:
        raise error

    names: list[str] = []
    for at, folders, files in os.walk(folder, onerror=fail):
        linked = [name for name in folders if os.path.islink(os.path.join(at, name))]
        names += [os.path.relpath(os.path.join(at, name), folder) for name in (*files, *linked)]
    return iter(sorted(names))
