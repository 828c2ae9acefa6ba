"""Stores for the benchmarks: the product's own, opened as the product opens them, with users who hold API tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.operators import commands as operator
from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.roles import Role
from moorage.core.db.snapshots import store_path
from moorage.core.db.sqlite import MAX_GROUP_UNITS, SqliteDatabase
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.platform import opening
from moorage.settings import Settings

UNLIMITED = 1_000_000_000
SEATS_A_UNIT = 16


@dataclass(frozen=True)
class Seat:
    """A user with an organization and an API token of the owner role."""

    caller: Caller
    token: str


def settings_for(folder: Path, **given: Any) -> Settings:
    values = {"data": folder, "rate_limit": UNLIMITED, **given}
    return Settings(_env_file=None, **values)


async def open_seated(
    folder: Path, seats: int, *, group: int = MAX_GROUP_UNITS, **given: Any
) -> tuple[SqliteDatabase, list[Seat]]:
    """Make a store in a folder, migrated and ready to serve, with so many seats."""
    settings = settings_for(folder, **given)
    opening.open_store(settings).close()
    db = SqliteDatabase(store_path(settings), opening.make_env(settings), group=group)
    await db.write(opening.prepare)
    return db, await take_seats(db, seats)


async def take_seats(db: Database, count: int) -> list[Seat]:
    seats: list[Seat] = []
    for first in range(0, count, SEATS_A_UNIT):
        numbers = range(first, min(first + SEATS_A_UNIT, count))
        seats += await db.write(lambda tx: [_seat(tx, number) for number in numbers])  # noqa: B023 - awaited at once
    return seats


def _seat(tx: Tx, number: int) -> Seat:
    email = f"user{number}@bench.example"
    user, org_id = operator.create_user(tx, email)
    token = operator.make_token(tx, email, None, None, "bench")
    role = Role(members.get(tx, org_id, user.id).role)
    return Seat(Caller(user.id, user.email, user.name, None, org_id, role, None), token)
