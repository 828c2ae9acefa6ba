"""Records for tests, and a process that writes records until it is killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select

from moorage.core.db.query import Query, arg, scalar
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.telemetry import Telemetry
from moorage.products.functions.logs import log_text, loglines
from moorage.products.functions.logs.log_files import FunctionLogs, LogLimits
from moorage.products.functions.logs.loglines import Texts
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.recorder import Recorder
from moorage.products.functions.records.tables import Invocation, function_minute, invocation, spool_file
from moorage.products.functions.tables import function
from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import END, STDERR, STDOUT, WEB, SpoolWriter

SMALL_FILE = 64 * 2**10
NOON = 1_767_225_600_000  # time of the tests' clock
_COLUMNS = ("org_id", "name", "runtime", "timeout_ms", "memory_mb", "network", "raw_http", "own_options",
            "current_version", "last_version", "revision", "created_at", "updated_at")  # fmt: skip
_ADD: Query[int] = Query(insert(function).returning(function.c.id), scalar, sets=_COLUMNS)


def activation(number: int) -> str:
    return f"{number:032x}"


def record(number: int = 1, function_id: int = 1, **changes: Any) -> bytes:
    """Return a record of a numbered call; the number is also its duration in microseconds."""
    fields: dict[str, Any] = {
        "kind": END,
        "door": WEB,
        "ok": True,
        "cold": False,
        "function_id": function_id,
        "org_id": 1,
        "version": 3,
        "memory_mb": 128,
        "started_ms": NOON,
        "duration_us": number,
        "wait_us": 40,
        "schedule_id": 0,
        "activation": activation(number).encode(),
        **changes,
    }
    log: bytes = fields.pop("log", b"")
    return spool.encode(**fields, log_bytes=len(log)) + log


def log(*lines: str, at_ms: int = NOON) -> bytes:
    """Return a log block; a line that starts with `!` is of standard error."""
    return b"".join(
        spool.log_entry(STDERR if line.startswith("!") else STDOUT, at_ms, line.encode() + b"\n") for line in lines
    )


@contextmanager
def writing(folder: Path, capacity: int = SMALL_FILE) -> Iterator[SpoolWriter]:
    writer = SpoolWriter(folder, capacity)
    yield writer
    writer.close()


def write(folder: Path, *records: bytes) -> None:
    """Write records like an edge that exits afterwards."""
    with writing(folder) as writer:
        for each in records:
            writer.append(each)


def make_logs(spool_folder: Path, function_mb: int = 100, org_mb: int = 1024, reserve_mb: int = 0) -> FunctionLogs:
    """Return the log files of the machine that owns a spool folder."""
    limits = LogLimits(function_mb * spool.MB, org_mb * spool.MB, reserve_mb * spool.MB)
    return FunctionLogs(spool_folder.with_name(f"{spool_folder.name}-logs"), limits)


def make_recorder(db: Database, folder: Path, logs: FunctionLogs | None = None) -> Recorder:
    return Recorder(db, Telemetry(quiet=True), folder, logs or make_logs(folder))


async def texts(db: Database, logs: FunctionLogs, **where: int) -> list[Texts]:
    """Return the output of each invocation, in order of insertion."""
    found = []
    for row in await invocations(db, **where):
        find = partial(_find, org_id=row["org_id"], row_id=row["id"])
        found.append(await db.read(find))
    return [loglines.texts_of(log_text.block_of(logs, row, row.small_logs)) for row in found]


def _find(tx: Tx, org_id: int, row_id: int) -> Invocation:
    return tx.one(records.FIND, org_id=org_id, id=row_id)


async def make_function(db: Database, org_id: int = 1, name: str = "hello") -> int:
    values = {
        **dict.fromkeys(_COLUMNS, 1),
        "org_id": org_id,
        "name": name,
        "runtime": "python:3.11",
        "network": "internet",
        "raw_http": False,
        "own_options": False,
    }
    return await db.write(lambda tx: tx.one(_ADD, **values))


async def rows(db: Database, table: Any, **where: int) -> list[dict[str, Any]]:
    """Return all rows of a table, or those with these values, in order of insertion."""
    names = [column.name for column in table.c]

    def unit(tx: Tx) -> list[dict[str, Any]]:
        found = tx.all(_reading(table, *where), **where)
        return [dict(zip(names, row, strict=True)) for row in found]

    return await db.read(unit)


@cache
def _reading(table: Any, *columns: str) -> Query[tuple[Any, ...]]:
    chosen = [table.c[name] == arg(name) for name in columns]
    return Query(select(table).where(*chosen).order_by(table.c.id), lambda *row: row)


async def invocations(db: Database, **where: int) -> list[dict[str, Any]]:
    return await rows(db, invocation, **where)


async def minutes(db: Database, **where: int) -> list[dict[str, Any]]:
    return await rows(db, function_minute, **where)


async def spool_files(db: Database) -> list[dict[str, Any]]:
    return await rows(db, spool_file)


def main() -> None:
    """Write numbered records of a function; print each number after its record is written."""
    folder, function_id = Path(sys.argv[1]), int(sys.argv[2])
    writer = SpoolWriter(folder, SMALL_FILE)
    for number in range(10_000_000):
        writer.append(record(number, function_id, log=log(f"call {number}") * (number % 3)))
        print(number, flush=True)


if __name__ == "__main__":
    main()
