"""Tools that read logs: of apps, deployments, functions and cronjobs. The newest lines that fit are returned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, cast

from pydantic import Field

from moorage.cli.assistant import answers
from moorage.cli.assistant.reading import CronjobName, FunctionName, ProjectName
from moorage.cli.assistant.session import Session
from moorage.client import Event

SILENCE_S = 1.0  # without an event, after which all stored lines of a stream have come
STORED_LINES_S = 10.0  # time to read the stored lines of a deployment that goes on printing
Lines = Annotated[int, Field(ge=1, le=500, description="Most lines of the answer; the newest ones are kept.")]
Search = Annotated[str | None, Field(description="Only lines that contain this text; case does not matter.")]
Since = Annotated[
    str | None,
    Field(description="Only lines after an age, such as `15m`, `2h` or `7d`, or after `2026-01-31T12:00:00Z`."),
]
Wait = Annotated[int, Field(ge=0, le=120, description="Seconds to wait for the end of a deployment that still runs.")]
Uuid = Annotated[str, Field(description="Uuid of a deployment, as `list_deployments` shows it.")]


class LogTools:
    def __init__(self, session: Session) -> None:
        self._client = session.client
        self._guard = session.guard

    async def read_app_logs(
        self, project: ProjectName, lines: Lines = 100, since: Since = None, search: Search = None
    ) -> str:
        """Read what the running app of a project printed, oldest line first, over all its releases.

        A static site has no app and prints nothing.
        """
        page = await self._client.projects.read_app_logs(project, limit=lines, since=since, search=search)
        shown = [f"{each.timestamp} {each.stream} {each.message}" for each in page.items]
        return answers.as_log(shown, self._guard, empty="The app printed nothing that matches.")

    async def read_deployment_log(self, uuid: Uuid, lines: Lines = 200, wait_seconds: Wait = 0) -> str:
        """Read the log of one deployment: fetch, install, build and start. The first line has its status."""
        messages, ended = await self._collect(self._client.deployments.follow(uuid), wait_seconds)
        info = await self._client.deployments.read_status(uuid)
        state = f"status: {info.status}{f' ({info.reason})' if info.reason else ''}"
        note = "" if ended or info.terminal else "; it still runs, so read it again with wait_seconds"
        log = answers.as_log(messages[-lines:], self._guard, empty="The log is empty.")
        return f"{self._guard.text(state)}{note}\n{log}"

    async def read_function_logs(
        self,
        name: FunctionName,
        invocations: Annotated[int, Field(ge=1, le=100, description="Number of newest calls.")] = 20,
        failed_only: Annotated[bool, Field(description="Leave out calls that succeeded.")] = False,
    ) -> str:
        """Read the newest calls of a function, oldest first: status, duration, error, and what each call printed."""
        page = await self._client.functions.list_invocations(name, page_size=invocations)
        calls = [each for each in reversed(page.items) if not failed_only or each.status != "success"]
        shown = [line for call in calls for line in _call_lines(call)]
        return answers.as_log(shown, self._guard, empty="There are no calls that match.")

    async def read_cronjob_log(
        self,
        name: CronjobName,
        execution_uuid: Annotated[str | None, Field(description="A run; the newest one if it is left out.")] = None,
        lines: Lines = 200,
    ) -> str:
        """Read what one run of a cronjob printed. The first line has its status, exit code and error."""
        page = await self._client.cronjobs.list_executions(name, page_size=100)
        matching = [each for each in page.items if execution_uuid in (None, each.execution_uuid)]
        if not matching:
            return "There is no such run among the newest 100." if execution_uuid else "The cronjob has not run yet."
        run = matching[0]
        log = await self._client.cronjobs.read_execution_logs(run.execution_uuid)
        shown = [f"{each.timestamp} {each.stream} {each.message}" for each in log.lines[-lines:]]
        error = f", {run.error_message}" if run.error_message else ""
        head = f"run {run.execution_uuid}: {run.status}, exit code {run.exit_code}{error}"
        return f"{self._guard.text(head)}\n{answers.as_log(shown, self._guard, empty='It printed nothing.')}"

    async def _collect(self, events: AsyncIterator[Event], wait_s: int) -> tuple[list[str], bool]:
        """Return the messages of a deployment, and whether its last event came within the time."""
        messages: list[str] = []
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + wait_s
        async with aclosing(cast(Any, events)) as stream:
            while True:
                try:
                    event = await asyncio.wait_for(anext(stream), max(ends_at - loop.time(), SILENCE_S))
                except (TimeoutError, StopAsyncIteration) as end:
                    return messages, isinstance(end, StopAsyncIteration)
                if event.name == "log":
                    messages.append(str(event.data["message"]))
                if loop.time() > ends_at + STORED_LINES_S:
                    return messages, False


def _call_lines(call: Any) -> list[str]:
    error = f": {call.error}" if call.error else ""
    head = f"{call.timestamp} {call.activation_id} version {call.version}, {call.duration:.1f} ms, {call.status}{error}"
    printed = [*(call.stdout or "").splitlines(), *(f"stderr: {line}" for line in (call.stderr or "").splitlines())]
    return [head, *(f"  {line}" for line in printed)]
