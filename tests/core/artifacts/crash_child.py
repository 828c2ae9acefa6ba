"""A process that stores, dereferences and collects without a pause, for a test to kill.

Each round puts new content and the last round's content again while a collection runs, and prints a line when done.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

from moorage.core.artifacts import service
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.env import Env
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.core.kit.crypto import KeyRing
from moorage.settings import load

ORG = 1


def content_of(number: int) -> bytes:
    return f"round {number}".encode() * 1000


async def live(db: SqliteDatabase, clock: ManualClock, first: int) -> None:
    artifacts = ArtifactStore(db)
    number = first
    while True:
        await asyncio.gather(
            artifacts.put_bytes(ORG, content_of(number), owner=f"round:{number}"),
            artifacts.put_bytes(ORG, content_of(number - 1), owner=f"again:{number}"),
            artifacts.collect(),
        )
        await db.write(partial(service.unrefer, org_id=ORG, owner=f"round:{number - 1}"))
        await db.write(partial(service.unrefer, org_id=ORG, owner=f"again:{number - 1}"))
        clock.advance(DAY_MS + 1)
        print(number, flush=True)
        number += 1


def main() -> None:
    store, first, now_ms = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    clock = ManualClock(now_ms)
    db = SqliteDatabase(store, Env.make(load(), clock, KeyRing((b"k" * 31 + b"1",)), b"s" * 32))
    asyncio.run(live(db, clock, first))


if __name__ == "__main__":
    main()
