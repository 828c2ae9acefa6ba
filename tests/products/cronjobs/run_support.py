"""Shared by the tests of runs: the runner, and a run from its trigger to its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from tests.products.cronjobs.support import Team, until

from moorage.app import App
from moorage.core.telemetry import Telemetry
from moorage.products.cronjobs.running import Runner
from moorage.runtime.engines.local import LocalReplicas


@dataclass
class Machine:
    """The runner, which a test may stop and start again."""

    app: App
    runner: Runner
    engine: Any
    running: asyncio.Task[None]

    @classmethod
    async def start(
        cls, app: App, runner: Runner | None = None, most: int | None = None, engine: Any = None
    ) -> Machine:
        """Start the given runner, or a new one as another process would."""
        settings = app.products.cronjobs.db.env.settings
        usual = app.products.cronjobs.engine if runner else LocalReplicas(settings.folder("run"), "cronjobs")
        engine = engine or usual
        launcher = app.products.cronjobs.runner._launcher
        runner = runner or Runner(app.products.cronjobs.db, engine, launcher, Telemetry(quiet=True), most)
        await runner.adopt()
        return cls(app, runner, engine, asyncio.create_task(runner.run()))

    async def end(self) -> None:
        """Stop the runner as if it were killed; runs continue."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.engine.close()


async def run(team: Team, command: str | None = None, **changes: Any) -> Any:
    """Run the cronjob once and return the ended run."""
    if command is not None or changes:
        body: dict[str, Any] = {**changes, **({} if command is None else {"command": command})}
        await team.patch(**body)
    return await ended(team, await team.trigger())


async def ended(team: Team, uuid: str) -> Any:
    async def look() -> Any:
        found = await team.execution(uuid)
        return found if found["status"] in ("succeeded", "failed") else None

    return await until(look)


def has_status(team: Team, status: int) -> Any:
    async def asked() -> bool:
        return (await team.get("/nightly")).status == status

    return asked
