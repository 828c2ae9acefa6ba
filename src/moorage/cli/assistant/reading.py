"""Tools that read: the state of everything, lists, single resources, monitors with incidents, and SQL that reads."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import Field

from moorage.cli.assistant.masking import NAMES
from moorage.cli.assistant.queries import run_statement
from moorage.cli.assistant.session import Session

Limit = Annotated[int, Field(ge=1, le=100, description="Most items of the answer, newest first.")]
ProjectName = Annotated[str, Field(description="Name of a project, as `list_projects` shows it.")]
FunctionName = Annotated[str, Field(description="Name of a function, as `list_functions` shows it.")]
DatabaseName = Annotated[str, Field(description="Name of a database, as `list_databases` shows it.")]
CronjobName = Annotated[str, Field(description="Name of a cronjob, as `list_cronjobs` shows it.")]
MonitorId = Annotated[int, Field(ge=1, description="Id of a monitor, as `list_monitors` shows it.")]
Sql = Annotated[str, Field(max_length=65_536, description="One SQL statement, without a trailing second one.")]

STATUS_ITEMS = 50  # of each kind, in the overview


class ReadingTools:
    """Each public method is a tool; its docstring is the description that the assistant reads."""

    def __init__(self, session: Session) -> None:
        self._client = session.client

    async def status(self) -> dict[str, Any]:
        """Show everything at a glance: organization, role, usage and limits, and the state of all resources.

        Start here. `attention` lists failed deployments, monitors that are down, and databases and cronjobs that do not
        run. Each kind shows up to 50 resources.
        """
        client = self._client
        me, health, usage = await asyncio.gather(
            client.identity.whoami(), client.platform.health(), client.organizations.read_usage()
        )
        projects, functions, databases, cronjobs, monitors = await asyncio.gather(
            client.projects.list(limit=STATUS_ITEMS),
            client.functions.list(page_size=STATUS_ITEMS),
            client.databases.list(page_size=STATUS_ITEMS),
            client.cronjobs.list(page_size=STATUS_ITEMS),
            client.monitors.list(),
        )
        return {
            "platform": {"url": client.transport.url, "version": health.version},
            "organization": {"id": me.org_id, "name": me.org_name, "role": me.role, "plan": usage.plan},
            "attention": attention(projects.items, databases.items, cronjobs.items, monitors),
            "usage": usage.usage,
            "projects": [project_row(each) for each in projects.items],
            "functions": [{"name": each.name, "runtime": each.runtime} for each in functions.items],
            "databases": [{"name": each.name, "type": each.type, "status": each.status} for each in databases.items],
            "cronjobs": [
                {"name": each.name, "schedule": each.cron_schedule, "status": each.status} for each in cronjobs.items
            ],
            "monitors": [monitor_row(each) for each in monitors[:STATUS_ITEMS]],
        }

    async def list_projects(self, limit: Limit = 50) -> dict[str, Any]:
        """List the sites and apps of the organization, with their addresses and the state of their last deployment."""
        page = await self._client.projects.list(limit=limit)
        return {"items": [project_row(each) for each in page.items], "hasMore": page.next_cursor is not None}

    async def show_project(self, name: ProjectName) -> Any:
        """Show a project: repository, branch, commands, tier, scaling, variables and the names of its secrets.

        Values of secrets, and of variables whose names say that they are credentials, are not part of the answer.
        """
        project, secrets = await asyncio.gather(
            self._client.projects.read(name), self._client.projects.list_secrets(name)
        )
        return {"project": project, NAMES: [each.name for each in secrets]}

    async def list_deployments(self, project: ProjectName, limit: Limit = 10) -> dict[str, Any]:
        """List the deployments of a project, newest first, with status, commit, reason of a failure and duration.

        `live` marks the deployment that takes the traffic. `uuid` is what `read_deployment_log` and
        `roll_back_project` need.
        """
        page = await self._client.deployments.list(project, limit=limit)
        rows = [
            {
                "uuid": each.deployment_uuid,
                "status": each.status,
                "live": each.enable,
                "kind": each.kind,
                "commit": each.commit_sha,
                "branch": each.branch,
                "reason": each.reason,
                "durationMs": each.duration_ms,
                "createdAt": each.created_at,
            }
            for each in page.items
        ]
        return {"items": rows, "hasMore": page.next_cursor is not None}

    async def list_functions(self, limit: Limit = 50) -> Any:
        """List the functions of the organization, with runtime, current version and address."""
        return await self._client.functions.list(page_size=limit)

    async def show_function(self, name: FunctionName) -> dict[str, Any]:
        """Show a function: runtime, limits, address, variables, the names of its secrets and its versions."""
        function, secrets, versions = await asyncio.gather(
            self._client.functions.read(name),
            self._client.functions.list_secrets(name),
            self._client.functions.list_versions(name),
        )
        return {"function": function, NAMES: [each.name for each in secrets], "versions": versions}

    async def list_databases(self, limit: Limit = 50) -> Any:
        """List the databases of the organization, with engine, version and status."""
        return await self._client.databases.list(page_size=limit)

    async def show_database(self, name: DatabaseName) -> Any:
        """Show a database: engine, status, disk use, host and port, and its last backup. Passwords are masked."""
        database, backups = await asyncio.gather(
            self._client.databases.read(name), self._client.databases.list_backups(name)
        )
        return {"database": database, "backups": backups.items[:5]}

    async def query_database(self, name: DatabaseName, sql: Sql) -> dict[str, Any]:
        """Run one SQL statement that only reads, in a read-only transaction that the database enforces.

        It ends after 10 seconds. Rows beyond the size of an answer are left out, so select few columns and use LIMIT.
        Values of columns whose names say that they are credentials are masked.
        """
        return await run_statement(self._client, name, sql, may_write=False)

    async def list_cronjobs(self, limit: Limit = 50) -> Any:
        """List the cronjobs of the organization, with schedule, status, number of runs and the next run."""
        return await self._client.cronjobs.list(page_size=limit)

    async def show_cronjob(self, name: CronjobName, runs: Limit = 10) -> dict[str, Any]:
        """Show a cronjob with its settings and its newest runs. `executionUuid` is what `read_cronjob_log` needs."""
        cronjob, executions = await asyncio.gather(
            self._client.cronjobs.read(name), self._client.cronjobs.list_executions(name, page_size=runs)
        )
        return {"cronjob": cronjob, "runs": executions.items}

    async def list_monitors(self) -> dict[str, Any]:
        """List the monitors of the organization, with address, last result and uptime of the last 24 hours."""
        return {"items": [monitor_row(each) for each in await self._client.monitors.list()]}

    async def show_monitor(self, monitor_id: MonitorId) -> dict[str, Any]:
        """Show a monitor with its newest checks, its alerts and its newest incidents."""
        client = self._client.monitors
        monitor, beats, alerts, incidents = await asyncio.gather(
            client.read(monitor_id),
            client.list_heartbeats(monitor_id, limit=20),
            client.list_alerts(monitor_id),
            client.list_incidents(monitor_id, limit=20),
        )
        # Headers and the body of a check often carry a credential.
        headers = [header.name for header in monitor.headers or []]
        monitor.headers, monitor.http_body = None, None
        return {
            "monitor": monitor,
            "headerNames": headers,
            "checks": beats,
            "alerts": alerts,
            "incidents": incidents,
        }


def project_row(project: Any) -> dict[str, Any]:
    return {
        "name": project.name,
        "kind": project.slug,
        "url": project.project_url,
        "enabled": project.enabled,
        "repository": project.repository_name,
        "branch": project.branch,
        "latestDeployment": project.latest_deployment,
    }


def monitor_row(monitor: Any) -> dict[str, Any]:
    beat = monitor.last_heartbeat
    return {
        "id": monitor.id,
        "name": monitor.name,
        "url": monitor.url,
        "status": monitor.status,
        "lastResult": beat and beat.status,
        "message": beat and beat.message,
        "uptimePercent": monitor.uptime_percent,
    }


def attention(projects: list[Any], databases: list[Any], cronjobs: list[Any], monitors: list[Any]) -> list[str]:
    """Return a sentence for each resource that is not as it should be."""
    failed = [each for each in projects if each.latest_deployment and each.latest_deployment.status == "failed"]
    down = [each for each in monitors if each.last_heartbeat and each.last_heartbeat.status == "DOWN"]
    stopped = [each for each in databases if each.status in ("failed", "stopped")]
    broken = [each for each in cronjobs if each.status == "failed"]
    return [
        *(f"the last deployment of project {each.name} failed" for each in failed),
        *(f"monitor {each.id} ({each.name}) is down: {each.last_heartbeat.message}" for each in down),
        *(f"database {each.name} is {each.status}" for each in stopped),
        *(f"the last build of cronjob {each.name} failed" for each in broken),
    ]
