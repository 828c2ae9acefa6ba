"""State of a store after the faults, read from its file with SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

SHOWN = 10
# Grouped before they are joined: joining first would compare every organization with every job.
_WELCOMES = """
    SELECT o.name, coalesce(n.times, 0) FROM organization o
    LEFT JOIN (SELECT org_id, count(*) AS times FROM notification WHERE kind = 'organization.welcome' GROUP BY org_id) n
    ON n.org_id = o.id WHERE n.times IS NOT 1
"""
_JOBS_OF_ORGS = """
    SELECT o.name, coalesce(j.times, 0) FROM organization o
    LEFT JOIN (SELECT json_extract(payload, '$.org_id') AS org_id, count(*) AS times FROM job
               WHERE kind = 'identity.welcome_organization' GROUP BY 1) j
    ON j.org_id = o.id WHERE j.times IS NOT 1
"""
_OWNERS = """
    SELECT o.name, count(m.id) FROM organization o LEFT JOIN membership m ON m.org_id = o.id
    GROUP BY o.id HAVING count(m.id) <> 1
"""
_KEYS = """
    SELECT actor || ' ' || key, count(*) FROM idempotency_key GROUP BY org_id, actor, route, key HAVING count(*) <> 1
"""
_REPEATED = "SELECT name, count(*) FROM organization WHERE name LIKE 'Harbor %' GROUP BY name HAVING count(*) <> 1"


@dataclass(frozen=True)
class Evidence:
    violations: list[str]
    present_unacknowledged: int
    jobs: int
    most_attempts: int


@contextmanager
def reading(store: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=10)) as connection:
        yield connection


def unfinished_jobs(store: Path) -> int:
    with reading(store) as connection:
        row = connection.execute("SELECT count(*) FROM job WHERE status IN ('queued', 'running')").fetchone()
    return int(row[0])


def examine(store: Path, acknowledged: dict[str, str], unanswered: set[str]) -> Evidence:
    """Check every promise against the store. `acknowledged` maps names to the ids that the clients were told."""
    with reading(store) as connection:
        stored = dict(connection.execute("SELECT name, CAST(id AS TEXT) FROM organization"))
        jobs, most = connection.execute("SELECT count(*), coalesce(max(attempts), 0) FROM job").fetchone()
        violations = [
            *_lost(stored, acknowledged),
            *_odd(connection, _REPEATED, "{0} exists {1} times"),
            *_odd(connection, _KEYS, "idempotency key {0} is stored {1} times"),
            *_odd(connection, _OWNERS, "{0} has {1} members"),
            *_odd(connection, _JOBS_OF_ORGS, "{0} has {1} welcome jobs"),
            *_odd(connection, _WELCOMES, "{0} was welcomed {1} times"),
            *_odd(
                connection,
                "SELECT status, count(*), max(last_error) FROM job WHERE status <> 'done' GROUP BY status",
                "{1} jobs are {0}: {2}",
            ),
            *_damage(connection),
        ]
    return Evidence(violations, sum(1 for name in unanswered if name in stored), jobs, most)


def _lost(stored: dict[str, str], acknowledged: dict[str, str]) -> list[str]:
    lost = [
        f"{name} was acknowledged as {told} but is {stored.get(name, 'missing')}"
        for name, told in acknowledged.items()
        if stored.get(name) != told
    ]
    return lost[:SHOWN] + ([f"… and {len(lost) - SHOWN} more were lost"] if len(lost) > SHOWN else [])


def _odd(connection: sqlite3.Connection, query: str, text: str) -> list[str]:
    return [text.format(*row) for row in connection.execute(query).fetchmany(SHOWN)]


def _damage(connection: sqlite3.Connection) -> list[str]:
    problem = connection.execute("PRAGMA integrity_check").fetchone()[0]
    return [] if problem == "ok" else [f"the store is damaged: {problem}"]
