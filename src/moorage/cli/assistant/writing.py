"""Tools that change something. The server offers them with `--allow-writes` only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from msgspec import UNSET
from pydantic import Field

from moorage.cli.assistant.queries import run_statement
from moorage.cli.assistant.reading import CronjobName, DatabaseName, FunctionName, ProjectName, Sql
from moorage.cli.assistant.session import Session
from moorage.client.models import EnvVar, FunctionEnvVar

Wait = Annotated[int, Field(ge=0, le=60, description="Seconds to wait for the end; 0 returns at once.")]
Variables = Annotated[
    dict[str, str] | None,
    Field(description="Variables to set, by name. Never put a credential here: people set secrets themselves."),
]
Names = Annotated[list[str] | None, Field(description="Names of variables to remove.")]


class WritingTools:
    def __init__(self, session: Session) -> None:
        self._client = session.client

    async def redeploy_project(
        self,
        project: ProjectName,
        operation: Annotated[
            Literal["deploy", "rebuild", "restart"],
            Field(
                description="`deploy` builds the head of the branch, `rebuild` ignores caches, `restart` starts the "
                "live release again."
            ),
        ] = "deploy",
        wait_seconds: Wait = 60,
    ) -> Any:
        """Deploy a project again from its repository, or restart it. The old release serves until the new one answers.

        `status` is `succeeded`, `failed`, or not final yet; `read_deployment_log` shows why it failed.
        """
        return await self._client.deployments.deploy_project(project, operation=operation, wait=wait_seconds or None)

    async def roll_back_project(
        self,
        project: ProjectName,
        deployment_uuid: Annotated[
            str | None, Field(description="The deployment to publish again; the one before the live one if left out.")
        ] = None,
        wait_seconds: Wait = 60,
    ) -> Any:
        """Publish an earlier release of a project again, without a build. Variables and secrets stay those of now."""
        uuid = deployment_uuid or await self._previous(project)
        return await self._client.deployments.roll_project_back(
            project, deployment_uuid=uuid, wait=wait_seconds or None
        )

    async def _previous(self, project: str) -> str:
        """Return the newest successful deployment that is older than the live one."""
        is_older = False
        async for each in self._client.deployments.iterate(project):
            if is_older and each.status == "succeeded" and not each.preview:
                return each.deployment_uuid
            is_older = is_older or each.enable
        raise ToolError(f"project {project} has no earlier release; `list_deployments` shows its deployments")

    async def invoke_function(
        self,
        name: FunctionName,
        params: Annotated[dict[str, Any] | None, Field(description="Parameters, as the function gets them.")] = None,
    ) -> Any:
        """Call a function and return its result. A function that fails returns `status` `error` with the reason.

        The call counts and is logged like any other; `read_function_logs` shows what it printed.
        """
        return await self._client.functions.invoke(name, body={"params": params or {}})

    async def roll_back_function(
        self,
        name: FunctionName,
        version: Annotated[int, Field(ge=1, description="A version that `show_function` lists.")],
    ) -> dict[str, Any]:
        """Make an earlier version of a function the current one."""
        function = await self._client.functions.roll_back(name, version=version)
        return {"name": function.name, "currentVersion": function.current_version, "url": function.url}

    async def set_env(
        self,
        kind: Annotated[Literal["project", "function", "cronjob"], Field(description="Kind of the resource.")],
        name: Annotated[str, Field(description="Name of the resource.")],
        variables: Variables = None,
        remove: Names = None,
    ) -> dict[str, Any]:
        """Set and remove environment variables of a project, function or cronjob; all others stay.

        The app of a project is started again with them. The answer has names, never values. Secrets cannot be set here.
        """
        changed, removed = variables or {}, set(remove or [])
        if not changed and not removed:
            raise ToolError("name at least one variable to set or to remove")
        current = await self._variables(kind, name)
        if unknown := removed - current.keys():
            raise ToolError(f"{kind} {name} has no variable {', '.join(sorted(unknown))}")
        wanted = {key: value for key, value in (current | changed).items() if key not in removed}
        deployment = await self._replace(kind, name, wanted)
        return {"kind": kind, "name": name, "variables": sorted(wanted), "triggeredDeploymentUuid": deployment}

    async def _variables(self, kind: str, name: str) -> dict[str, str]:
        client = self._client
        if kind == "project":
            env = (await client.projects.read(name)).env
        elif kind == "function":
            env = (await client.functions.read(name)).env
        else:
            env = (await client.cronjobs.read(name)).env
        return {each.name: each.value for each in env}

    async def _replace(self, kind: str, name: str, wanted: dict[str, str]) -> str | None:
        """Store all variables of a resource; return the deployment that this started."""
        env = [EnvVar(name=key, value=value) for key, value in wanted.items()]
        if kind == "project":
            return (await self._client.projects.update(name, env=env)).triggered_deployment_uuid
        if kind == "function":
            own = [FunctionEnvVar(name=each.name, value=each.value) for each in env]
            await self._client.functions.update(name, env=own)
        else:
            await self._client.cronjobs.update(name, env=env)
        return None

    async def trigger_cronjob(self, name: CronjobName, wait_seconds: Wait = 60) -> Any:
        """Run a cronjob now, besides its schedule. `read_cronjob_log` shows what the run printed."""
        return await self._client.cronjobs.trigger(name, wait=wait_seconds or None)

    async def create_monitor(
        self,
        name: Annotated[str, Field(description="Name for people.")],
        url: Annotated[str, Field(description="Address that is checked, with http or https.")],
        interval_seconds: Annotated[int, Field(ge=30, le=86_400, description="Time between two checks.")] = 60,
        keyword: Annotated[str | None, Field(description="A text that the answer has to contain.")] = None,
        status_codes: Annotated[
            list[str] | None, Field(description="Accepted codes, such as `200`, `200-299` or `2xx`; default 200-299.")
        ] = None,
        public: Annotated[bool, Field(description="Show it on the public status page of the organization.")] = False,
    ) -> dict[str, Any]:
        """Create a monitor and wait for its first check."""
        monitor = await self._client.monitors.create(
            name=name,
            url=url,
            interval=interval_seconds,
            keyword=UNSET if keyword is None else keyword,
            status_codes=UNSET if status_codes is None else status_codes,
            public=public,
            wait=20,
        )
        beat = monitor.last_heartbeat
        return {"id": monitor.id, "name": monitor.name, "url": monitor.url, "firstCheck": beat}

    async def write_database(self, name: DatabaseName, sql: Sql) -> dict[str, Any]:
        """Run one SQL statement that may change data or tables. It needs the admin role and cannot be undone.

        Read with `query_database` first, and make a backup before a change of many rows.
        """
        return await run_statement(self._client, name, sql, may_write=True)
