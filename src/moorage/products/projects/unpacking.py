"""Check, unpack, scan and repack an uploaded archive.

`HeavyWork` runs these functions in a separate low-priority process; arguments and results are sent as JSON.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from moorage.core.kit import folders, zips, zips_writer
from moorage.runtime.builds.collect import OWN
from moorage.runtime.sandbox.heavy import Refused
from moorage.runtime.scan.folders import scanner
from moorage.runtime.scan.service import ScanUnavailable

MB = 2**20
PACKED_BYTES = 30 * MB
UPLOADED = zips.Caps(packed_bytes=PACKED_BYTES, unpacked_bytes=512 * MB, entries=20_000)


def measure(archive: str) -> int:
    """Return the unpacked size of an archive in bytes; raises Refused."""
    try:
        return sum(entry.size for entry in zips.inspect(Path(archive), UPLOADED))
    except zips.BadArchive as error:
        raise Refused(str(error)) from error


def prepare(archive: str, site: str, packed: str, clamd: str, finish: str) -> dict[str, Any]:
    """Unpack, scan and repack a site, and finish its release; raises Refused.

    `finish` names the function (`module:function`) that adds the gateway's files to the folder.
    """
    folder = Path(site)
    files = _unpack(Path(archive), folder)
    try:
        finding = scanner(clamd).check(folder)
    except ScanUnavailable as error:
        return {"unavailable": str(error)}
    if finding is not None:
        raise Refused(f"{finding.file}: {finding.why} ({finding.rule})")
    zips_writer.pack(folder, Path(packed))
    module, _, name = finish.partition(":")
    getattr(importlib.import_module(module), name)(folder)
    return {"files": files}


def _unpack(archive: Path, folder: Path) -> int:
    """Unpack a site and return the number of its files."""
    try:
        entries = zips.extract(archive, folder, UPLOADED, strip_top=True)
    except zips.BadArchive as error:
        raise Refused(str(error)) from error
    # This folder is reserved: its files configure how the gateway serves the site.
    folders.remove(folder / OWN)
    files = sum(not entry.is_folder and not entry.name.startswith(f"{OWN}/") for entry in entries)
    if not files:
        raise Refused("the archive has no file in it")
    return files
