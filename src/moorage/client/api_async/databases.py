"""Routes of the group Databases. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.asynchronous import AsyncTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import Page


class AsyncDatabases:
    """Methods of the group Databases."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, page: int | None = None, page_size: int | None = None) -> Page[models.DatabaseListItem]:
        """List the organization's databases, newest first."""
        return await self._transport.call(
            Call("GET", "/v1/databases", query={"page": page, "pageSize": page_size}), Page[models.DatabaseListItem]
        )

    async def create(
        self,
        *,
        name: str,
        type: Literal["postgresql", "mysql"],
        version: str,
        instance_type: str,
        visibility: Literal["public", "private"] | UnsetType = UNSET,
        username: str | UnsetType = UNSET,
        db_name: str | UnsetType = UNSET,
        password: str | UnsetType = UNSET,
        region: str | UnsetType = UNSET,
        backup: Literal["enabled", "disabled"] | UnsetType = UNSET,
        architecture: Literal["standalone", "replicaset"] | UnsetType = UNSET,
        project_id: int | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.DatabaseDetail:
        """Create a database; it accepts connections once it is `running`.

        Usually that takes less than a second. With `projectId` the project's app gets the URL as the secret
        `DATABASE_URL`, and may connect to the database.
        """
        return await self._transport.call(
            Call(
                "POST",
                "/v1/databases",
                query={"wait": wait},
                body=models.CreateDatabaseInput(
                    name=name,
                    type=type,
                    version=version,
                    instance_type=instance_type,
                    visibility=visibility,
                    username=username,
                    db_name=db_name,
                    password=password,
                    region=region,
                    backup=backup,
                    architecture=architecture,
                    project_id=project_id,
                ),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.DatabaseDetail,
        )

    async def read(self, name: str) -> models.DatabaseDetail:
        """Return a database, without its password.

        `version` is the requested version, `engineVersion` the running one, and `engineNote` explains a
        difference.
        """
        return await self._transport.call(Call("GET", f"/v1/databases/{path_part(name)}"), models.DatabaseDetail)

    async def delete(self, name: str, *, wait: int | None = None, idempotency_key: str | None = None) -> models.Deleted:
        """Delete a database; the operator can restore its data and backups for days."""
        return await self._transport.call(
            Call(
                "DELETE",
                f"/v1/databases/{path_part(name)}",
                query={"wait": wait},
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.Deleted,
        )

    async def read_connection_strings(self, name: str) -> models.DatabaseConnectionStrings:
        """Return the URLs of a database, with stars for the password.

        A public database offers TLS; `caCertificate` verifies its certificate.
        """
        return await self._transport.call(
            Call("GET", f"/v1/databases/{path_part(name)}/connection-strings"), models.DatabaseConnectionStrings
        )

    async def read_password(self, name: str) -> models.DatabaseCredentials:
        """Return the password of a database, and record the caller in the activity feed."""
        return await self._transport.call(
            Call("GET", f"/v1/databases/{path_part(name)}/password"), models.DatabaseCredentials
        )

    async def list_extensions(self, name: str) -> models.DatabaseExtensions:
        """List the extensions of a running PostgreSQL database, by name.

        `CREATE EXTENSION` works for those with `available`; `reason` says why not for the others.
        `installedVersion` is null until it is created. MySQL has no extensions: `items` is empty.
        """
        return await self._transport.call(
            Call("GET", f"/v1/databases/{path_part(name)}/extensions"), models.DatabaseExtensions
        )

    async def rotate_password(
        self, name: str, *, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.Done:
        """Set a new random password, and update the URL of a linked project.

        The database is `updating` until the new password is valid. Open connections stay open.
        """
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/databases/{path_part(name)}/rotate-password",
                query={"wait": wait},
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.Done,
        )

    async def change_tier(
        self,
        name: str,
        *,
        instance_type: str,
        expected_current_tier: str | UnsetType = UNSET,
        confirm_downgrade_to_free: bool | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.DatabaseDetail:
        """Change the tier of a database and restart it; keeps its tier on failure."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/databases/{path_part(name)}/change-tier",
                query={"wait": wait},
                body=models.ChangeTierInput(
                    instance_type=instance_type,
                    expected_current_tier=expected_current_tier,
                    confirm_downgrade_to_free=confirm_downgrade_to_free,
                ),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.DatabaseDetail,
        )

    async def upgrade(
        self,
        name: str,
        *,
        instance_type: str,
        expected_current_tier: str | UnsetType = UNSET,
        confirm_downgrade_to_free: bool | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.DatabaseDetail:
        """Change the tier of a database: the former name of `change-tier`."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/databases/{path_part(name)}/upgrade",
                query={"wait": wait},
                body=models.ChangeTierInput(
                    instance_type=instance_type,
                    expected_current_tier=expected_current_tier,
                    confirm_downgrade_to_free=confirm_downgrade_to_free,
                ),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.DatabaseDetail,
        )

    async def list_backups(self, name: str) -> models.DatabaseBackups:
        """Return the backup policy of a database, and its backups, newest first.

        `config` is null while backups are disabled. A backup is `completed` once the stored file was read
        back and checked; `verifiedAt` is the time of its last restore test.
        """
        return await self._transport.call(
            Call("GET", f"/v1/databases/{path_part(name)}/backups"), models.DatabaseBackups
        )

    async def make_backup(
        self, name: str, *, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.BackupItem:
        """Create a backup now; it is `running` until the stored file was checked."""
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/databases/{path_part(name)}/backups",
                query={"wait": wait},
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.BackupItem,
        )

    async def update_backups(
        self,
        name: str,
        *,
        enabled: bool | UnsetType = UNSET,
        method: Literal["logical", "physical"] | UnsetType = UNSET,
        cron_expression: str | UnsetType = UNSET,
        retention_period: str | UnsetType = UNSET,
        backups_to_keep: int | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.DatabaseBackups:
        """Change the schedule, method and retention of backups.

        With the method `physical` the server's log is stored too, so that any point in time can be
        restored. Switching this on or off restarts the server: the database is `updating` for a moment.
        """
        return await self._transport.call(
            Call(
                "PATCH",
                f"/v1/databases/{path_part(name)}/backups",
                query={"wait": wait},
                body=models.UpdateBackupsInput(
                    enabled=enabled,
                    method=method,
                    cron_expression=cron_expression,
                    retention_period=retention_period,
                    backups_to_keep=backups_to_keep,
                ),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.DatabaseBackups,
        )

    async def restore(
        self,
        name: str,
        *,
        backup_name: str,
        confirm: bool | UnsetType = UNSET,
        target_time: str | UnsetType = UNSET,
        wait: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.Done:
        """Replace the data of a database with a backup.

        The database stays available while the backup is loaded and checked, then it is down for about a
        second. A safety backup of the current data is created first. On an error the database is unchanged,
        and `statusReason` has the reason. With `targetTime` and a physical backup any later point in time
        can be restored.
        """
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/databases/{path_part(name)}/restore",
                query={"wait": wait},
                body=models.RestoreDatabaseInput(backup_name=backup_name, confirm=confirm, target_time=target_time),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.Done,
        )

    async def read_metrics(self, name: str) -> models.DatabaseMetrics:
        """Return the current CPU and memory usage of a database's servers.

        Usage is measured every 15 seconds. `cpuMilli` covers the time since the previous measurement,
        `memoryMiB` counts shared memory once; if the last measurement is older than a minute both are null
        and `available` is false. `containers` lists the server, named after its engine, and the replica of
        a replica set.
        """
        return await self._transport.call(
            Call("GET", f"/v1/databases/{path_part(name)}/metrics"), models.DatabaseMetrics
        )

    async def read_metrics_summary(
        self, name: str, *, range: Literal["1h", "24h", "7d", "30d"] | None = None
    ) -> models.DatabaseEngineMetricsSummary:
        """Return engine metrics: current `connections`, `qps` and `cacheHitPct`.

        `qps` and `cacheHitPct` are averages over `range`: `1h`, `24h`, `7d` or `30d`. Fields without data
        are null, and `cacheHitPct` without reads. A cache miss of PostgreSQL may still be a hit in the
        operating system's cache.
        """
        return await self._transport.call(
            Call("GET", f"/v1/databases/{path_part(name)}/metrics/summary", query={"range": range}),
            models.DatabaseEngineMetricsSummary,
        )

    async def read_metrics_timeseries(
        self, name: str, *, range: Literal["1h", "24h", "7d", "30d"] | None = None
    ) -> models.DatabaseEngineMetricsTimeseries:
        """Return engine metrics and usage of a database over time.

        A point covers the time from `t` on: one minute (`1h`), five (`24h`), one hour (`7d`) or four
        (`30d`). The last point is the current one; a null is a missing sample. `cpuMilli` and `memoryMiB`
        are averages over all servers of the database, `diskMiB` is the largest value.
        """
        return await self._transport.call(
            Call("GET", f"/v1/databases/{path_part(name)}/metrics/timeseries", query={"range": range}),
            models.DatabaseEngineMetricsTimeseries,
        )

    async def query(
        self, name: str, *, sql: str, write: bool | UnsetType = UNSET, idempotency_key: str | None = None
    ) -> models.DatabaseQueryResult:
        r"""Run one SQL statement on a running database, and record it in the activity feed.

        The statement can only read, unless an admin sends `write`. It ends after 10 seconds, and the answer
        has at most 1,000 rows and 4 MB: `truncated` says that there are more. `rowCount` counts the rows of
        the answer, or the rows that a statement without a result changed. Values are null, text, or as
        `format` says: `number`, `boolean`, `json`, `hex` (text with the prefix `\x`) or `datetime` (ISO
        8601). Large integers and decimals are text. An error of the server is a `bad_request` with its
        message in `fields.sql`, and `fields.position`, the place in the statement, if the server names one.
        """
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/databases/{path_part(name)}/query",
                body=models.DatabaseQueryInput(sql=sql, write=write),
                key=idempotency_key,
            ),
            models.DatabaseQueryResult,
        )

    async def list_tables(self, name: str) -> models.DatabaseTables:
        """List the tables and views of a running database, by schema and name, 5,000 at most.

        `rowEstimate` is the server's estimate, and `sizeBytes` includes indexes. Both are null for views.
        """
        return await self._transport.call(Call("GET", f"/v1/databases/{path_part(name)}/tables"), models.DatabaseTables)

    async def read_table(self, name: str, schema: str, table: str) -> models.DatabaseTableDetail:
        """Return the columns and indexes of a table or view.

        `selectSql` is a statement for `POST /v1/databases/{name}/query` that reads its first 100 rows.
        """
        return await self._transport.call(
            Call("GET", f"/v1/databases/{path_part(name)}/tables/{path_part(schema)}/{path_part(table)}"),
            models.DatabaseTableDetail,
        )

    def iterate(self, *, page_size: int | None = None) -> AsyncIterator[models.DatabaseListItem]:
        """Iterate over the items of all pages of `list`."""
        return self._transport.iterate_pages(lambda page: self.list(page_size=page_size, page=page))
