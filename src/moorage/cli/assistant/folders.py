"""Deployments of local folders, by the `moorage deploy` command as a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from moorage.cli.assistant import answers
from moorage.cli.assistant.session import Session

DEPLOY_TIMEOUT_S = 900
SHOWN_LINES = 60  # of a plan, or of the log of a failed deployment
MAX_OUTPUT_LINES = 5_000


class FolderTools:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def deploy_folder(
        self,
        context: Context[Any],
        path: Annotated[str, Field(description="Folder to deploy, relative to the folder of this server.")] = ".",
        name: Annotated[str | None, Field(description="Name of the project; default: the name of the folder.")] = None,
        plan_only: Annotated[bool, Field(description="Show what would be deployed, and change nothing.")] = False,
    ) -> Any:
        """Deploy a local folder and wait until it is live: a static site, an app or a function.

        The kind is detected, and the project is created on first use. The answer has the address and the timings, or
        the reason of the failure with the end of the log.
        """
        folder = self.checked(path)
        words = ["deploy", str(folder), "--json", "--yes", *(["--name", name] if name else [])]
        code, output, errors = await self._run([*words, *(["--plan"] if plan_only else [])], context)
        log = answers.as_log(errors[-SHOWN_LINES:], self._session.guard, empty=f"exit code {code}")
        if code != 0:
            raise ToolError(f"the deployment of {path} failed:\n{log}")
        return log if plan_only else _decoded(output)

    def checked(self, path: str) -> Path:
        """Return the folder of a path; refuses one that is outside of the root, also by a symbolic link."""
        folder = (self._session.root / path).resolve()
        if not folder.is_relative_to(self._session.root):
            raise ToolError(
                f"{path} is outside of {self._session.root}; start `moorage mcp` with another --root to deploy it"
            )
        if not folder.is_dir():
            raise ToolError(f"{path} is not a folder below {self._session.root}")
        return folder

    async def _run(self, words: list[str], context: Context[Any]) -> tuple[int, str, list[str]]:
        """Run a command of `moorage`; its progress goes to the assistant. It ends with the call."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "moorage.cli.main", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(),
            limit=1 << 20,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(DEPLOY_TIMEOUT_S):
                output, errors = await asyncio.gather(process.stdout.read(), self._progress(process, context))
                return await process.wait(), output.decode("utf-8", "replace"), errors
        except TimeoutError:
            raise ToolError(f"the deployment did not end within {DEPLOY_TIMEOUT_S} s; it goes on") from None
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()

    async def _progress(self, process: asyncio.subprocess.Process, context: Context[Any]) -> list[str]:
        lines: list[str] = []
        assert process.stderr is not None
        async for raw in process.stderr:
            line = self._session.guard.text(raw.decode("utf-8", "replace").rstrip())
            lines = [*lines[-MAX_OUTPUT_LINES:], line]
            await context.report_progress(len(lines), message=line[: answers.MAX_LINE_CHARS])
        return lines

    def _environment(self) -> dict[str, str]:
        """Return the environment of the command: the same platform, credential and organization as the server."""
        session = self._session.context
        return {
            **os.environ,
            "MOORAGE_URL": session.url,
            "MOORAGE_TOKEN": session.token,
            "MOORAGE_ORG": session.organization,
            "NO_COLOR": "1",
        }


def _decoded(output: str) -> Any:
    try:
        return msgspec.json.decode(output)
    except msgspec.DecodeError:
        return {"output": output}
