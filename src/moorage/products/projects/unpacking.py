"""An uploaded archive on its way to a release: checked, unpacked, scanned, packed. It runs beside the platform.

`HeavyWork` calls these functions in a process of low priority, so they take and return what JSON can hold.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from moorage.core.kit import folders, zips, zips_writer
from moorage.runtime.builds.collect import OWN
from moorage.runtime.sandbox.heavy import Refused
from moorage.runtime.scan.service import Scanner, ScanUnavailable

MB = 2**20
PACKED_BYTES = 30 * MB
UPLOADED = zips.Caps(packed_bytes=PACKED_BYTES, unpacked_bytes=512 * MB, entries=20_000)


def measure(archive: str) -> int:
    """Return how many bytes a site takes once it is unpacked; raises Refused."""
    try:
        return sum(entry.size for entry in zips.inspect(Path(archive), UPLOADED))
    except zips.BadArchive as error:
        raise Refused(str(error)) from error


def prepare(archive: str, site: str, packed: str, clamd: str, finish: str) -> dict[str, Any]:
    """Unpack a site, scan it, pack it in the platform's own way, and finish it as a release; raises Refused.

    `finish` names the function, as `module:function`, that adds what the gateway needs.
    """
    folder = Path(site)
    files = _unpack(Path(archive), folder)
    try:
        found = _scanner(clamd).check(folder)
    except ScanUnavailable as error:
        return {"unavailable": str(error)}
    if found is not None:
        raise Refused(f"{found.file}: {found.why} ({found.rule})")
    zips_writer.pack(folder, Path(packed))
    module, _, name = finish.partition(":")
    getattr(importlib.import_module(module), name)(folder)
    return {"files": files}


@lru_cache(maxsize=1)
def _scanner(clamd: str) -> Scanner:
    """Return a scanner that remembers which files have passed, for as long as this process lives."""
    return Scanner(clamd)


def _unpack(archive: Path, folder: Path) -> int:
    """Unpack a site and return how many files it has."""
    try:
        entries = zips.extract(archive, folder, UPLOADED, strip_top=True)
    except zips.BadArchive as error:
        raise Refused(str(error)) from error
    # The platform's own place in a release; what lies there decides how a site is served.
    folders.remove(folder / OWN)
    files = sum(not entry.is_folder and not entry.name.startswith(f"{OWN}/") for entry in entries)
    if not files:
        raise Refused("the archive has no file in it")
    return files
