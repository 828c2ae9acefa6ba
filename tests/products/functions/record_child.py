"""A process that records a spool folder into a database, for a test to kill."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.products.functions.spool_writer import make_recorder

from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.db.store import Database
from moorage.core.env import Env
from moorage.core.kit.clock import ManualClock
from moorage.core.kit.crypto import KeyRing
from moorage.settings import load


def open_store(place: str) -> Database:
    env = Env.make(load(), ManualClock(), KeyRing((b"k" * 31 + b"1",)), b"s" * 32)
    if place.startswith("postgresql:"):
        from moorage.core.db.postgres import PostgresDatabase

        return PostgresDatabase(place, env, connections=2)
    return SqliteDatabase(Path(place), env)


async def live(place: str, folder: Path) -> None:
    recorder = make_recorder(open_store(place), folder)
    print("recording", flush=True)
    await recorder.run()


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2])))
