"""Scans folders in low-priority processes.

Matching holds the interpreter lock for the whole of a file: in a thread, a file of 4 MB would stop the event loop for
100 ms.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from moorage.runtime.sandbox.heavy import HeavyWork
from moorage.runtime.scan.service import Finding, Purpose, Scanner, ScanUnavailable


class FolderScans:
    """Finds files that must not be published, one folder at a time per organization."""

    def __init__(self, clamd: str, heavy: HeavyWork) -> None:
        """`clamd` is the daemon's address, or "" for none."""
        self._clamd = clamd
        self._heavy = heavy

    async def check(self, org_id: int, folder: Path, purpose: Purpose) -> Finding | None:
        """Return the first finding by file name, or None; raises ScanUnavailable."""
        answer = await self._heavy.run(org_id, f"{__name__}:scan", str(folder), purpose.value, self._clamd)
        if "unavailable" in answer:
            raise ScanUnavailable(answer["unavailable"])
        return Finding(*answer["finding"]) if answer["finding"] is not None else None


def scan(folder: str, purpose: str, clamd: str) -> dict[str, Any]:
    """Scan a folder in this process; arguments and result are JSON."""
    try:
        finding = scanner(clamd).check(Path(folder), Purpose(purpose))
    except ScanUnavailable as error:
        return {"unavailable": error.message}
    if finding is None:
        return {"finding": None}
    file = finding.file.encode(errors="replace").decode()  # The name may have bytes that are not UTF-8.
    return {"finding": [file, finding.rule, finding.why]}


@lru_cache(maxsize=1)
def scanner(clamd: str) -> Scanner:
    """Return the scanner of this process; it caches the files that passed."""
    return Scanner(clamd)
