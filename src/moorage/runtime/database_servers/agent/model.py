"""Data that the platform and an agent exchange."""

from __future__ import annotations

import msgspec

from moorage.runtime.database_servers.ports import ServerOptions

PORT = 9443  # of the agent, in its pod
VARIABLE = "MOORAGE_DATABASE_AGENT"  # environment variable with the configuration as JSON
ROOT = "/data"  # mount point of the volume


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of one agent, in the immutable Secret of its workload."""

    database_id: int
    type: str  # `postgresql` or `mysql`
    software: str  # such as postgresql-16.4
    folder: str  # of the server on the volume, such as s1
    options: ServerOptions
    name: str  # of the agent in its certificate
    authority: str  # PEM: certificate of the authority that signed both sides
    certificate: str
    key: str


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a call that failed."""

    kind: str  # `server`, `statement` or `bug`
    message: str
    state: str | None = None  # of StatementFailed
    position: int | None = None
