"""Checks a folder that somebody wants to publish."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from moorage.scan.clamd import Clamd
from moorage.scan.findings import Finding, ScanUnavailable
from moorage.scan.matching import Matcher, TooSlow
from moorage.settings import Settings

__all__ = ["Finding", "ScanUnavailable", "Scanner"]

FILE_TIMEOUT_S = 10
FOLDER_TIMEOUT_S = 60  # Honest folders take a second; a hostile one should not hold a thread for long.


class Scanner:
    """Finds what may not be published. It blocks, so it is called in a thread; several threads may share it."""

    def __init__(self, settings: Settings) -> None:
        self._clamd = Clamd.at(settings.clamd) if settings.clamd else None

    def check(self, folder: Path) -> Finding | None:
        """Return the first bad file by the order of names, or None; raises ScanUnavailable.

        The rules look at all files before the virus scanner is asked about any, because asking takes longer.
        """
        return self._check_rules(folder) or self._ask_clamd(folder)

    def _check_rules(self, folder: Path) -> Finding | None:
        matcher = Matcher()
        deadline = time.monotonic() + FOLDER_TIMEOUT_S
        for name in files_of(folder):
            left_s = int(deadline - time.monotonic())
            if left_s < 1:
                raise ScanUnavailable("The upload was refused: scanning it took too long")
            file = folder / name
            if file.is_symlink() or not file.is_file():
                return Finding(name, "not-a-file", "is neither a file nor a folder")
            try:
                match = matcher.find(file, name, timeout_s=min(left_s, FILE_TIMEOUT_S))
            except TooSlow:
                return Finding(name, "too-slow", f"could not be scanned within {FILE_TIMEOUT_S} seconds")
            if match is not None:
                return Finding(name, match.rule, match.why)
        return None

    def _ask_clamd(self, folder: Path) -> Finding | None:
        if self._clamd is None:
            return None
        for name in files_of(folder):
            if signature := self._clamd.find(folder / name):
                return Finding(name, "clamav", f"matches the virus signature {signature}")
        return None


def files_of(folder: Path) -> Iterator[str]:
    """Return the names of all files below a folder, sorted; links are names too and are not followed."""

    def fail(error: OSError) -> None:
        raise error

    names: list[str] = []
    for at, folders, files in os.walk(folder, onerror=fail):
        linked = [name for name in folders if os.path.islink(os.path.join(at, name))]
        names += [os.path.relpath(os.path.join(at, name), folder) for name in (*files, *linked)]
    return iter(sorted(names))
