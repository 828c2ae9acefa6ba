"""`python -m moorage.platform.pods.build`: the agent in the pod of a build; `pods/wire.py` has its variables."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from moorage import settings as settings_module
from moorage.core.kit.processes.process import raise_open_files_limit
from moorage.platform import folders, opening
from moorage.runtime.builds.pods import wire
from moorage.runtime.builds.pods.agent import BuildAgent
from moorage.runtime.builds.pods.work import PodBuild
from moorage.runtime.sandbox.runs.job import WORK
from moorage.settings import Settings

READY = "waiting for the platform"


def main() -> None:
    """Serve one build; exit when the platform is away."""
    token, chain = (os.environ.pop(name) for name in (wire.TOKEN_VARIABLE, wire.CERTIFICATE_VARIABLE))
    is_sandboxed = os.environ.pop(wire.SANDBOX_VARIABLE, "") == "1"
    settings = settings_module.load()
    folders.make(settings)
    raise_open_files_limit()
    asyncio.run(_serve(settings, token, chain, is_sandboxed=is_sandboxed))


async def _serve(settings: Settings, token: str, chain: str, *, is_sandboxed: bool) -> None:
    # Process 1 of a container ignores signals that it does not handle.
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    # Without a sandbox, files are built at the path at which they will run.
    source = settings.folder("builds") / "source" if is_sandboxed else Path(WORK)
    work = PodBuild(settings, lambda: opening.open_store(settings).db, is_sandboxed)
    agent = BuildAgent(token, work, settings.folder("run"), source)
    print(READY, file=sys.stderr, flush=True)
    await agent.serve(os.environ.get("HOST", "0.0.0.0"), wire.PORT, chain)  # noqa: S104 - the address of the pod


if __name__ == "__main__":
    main()
