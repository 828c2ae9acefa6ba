"""Durable creates at 64 clients: a row and its job in one transaction, with group commit."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import uvloop

from bench import load, servers, stores
from bench.figures import Figure, median, percentile, ratio_at_least
from bench.machine import CLIENT_CORE, on_core
from bench.servers import MOORAGE, SINGLE, Serving
from bench.stores import Seat
from moorage.accounts.identity import notifications
from moorage.accounts.identity.organizations import routes as org_routes
from moorage.accounts.identity.organizations.service import WelcomeOrganization
from moorage.accounts.identity.schemas import OrganizationInput
from moorage.core import jobs
from moorage.core.db.sqlite import MAX_GROUP_UNITS, SqliteDatabase
from moorage.core.db.tx import Tx

T = TypeVar("T")
MakeUnit = Callable[[Seat, int], Callable[[Tx], object]]  # (owner, number of earlier units)

BAR = ratio_at_least(3)


@dataclass(frozen=True)
class Sizes:
    rounds: int
    seconds: float  # of one load
    most: int  # creates of one load
    clients: int
    fsyncs: int  # of one round


FULL = Sizes(rounds=5, seconds=1.0, most=20_000, clients=64, fsyncs=40)
TINY = Sizes(rounds=1, seconds=1.0, most=16, clients=4, fsyncs=4)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    fsyncs: list[float] = []  # The cost of a sync varies from second to second, so every round measures it.
    grouped, single = uvloop.run(_at_the_store(folder / "plain", sizes, fsyncs, _row_and_job))
    whole, whole_single = uvloop.run(_at_the_store(folder / "whole", sizes, fsyncs, _organization))
    served, served_single = _over_http(folder, sizes, fsyncs)
    name = f"create at {sizes.clients} clients"
    return [
        Figure(f"{name}: a row and its job", median(grouped), "/s", median(single), "one commit each", BAR),
        Figure(f"{name}: an organization (12 rows)", median(whole), "/s", median(whole_single), "one commit each"),
        Figure(f"{name}: POST /v1/orgs", median(served), "/s", median(served_single), "one commit each"),
        Figure("create: plain fsync, p50", median(fsyncs), "ms"),
        Figure("create: plain fsync, p95", percentile(fsyncs, 0.95), "ms"),
    ]


def _fsync_ms(folder: Path, count: int) -> list[float]:
    """Append and sync one page at a time, as a commit does: this disk's cost of durability."""
    taken = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(count):
            started = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            taken.append((time.perf_counter() - started) * 1000)
    return taken


async def _at_the_store(
    folder: Path, sizes: Sizes, fsyncs: list[float], make: MakeUnit
) -> tuple[list[float], list[float]]:
    """Return creates a second with groups and without, round by round in turn."""
    folder.mkdir()
    rates: dict[int, list[float]] = {MAX_GROUP_UNITS: [], 1: []}
    opened = {group: await stores.open_seated(folder / f"store-{group}", _seats(sizes), group=group) for group in rates}
    try:
        for number in range(sizes.rounds + 1):
            fsyncs += _fsync_ms(folder, sizes.fsyncs)
            for group, (db, seats) in opened.items():
                rate = await _write_from_many(db, _of_round(seats, number, sizes), sizes, make)
                if number:  # The first round only warms up.
                    rates[group].append(rate)
    finally:
        for db, _ in opened.values():
            db.close()
    return rates[MAX_GROUP_UNITS], rates[1]


async def _write_from_many(db: SqliteDatabase, seats: Sequence[Seat], sizes: Sizes, make: MakeUnit) -> float:
    started = time.perf_counter()
    ends_at = started + sizes.seconds
    written = 0

    async def client(seat: Seat) -> None:
        nonlocal written
        count = 0
        while written < sizes.most and time.perf_counter() < ends_at:
            await db.write(make(seat, count))
            count += 1
            written += 1

    await asyncio.gather(*(client(seat) for seat in seats))
    return written / (time.perf_counter() - started)


def _row_and_job(seat: Seat, count: int) -> Callable[[Tx], object]:
    """The least that a create can be: one row, and the job that acts on it."""
    user_id = seat.caller.user_id

    def unit(tx: Tx) -> None:
        notifications.add(tx, user_id, "bench", "A row", "and its job", about=str(count))
        jobs.add(tx, WelcomeOrganization(count, user_id))

    return unit


def _organization(seat: Seat, count: int) -> Callable[[Tx], object]:
    """The unit of POST /v1/orgs: an organization with its owner, secrets, feed and job."""
    body = OrganizationInput(name=f"Harbor {seat.caller.user_id} {count}")
    return lambda tx: org_routes.create_org(tx, seat.caller, body)


def _over_http(folder: Path, sizes: Sizes, fsyncs: list[float]) -> tuple[list[float], list[float]]:
    with ExitStack() as stack:
        up = {
            kind: stack.enter_context(servers.serving(kind, folder / kind, seats=_seats(sizes)))
            for kind in (MOORAGE, SINGLE)
        }
        with on_core(CLIENT_CORE):
            rates = uvloop.run(_drive_both(folder, up, sizes, fsyncs))
    return rates[MOORAGE], rates[SINGLE]


async def _drive_both(
    folder: Path, up: dict[str, Serving], sizes: Sizes, fsyncs: list[float]
) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {kind: [] for kind in up}
    for number in range(sizes.rounds + 1):
        fsyncs += _fsync_ms(folder, sizes.fsyncs)
        for kind, server in up.items():
            rate = await _post_from_many(server, _of_round(server.tokens, number, sizes), sizes)
            if number:
                rates[kind].append(rate)
    return rates


async def _post_from_many(server: Serving, tokens: Sequence[str], sizes: Sizes) -> float:
    def make(client: int, sent: int) -> bytes:
        return load.post("/v1/orgs", tokens[client], {"name": f"Harbor {client} {sent}"})

    done = await load.drive(server.port, make, clients=sizes.clients, seconds=sizes.seconds, most=sizes.most)
    return done.rate


def _seats(sizes: Sizes) -> int:
    return sizes.clients * (sizes.rounds + 1)


def _of_round(seats: Sequence[T], number: int, sizes: Sizes) -> Sequence[T]:
    """Every round has users of its own, so that the organizations of earlier rounds weigh on none of them."""
    return seats[number * sizes.clients : (number + 1) * sizes.clients]
