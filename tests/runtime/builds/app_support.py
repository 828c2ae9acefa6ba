"""Apps that were built, packed and unpacked again, and their responses in a sandbox."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.runtime.builds.build_support import Log, make_app_request, write_files

from moorage.core.artifacts.unpacked import harden
from moorage.core.kit import zips, zips_writer
from moorage.runtime.builds import collect
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.launch import Launch, launch
from moorage.runtime.builds.ports import Plan
from moorage.runtime.sandbox.runs import main as sandbox
from moorage.runtime.sandbox.runs.job import Job
from moorage.settings import Settings

PORT = 8123  # of a network namespace of its own
CLIENT = f"""
import sys, time, urllib.request
until = time.monotonic() + 60
while True:
    try:
        print(urllib.request.urlopen("http://127.0.0.1:{PORT}/").read().decode(), end="")
        break
    except OSError as error:
        if time.monotonic() > until:
            sys.exit(f"no answer: {{error}}")
        time.sleep(0.02)
"""


@dataclass(frozen=True)
class Release:
    """A built app where a sandbox will find it: at its base folder, below `work`."""

    settings: Settings
    plan: Plan
    log: Log
    work: Path

    @property
    def folder(self) -> Path:
        return self.work / self.plan.base

    def launch(self, start: str = "", **env: str) -> Launch:
        plan = replace(self.plan, start=start or self.plan.start)
        return launch(self.settings, plan, env, is_sandboxed=True, release=self.folder, memory_mb=512)

    async def run(self, argv: list[str], made: Launch) -> tuple[str, str]:
        """Run a program in the app's environment; return the output of both streams."""
        said: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        env = {**made.env, "PORT": str(PORT), "HOST": "127.0.0.1"}
        folder = str(Path(self.plan.base, self.plan.workdir))
        job = Job(argv, str(self.work), folder, env, made.binds, timeout_s=90, is_apart=True)
        await sandbox.run(job, lambda stream, data: said[stream].extend(data))
        return said["stdout"].decode(), said["stderr"].decode()

    async def answer(self, start: str = "", **env: str) -> tuple[str, str]:
        """Start the app; return its response and its stderr."""
        made = self.launch(start, **env)
        asks = f"{shlex.join(made.argv)} >&2 & app=$!; python3 -c {shlex.quote(CLIENT)}; kill $app; wait $app"
        return await self.run(["/bin/sh", "-c", asks], made)


async def release(folder: Path, files: dict[str, Any], **changed: Any) -> Release:
    """Build an app, and take it through an archive as a deployment does."""
    settings = Settings(_env_file=None, data=folder / "data")
    source, log = write_files(folder / "source", files), Log()
    built = await Builder(settings, is_sandboxed=True).build(make_app_request(source, **changed), log)
    zips_writer.pack(built.folder, folder / "app.zip")
    made = Release(settings, built.plan, log, folder / "work")
    made.folder.parent.mkdir(parents=True, exist_ok=True)
    zips.extract(folder / "app.zip", made.folder, collect.APP_CAPS)
    harden(made.folder)
    return made
