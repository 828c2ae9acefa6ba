"""Size of the data folder by area, measured by `du` at low priority and kept for minutes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from moorage.core import disk
from moorage.core.kit.clock import MINUTE_MS, Clock
from moorage.core.kit.processes import children
from moorage.core.kit.records import dataclass
from moorage.settings import Settings

MAX_AGE_MS = 5 * MINUTE_MS
TIMEOUT_S = 120.0
# Folders of each area. Backups of databases are artifacts.
AREAS: Mapping[str, tuple[str, ...]] = {
    "store": ("store",),
    "artifacts": ("artifacts", "uploads", "image-uploads"),
    "repositories": ("git",),
    "sites": ("sites", "releases", "unpublished", "disabled", "building"),
    "apps": ("apps", "app-releases", "volumes"),
    "functions": ("code", "spool"),
    "databases": ("databases",),
    "logs": ("logs",),
    "caches": ("builds", "engines"),
    "trash": ("trash",),
}


@dataclass(frozen=True, slots=True)
class DiskReport:
    total_bytes: int
    free_bytes: int
    reserve_bytes: int
    areas: Mapping[str, int]
    measured_at: int


class DiskAreas:
    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = asyncio.Lock()
        self._sizes: tuple[Mapping[str, int], int] | None = None  # with the time of the measurement

    async def report(self) -> DiskReport:
        """Return the sizes, at most MAX_AGE_MS old; the free space is current."""
        async with self._lock:
            if self._sizes is None or self._clock.now() - self._sizes[1] > MAX_AGE_MS:
                self._sizes = await self._measure(), self._clock.now()
        sizes, measured_at = self._sizes
        return DiskReport(
            total_bytes=disk.total_bytes(self._settings.data),
            free_bytes=disk.free_bytes(self._settings.data),
            reserve_bytes=self._settings.disk_reserve_mb * disk.MB,
            areas=sizes,
            measured_at=measured_at,
        )

    async def _measure(self) -> dict[str, int]:
        """Return the bytes of each area; one that could not be measured is missing."""
        paths = {str(self._settings.folder(name)): area for area, names in AREAS.items() for name in names}
        existing = [path for path in paths if Path(path).is_dir()]
        argv = ["nice", "-n", "19", "du", "-s", "--block-size=1", "--", *existing]
        sizes: dict[str, int] = {}
        for line in (await _output(argv)).decode(errors="replace").splitlines():
            size, _, path = line.partition("\t")
            if path in paths and size.isdecimal():
                sizes[paths[path]] = sizes.get(paths[path], 0) + int(size)
        return sizes


async def _output(argv: list[str]) -> bytes:
    """Return the output of a program; files that vanish meanwhile make `du` fail, but its sums are valid."""
    child = await children.start(argv, env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"})
    assert child.stdout is not None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await child.stdout.read()
    except TimeoutError:
        return b""
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
