"""Operator commands of `moorage databases`, for databases of any organization."""

from __future__ import annotations

from pathlib import Path

from moorage.cli.operate.socket import ask
from moorage.cli.output.tables import show_json
from moorage.cli.output.terminal import say


def list_databases(data: Path | None, *, as_json: bool = False) -> None:
    """List all databases, including those in the trash."""
    rows = ask(data, "databases")
    if as_json:
        show_json(rows)
        return
    if not rows:
        say("there are no databases")
    for row in rows:
        deleted = f" (deleted {row['deletedAt']}; bring it back with: moorage databases undelete {row['id']})"
        reason = f": {row['reason']}" if row["reason"] else ""
        say(
            f"{row['id']}  {row['name']}  organization {row['organization']}  {row['software']}  "
            f"127.0.0.1:{row['port']}  {row['diskBytes'] // 2**20} MB  {row['status']}{reason}"
            + (deleted if row["deletedAt"] else "")
        )


def stop(number: int, data: Path | None) -> None:
    say(f"stopped {ask(data, 'stop-database', id=number)}")


def start(number: int, data: Path | None) -> None:
    say(f"started {ask(data, 'start-database', id=number)}")


def undelete(number: int, data: Path | None) -> None:
    say(f"{ask(data, 'undelete-database', id=number)} is restored and starts now")
