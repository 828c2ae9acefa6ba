"""Remove files that killed processes left behind, at start and every hour.

Each of these files has a unique name, and its process removes it unless it is killed. Other folders are cleaned by
their owners: `builds/` at start; unpacked artifacts in `code/` and `releases/` by the collection of artifacts; `git/`
and `images/incoming/` by their hourly jobs; half-made databases by the cleanup of backups.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from moorage.core.env import Env
from moorage.core.kit import folders
from moorage.core.kit.records import dataclass
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry

CLEANUP_INTERVAL_S = 3600.0
# A file in use is younger: request bodies arrive at 1 KB/s at least, and an upload is processed within minutes.
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S  # for tasks that copy everything, which take long
DRAFT = r"\.(new|old)-[0-9a-f]{16}"  # see `artifacts.unpacked`


@dataclass(frozen=True, slots=True)
class Leftover:
    pattern: str  # below the data folder
    older_than_s: float = HOUR_S
    name: str = ""  # a regular expression for the name, if the pattern is too wide
    is_of_owner: bool = False  # only the owner of the store creates it, so none is in use when the owner starts

    def find(self, data: Path, now: float, *, is_owner_starting: bool) -> Iterator[Path]:
        for path in data.glob(self.pattern):
            is_unused = self.is_of_owner and is_owner_starting
            is_named = not self.name or re.fullmatch(self.name, path.name)
            if is_named and (is_unused or _changed_at(path) <= now - self.older_than_s):
                yield path


LEFTOVERS = (
    Leftover("uploads/*", is_of_owner=True),  # bodies of multipart requests
    Leftover("code/.*", name=DRAFT, is_of_owner=True),  # artifacts that were being unpacked or removed
    Leftover("releases/.*", name=DRAFT, is_of_owner=True),
    Leftover("store/snapshots/*.partial*", is_of_owner=True),  # copies of the store, and their journals
    Leftover("store/backup.partial", DAY_S, is_of_owner=True),  # `moorage backup` holds the store's lock for these
    Leftover("restore.partial", DAY_S, is_of_owner=True),
    Leftover("databases/.backup", DAY_S),  # copies for `moorage backup`
    Leftover("volumes/.backup", DAY_S),
    Leftover("keys/*.partial"),
    Leftover("keys/tls/.*", name=r"\.[0-9a-f]{16}"),  # copies of the operator's certificate and key
    Leftover("keys/acme/.*", name=r"\.[0-9a-f]{16}"),  # the ordered certificate, and the key of the ACME account
    Leftover("build-cache/functions.*/.*", name=r"\.[0-9a-f]{16}"),
    Leftover("sites/.*", name=r"\.[0-9a-f]{16}"),  # links that were not put in place
    Leftover("run/.*", name=r"\..+\.[0-9a-f]{16}\.\w+"),  # configurations of the gateway
    Leftover("engines/.new-*", DAY_S),  # installs of database software
    Leftover("engines/nodes/.fetch-*"),
)


def clear(env: Env, *, is_owner_starting: bool = False) -> list[Path]:
    """Remove old files and return their paths. Safe to repeat.

    At the start of the process that owns the store, the files of the previous owner are removed at any age.
    """
    data, now = env.settings.data, env.clock.trusted_now() / 1000
    paths = [path for left in LEFTOVERS for path in left.find(data, now, is_owner_starting=is_owner_starting)]
    for path in paths:
        # Another process removed it, or still writes there and exits soon: the next cleanup removes the rest.
        with contextlib.suppress(OSError):
            folders.remove(path)
    return paths


async def run(env: Env, telemetry: Telemetry) -> None:
    """Remove leftovers every hour, until cancelled."""

    async def clean_up() -> None:
        await asyncio.to_thread(clear, env)

    await Rounds(telemetry, "leftovers", CLEANUP_INTERVAL_S).run(clean_up)


def _changed_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return float("inf")
