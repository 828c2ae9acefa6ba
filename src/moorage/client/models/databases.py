"""Models of the group databases. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from moorage.client.model import List, Model


class DatabaseListItem(Model, kw_only=True):
    id: int
    name: str | None
    type: str
    version: str | None
    status: str | None
    visibility: str
    instance_type: str | None
    server_details: ServerDetails
    created_at: str | None


class ServerDetails(Model, kw_only=True):
    cpu: float
    memory: float
    disk: int


class DatabaseDetail(Model, kw_only=True):
    id: int
    name: str | None
    type: str
    version: str | None
    engine_version: str | None
    engine_exact: bool | None
    engine_note: str | None
    status: str | None
    status_reason: str | None
    visibility: str
    instance_type: str | None
    organization_id: str
    project_id: int | None
    region: str | None
    backup: str
    backups_to_keep: int | None
    architecture: str
    server_details: ServerDetails
    disk_used_bytes: int
    public_url: str | None
    private_url: str | None
    connection_details: ConnectionDetails
    last_verified_restore: str | None
    created_at: str | None
    updated_at: str | None


class ConnectionDetails(Model, kw_only=True):
    host: str | None
    port: int | None
    username: str
    database: str
    password_available: bool


class DatabaseConnectionStrings(Model, kw_only=True):
    public_url: str | None
    private_url: str | None
    ca_certificate: str | None


class DatabaseCredentials(Model, kw_only=True):
    password: str | None
    public_url: str | None
    private_url: str | None


class DatabaseExtensions(Model, kw_only=True):
    items: List[DatabaseExtension]


class DatabaseExtension(Model, kw_only=True):
    name: str
    description: str
    default_version: str | None
    installed_version: str | None
    available: bool
    reason: str | None


class Done(Model, kw_only=True):
    ok: bool
    status: str | None = None


class Deleted(Model, kw_only=True):
    async_: bool
    status: str | None = None


class DatabaseBackups(Model, kw_only=True):
    config: BackupConfig | None
    items: List[BackupItem]


class BackupConfig(Model, kw_only=True):
    enabled: bool
    method: str
    cron_expression: str
    retention_period: str
    backups_to_keep: int | None
    last_verified_restore: str | None


class BackupItem(Model, kw_only=True):
    name: str
    status: str
    method: str
    total_size: int | None
    started_at: str
    completed_at: str | None
    expires_at: str | None
    verified_at: str | None
    reason: str | None
    cause: str


class DatabaseMetrics(Model, kw_only=True):
    available: bool
    phase: str | None
    ready: bool
    restarts: int
    started_at: str | None
    cpu_milli: int | None
    memory_mi_b: float | None
    containers: List[DatabaseContainer]


class DatabaseContainer(Model, kw_only=True):
    name: str
    cpu_milli: int | None
    memory_mi_b: float | None


class DatabaseEngineMetricsSummary(Model, kw_only=True):
    range: str
    enabled: bool
    engine: str
    up: bool | None
    connections: int | None
    max_connections: int | None
    connections_pct: float | None
    qps: float | None
    cache_hit_pct: float | None


class DatabaseEngineMetricsTimeseries(Model, kw_only=True):
    range: str
    enabled: bool
    engine: str
    points: List[DatabaseEngineMetricsPoint]


class DatabaseEngineMetricsPoint(Model, kw_only=True):
    t: str
    connections: float | None
    qps: float | None
    cache_hit_pct: float | None
    cpu_milli: float | None
    memory_mi_b: float | None
    disk_mi_b: float | None


class DatabaseQueryResult(Model, kw_only=True):
    columns: List[DatabaseQueryColumn]
    rows: List[List[Any]]
    row_count: int
    truncated: bool
    duration_ms: int


class DatabaseQueryColumn(Model, kw_only=True):
    name: str
    type: str
    format: str


class DatabaseTables(Model, kw_only=True):
    items: List[DatabaseTable]
    truncated: bool


class DatabaseTable(Model, kw_only=True):
    schema: str
    name: str
    kind: str
    row_estimate: int | None
    size_bytes: int | None
    comment: str | None


class DatabaseTableDetail(Model, kw_only=True):
    schema: str
    name: str
    kind: str
    row_estimate: int | None
    size_bytes: int | None
    comment: str | None
    columns: List[DatabaseTableColumn]
    indexes: List[DatabaseTableIndex]
    select_sql: str


class DatabaseTableColumn(Model, kw_only=True):
    name: str
    type: str
    nullable: bool
    default: str | None
    primary_key: bool
    comment: str | None


class DatabaseTableIndex(Model, kw_only=True):
    name: str
    columns: List[str]
    unique: bool
    primary: bool
    method: str
    size_bytes: int | None


class CreateDatabaseInput(Model, kw_only=True):
    name: str
    type: Literal["postgresql", "mysql"]
    # PostgreSQL: `16.4.0`, `14.8.0`; MySQL: `8.4.2`, `5.7.44`.
    version: str
    # A tier's key.
    instance_type: str
    # Default: `public`; in a cluster `private`, which is all that there is.
    visibility: Literal["public", "private"] | msgspec.UnsetType = msgspec.UNSET
    username: str | msgspec.UnsetType = msgspec.UNSET
    db_name: str | msgspec.UnsetType = msgspec.UNSET
    password: str | msgspec.UnsetType = msgspec.UNSET
    region: str | msgspec.UnsetType = msgspec.UNSET
    backup: Literal["enabled", "disabled"] | msgspec.UnsetType = msgspec.UNSET
    architecture: Literal["standalone", "replicaset"] | msgspec.UnsetType = msgspec.UNSET
    # The project that gets its address as a secret.
    project_id: int | msgspec.UnsetType = msgspec.UNSET


class ChangeTierInput(Model, kw_only=True):
    # A tier's key.
    instance_type: str
    # Refuses the change where the tier is another one by now.
    expected_current_tier: str | msgspec.UnsetType = msgspec.UNSET
    confirm_downgrade_to_free: bool | msgspec.UnsetType = msgspec.UNSET


class UpdateBackupsInput(Model, kw_only=True):
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    # `physical` allows restores to any point in time.
    method: Literal["logical", "physical"] | msgspec.UnsetType = msgspec.UNSET
    # In UTC.
    cron_expression: str | msgspec.UnsetType = msgspec.UNSET
    # A number of days, such as `7d`.
    retention_period: str | msgspec.UnsetType = msgspec.UNSET
    backups_to_keep: int | msgspec.UnsetType = msgspec.UNSET


class RestoreDatabaseInput(Model, kw_only=True):
    backup_name: str
    confirm: bool | msgspec.UnsetType = msgspec.UNSET
    # The point in time to restore; needs a physical backup before it.
    target_time: str | msgspec.UnsetType = msgspec.UNSET


class DatabaseQueryInput(Model, kw_only=True):
    # One statement.
    sql: str
    # Run it in a read-write transaction; needs the admin role.
    write: bool | msgspec.UnsetType = msgspec.UNSET
