"""A server behind an agent, with the same protocols as one on this machine."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from moorage.runtime.database_servers.agent.client import AgentClient
from moorage.runtime.database_servers.kinds import kind_of
from moorage.runtime.database_servers.ports import (
    Access,
    Counters,
    Credentials,
    Extension,
    ServerFailed,
    ServerOptions,
    Software,
    StatisticsSession,
)
from moorage.runtime.database_servers.queries.model import Result, TableDetail, TableSummary, Watchdog

T = TypeVar("T")
ANSWER_TIMEOUT_S = 30.0  # of short calls


class RemoteKind:
    """ServerKind whose calls an agent runs. The folder of an Access is the name of a folder on the agent's volume."""

    def __init__(self, find_client: Callable[[], AgentClient], type_: str) -> None:
        self._find_client = find_client  # raises ServerFailed while there is none
        self._local = kind_of(type_)
        self.type: Literal["postgresql", "mysql"] = self._local.type
        self.stop_signal = self._local.stop_signal
        self.scheme = self._local.scheme

    @property
    def _client(self) -> AgentClient:
        return self._find_client()

    # Files: the agent has them.

    def fill(self, software: Software, folder: Path) -> None:
        raise ServerFailed("the agent fills folders")

    def configure(self, software: Software, folder: Path, options: ServerOptions, *, home: str, inside: str) -> None:
        raise ServerFailed("the agent configures servers")

    def argv(self, software: Software, options: ServerOptions, *, home: str, inside: str) -> list[str]:
        raise ServerFailed("the agent starts servers")

    def usable_connections(self, options: ServerOptions) -> int:
        return self._local.usable_connections(options)

    def is_filled(self, folder: Path) -> bool:
        return bool(self._client.call("has_folder", folder.name, returns=bool, timeout_s=ANSWER_TIMEOUT_S))

    # Connections to a running server.

    def ping(self, access: Access) -> bool:
        try:
            return bool(self._client.call("ping", access, returns=bool, timeout_s=ANSWER_TIMEOUT_S))
        except ServerFailed:
            return False

    def set_admin_password(self, software: Software, access: Access) -> None:
        self._client.call("set_admin_password", access)

    def provision(self, access: Access, credentials: Credentials, replica_password: str | None) -> None:
        self._client.call("provision", access, credentials, replica_password)

    def set_password(self, access: Access, credentials: Credentials) -> None:
        self._client.call("set_password", access, credentials)

    def set_read_only(self, access: Access, credentials: Credentials, on: bool) -> None:
        self._client.call("set_read_only", access, credentials, on)

    def end_sessions(self, access: Access) -> None:
        self._client.call("end_sessions", access, timeout_s=ANSWER_TIMEOUT_S)

    def version(self, access: Access) -> str:
        return str(self._client.call("version", access, returns=str))

    def session(self, access: Access) -> StatisticsSession:
        return _Session(self._client, access)

    def extensions(self, access: Access, credentials: Credentials) -> list[Extension]:
        found: list[Extension] = self._client.call("extensions", access, credentials, returns=list[Extension])
        return found

    # Dumps: made and loaded by the agent, checked here.

    def dump(self, software: Software, access: Access, credentials: Credentials, target: Path) -> None:
        name = f"dump-{secrets.token_hex(8)}"
        try:
            self._client.call("dump", access, credentials, name)
            self._client.download(name, target)
        finally:
            self._forget(name)

    def check(self, software: Software, dump: Path) -> int:
        return self._local.check(software, dump)

    def load(self, software: Software, access: Access, credentials: Credentials, dump: Path) -> None:
        name = f"load-{secrets.token_hex(8)}"
        try:
            self._client.upload(dump, name)
            self._client.call("load", access, credentials, name)
        finally:
            self._forget(name)

    def count_rows(self, access: Access, credentials: Credentials) -> dict[str, int]:
        found: dict[str, int] = self._client.call("count_rows", access, credentials, returns=dict[str, int])
        return found

    def _forget(self, name: str) -> None:
        try:
            self._client.call("remove_file", name, timeout_s=ANSWER_TIMEOUT_S)
        except ServerFailed:
            return  # The agent is away; the sweep of old files removes it.


class _Session:
    def __init__(self, client: AgentClient, access: Access) -> None:
        self._client, self._access = client, access

    def counters(self) -> Counters:
        found: Counters = self._client.call("counters", self._access, returns=Counters, timeout_s=ANSWER_TIMEOUT_S)
        return found

    def close(self) -> None:
        """The agent keeps the connection to its server."""


class RemoteQueries:
    """QueryRunner whose statements an agent runs."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client

    def run(self, access: Access, credentials: Credentials, sql: str, *, may_write: bool, watchdog: Watchdog) -> Result:
        found: Result = self._watched(
            watchdog,
            lambda call: self._client.call("run_statement", access, credentials, sql, may_write, call, returns=Result),
        )
        return found

    def tables(self, access: Access, credentials: Credentials, watchdog: Watchdog) -> list[TableSummary]:
        found: list[TableSummary] = self._watched(
            watchdog, lambda call: self._client.call("tables", access, credentials, call, returns=list[TableSummary])
        )
        return found

    def find_table(
        self, access: Access, credentials: Credentials, schema: str, name: str, watchdog: Watchdog
    ) -> TableDetail | None:
        found: TableDetail | None = self._watched(
            watchdog,
            lambda call: self._client.call(
                "find_table", access, credentials, schema, name, call, returns=TableDetail | None
            ),
        )
        return found

    def _watched(self, watchdog: Watchdog, run: Callable[[str], Any]) -> Any:
        """Run a statement that `watchdog` ends in the agent too."""
        call = secrets.token_hex(8)
        with watchdog.watch(lambda: self._client.call("cancel", call, timeout_s=ANSWER_TIMEOUT_S)):
            return run(call)
