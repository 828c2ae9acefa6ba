"""The operator's socket: commands over a unix socket in the data folder.

The socket has mode 0600, so only processes of the platform's user can connect; that is the authentication. One request
per connection: one JSON line in each direction.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from moorage.accounts.identity import users
from moorage.accounts.identity.operators import commands as operator
from moorage.accounts.identity.operators import role as operator_role
from moorage.accounts.identity.sessions import service as session_list
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.identity.users import User
from moorage.accounts.operator import machines
from moorage.core.audit import service as audit
from moorage.core.db import snapshots
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import MoorageError
from moorage.products.databases import operator as databases
from moorage.products.repositories.github import bindings
from moorage.settings import Settings

LINE_LIMIT = 2**16
Command = Callable[[dict[str, Any]], Awaitable[Any]]


def socket_path(settings: Settings) -> Path:
    return settings.folder("run") / "admin.sock"


@dataclass
class AdminServer:
    db: Database
    sessions: Sessions

    async def run(self) -> None:
        """Serve until cancelled."""
        path = socket_path(self.db.env.settings)
        if _is_served(path):
            # With PostgreSQL several processes may share a data folder; one of them serves the operator.
            await asyncio.Event().wait()
        path.unlink(missing_ok=True)
        previous_mask = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(self._serve, path=path, limit=LINE_LIMIT)
        finally:
            os.umask(previous_mask)
        try:
            async with server:
                await server.serve_forever()
        finally:
            path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError, ValueError):
                request = json.loads(await reader.readline())
                writer.write(json.dumps(await self.answer(request)).encode() + b"\n")
                await writer.drain()
        finally:
            writer.close()

    async def answer(self, request: Any) -> dict[str, Any]:
        if not isinstance(request, dict) or not isinstance(request.get("arguments") or {}, dict):
            return {"ok": False, "error": "a request must be an object with `command` and `arguments`"}
        command = self.commands().get(str(request.get("command")))
        if command is None:
            return {"ok": False, "error": f"there is no command {request.get('command')!r}"}
        try:
            return {"ok": True, "result": await command(request.get("arguments") or {})}
        except (MoorageError, CannotDecrypt, OSError, sqlite3.Error) as error:
            return {"ok": False, "error": str(error)}
        except KeyError as error:
            return {"ok": False, "error": f"the argument {error} is missing"}

    def commands(self) -> dict[str, Command]:
        return {
            "create-user": self._write(_create_user),
            **self._account_commands(),
            "token": self._write(_token),
            "databases": self._write(lambda tx, arguments: databases.list_all(tx)),
            "stop-database": self._write(lambda tx, arguments: databases.stop(tx, arguments["id"])),
            "start-database": self._write(lambda tx, arguments: databases.start(tx, arguments["id"])),
            "undelete-database": self._write(lambda tx, arguments: databases.undelete(tx, arguments["id"])),
            "machines": self._write(lambda tx, arguments: [_machine(each) for each in machines.list_all(tx)]),
            "drain-machine": self._write(_drain_machine),
            "remove-machine": self._write(_remove_machine),
            "github-claims": self._write(lambda tx, arguments: bindings.list_claims(tx)),
            "session": self._session,
            "rotate-keys": self._rotate,
            "verify-audit": self._verify_audit,
            "snapshot": self._snapshot,
        }

    def _account_commands(self) -> dict[str, Command]:
        def on_user(change: Callable[[Tx, User], object]) -> Command:
            def unit(tx: Tx, arguments: dict[str, Any]) -> str:
                user = operator.get_user(tx, arguments["email"])
                change(tx, user)
                return user.email

            return self._write(unit)

        def on_org(change: Callable[[Tx, int], str]) -> Command:
            return self._write(lambda tx, arguments: change(tx, operator.get_org(tx, arguments["org"]).id))

        return {
            "approve": on_user(operator.approve),
            "suspend": on_user(lambda tx, user: operator.suspend(tx, user, suspended=True)),
            "unsuspend": on_user(lambda tx, user: operator.suspend(tx, user, suspended=False)),
            "grant-operator": on_user(operator_role.grant),
            "revoke-operator": on_user(operator_role.revoke),
            "operators": self._write(lambda tx, arguments: [user.email for user in users.all_operators(tx)]),
            "suspend-organization": on_org(lambda tx, org: operator.suspend_organization(tx, org, suspended=True)),
            "unsuspend-organization": on_org(lambda tx, org: operator.suspend_organization(tx, org, suspended=False)),
            "verify-card": on_org(lambda tx, org: operator.set_card(tx, org, verified=True)),
            "unverify-card": on_org(lambda tx, org: operator.set_card(tx, org, verified=False)),
            "set-plan": self._write(_set_plan),
        }

    def _write(self, unit: Callable[[Tx, dict[str, Any]], Any]) -> Command:
        async def run(arguments: dict[str, Any]) -> Any:
            return await self.db.write(lambda tx: unit(tx, arguments))

        return run

    async def _session(self, arguments: dict[str, Any]) -> str:
        def unit(tx: Tx) -> str:
            user = operator.get_user(tx, arguments["email"])
            return session_list.log_in(tx, self.sessions, user.id, device="moorage admin")

        return await self.db.write(unit)

    async def _rotate(self, _arguments: dict[str, Any]) -> int:
        return await rotate(self.db)

    async def _verify_audit(self, _arguments: dict[str, Any]) -> dict[str, Any]:
        return await verify_audit(self.db)

    async def _snapshot(self, _arguments: dict[str, Any]) -> str:
        """Copy the store under a fixed name, so that backups displace no nightly snapshot."""
        return str(await asyncio.to_thread(snapshots.copy_store, self.db.env.settings, "backup"))


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(path))
        except OSError:
            return False
    return True


async def rotate(db: Database) -> int:
    """Re-encrypt all secrets under the current key; return the number changed."""
    total, after = 0, 0
    while True:
        after, changed = await db.write(lambda tx: vault.rotate_some(tx, after))  # noqa: B023 - awaited at once
        total += changed
        if not after:
            return total


async def verify_audit(db: Database) -> dict[str, Any]:
    """Verify the audit chain of every organization."""
    rows, broken = 0, []
    for org_id in await db.read(audit.organizations):
        holds, problem = await db.read(lambda tx: audit.verify(tx, org_id))  # noqa: B023 - awaited at once
        rows += holds
        if problem is not None:
            broken.append({"organization": problem.org_id, "row": problem.seq, "why": problem.why})
    return {"rows": rows, "broken": broken}


def _create_user(tx: Tx, arguments: dict[str, Any]) -> dict[str, Any]:
    user, org_id = operator.create_user(tx, arguments["email"])
    return {"userId": user.id, "email": user.email, "organizationId": str(org_id)}


def _set_plan(tx: Tx, arguments: dict[str, Any]) -> str:
    plan = arguments["plan"]
    return operator.set_plan(tx, operator.get_org(tx, arguments["org"]).id, plan)


def _machine(seen: machines.SeenMachine) -> dict[str, Any]:
    row = seen.row
    return {
        "name": seen.facts.name,
        "status": seen.status,
        "isThis": seen.is_this,
        "address": row.address if row is not None else None,
        "labels": json.loads(row.labels) if row is not None else {},
        "cpuCount": seen.facts.cpu_count,
        "memoryMb": seen.facts.memory_bytes // 2**20,
        "load": round(seen.facts.load[0], 2),
        "heartbeatAgeMs": seen.age_ms,
        "resources": dict(seen.resources),
        "movable": seen.movable,
        "hasTarget": seen.has_target,
        "stateful": list(seen.stateful),
    }


def _drain_machine(tx: Tx, arguments: dict[str, Any]) -> dict[str, Any]:
    return _machine(machines.set_draining(tx, arguments["name"], draining=not arguments.get("undo")))


def _remove_machine(tx: Tx, arguments: dict[str, Any]) -> None:
    machines.remove(tx, arguments["name"], is_lost=bool(arguments.get("lost")))


def _token(tx: Tx, arguments: dict[str, Any]) -> str:
    name = arguments.get("name") or "operator"
    return operator.make_token(tx, arguments.get("email"), arguments.get("org"), arguments.get("role"), name)
