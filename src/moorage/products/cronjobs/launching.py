"""Prepares the replica spec of a cronjob run.

Variables and secrets are read when a run starts and never stored with it. A run from a repository uses the artifact of
the last good build; a run from an image resolves the image reference when it starts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import to_wire
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.decoding import decode
from moorage.core.kit.envvars import read_env
from moorage.core.vault import service as vault
from moorage.errors import NotFound
from moorage.products.cronjobs import service, tables
from moorage.products.cronjobs.tables import Build, Cronjob, Execution
from moorage.runtime.builds import launch as builds_launch
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.engines.ports import CannotStart, RunSpec
from moorage.runtime.images import launching, references
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.store import Image, Images
from moorage.runtime.logs.logfile import LogFile
from moorage.runtime.sandbox.rootfs import spec as rootfs

FIRST_UID = 700_000_000  # As root, each cronjob runs as its own user: FIRST_UID plus its id.
PIDS = 512
MB_OF_GB = 1024
LOG_BYTES = 10 * 10**6
RESULT = "result.json"
NOTHING_TO_RUN = "the cronjob has no build that can run"
UNDECRYPTABLE = "a secret of this cronjob cannot be decrypted with the keys this platform has"


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Rows and decrypted secrets that a run is started from."""

    cronjob: Cronjob
    build: Build | None
    env: dict[str, str]
    hidden: list[str]  # values of secrets, masked in the log


@dataclass(frozen=True, slots=True)
class Prepared:
    spec: RunSpec
    build_id: int | None
    image_digest: str | None


def folder_of(logs: Path, execution: Execution) -> Path:
    """Return the folder with the log and the result file of a run."""
    return logs / "cronjobs" / str(execution.cronjob_id) / str(execution.id)


@dataclass(frozen=True)
class Launcher:
    db: Database
    artifacts: ArtifactStore
    releases: Unpacked
    images: Images
    is_sandboxed: bool

    async def prepare(self, execution: Execution) -> Prepared:
        """Return the spec of a run, pulling its image if needed; raises CannotStart."""
        try:
            inputs = await self.db.read(lambda tx: _read_inputs(tx, execution.org_id, execution))
        except NotFound:
            raise CannotStart(NOTHING_TO_RUN) from None
        except CannotDecrypt:
            raise CannotStart(UNDECRYPTABLE) from None
        if inputs.cronjob.is_image:
            return await self._from_image(execution, inputs)
        return await self._from_build(execution, inputs)

    async def _from_build(self, execution: Execution, inputs: RunInputs) -> Prepared:
        cronjob, build = inputs.cronjob, inputs.build
        if build is None or build.digest is None or build.plan is None:
            raise CannotStart(NOTHING_TO_RUN)
        plan = decode(build.plan, Plan)
        command = cronjob.command or cronjob.start_cmd or plan.start
        if plan.image:
            return await self._from_built_image(execution, inputs, plan.image, command)
        if not command:
            raise CannotStart("it has no command: set `command` or `startCmd`")
        release = await self.releases.ensure(self.artifacts, build.org_id, build.digest)
        try:
            await builds_launch.fetch_runtimes(self.db.env.settings, plan, is_sandboxed=self.is_sandboxed)
            command_line = await asyncio.to_thread(
                builds_launch.launch,
                self.db.env.settings,
                replace(plan, start=command),
                inputs.env,
                is_sandboxed=self.is_sandboxed,
                release=release,
                memory_mb=_memory_mb(cronjob),
            )
        except BuildFailed as error:
            raise CannotStart(str(error)) from None
        base = self._spec(execution, inputs, command_line.argv, command_line.env)
        spec = replace(base, release=str(release), base=plan.base, workdir=plan.workdir, binds=command_line.binds)
        return Prepared(spec, build.id, None)

    async def _from_image(self, execution: Execution, inputs: RunInputs) -> Prepared:
        log = LogFile(self._folder(execution), execution.key, inputs.hidden)
        try:
            image = await self._pull(execution.org_id, inputs.cronjob, lambda line: log.write("system", line.encode()))
        except PullFailed as error:
            log.write("system", str(error).encode())
            raise CannotStart(str(error)) from None
        finally:
            log.close()
        return self._as_prepared(execution, inputs, image, inputs.cronjob.command)

    async def _from_built_image(self, execution: Execution, inputs: RunInputs, digest: str, command: str) -> Prepared:
        try:
            image = await self.images.ensure(execution.org_id, digest)
        except PullFailed as error:
            raise CannotStart(str(error)) from None
        return self._as_prepared(execution, inputs, image, command)

    def _as_prepared(self, execution: Execution, inputs: RunInputs, image: Image, command: str) -> Prepared:
        build_id = inputs.build.id if inputs.build is not None and not inputs.cronjob.is_image else None
        try:
            first_id = rootfs.first_id("cronjob", inputs.cronjob.id)
            started = launching.launch(image, command, inputs.env, first_id)
        except launching.NoCommand as error:
            raise CannotStart(str(error)) from None
        base = self._spec(execution, inputs, started.argv, started.env)
        return Prepared(replace(base, **started.fields), build_id, image.digest)

    async def _pull(self, org_id: int, cronjob: Cronjob, say: Callable[[str], None]) -> Image:
        try:
            reference = references.parse(cronjob.public_image or "")
        except ValueError as error:
            raise PullFailed(str(error)) from None
        return await self.images.pull(reference, say, org_id)

    def _spec(self, execution: Execution, inputs: RunInputs, argv: list[str], env: dict[str, str]) -> RunSpec:
        """Return the fields that runs from builds and from images share."""
        settings, cronjob = self.db.env.settings, inputs.cronjob
        folder = self._folder(execution)
        moment = execution.created_at if execution.scheduled_for is None else execution.scheduled_for
        run_env = {"MOORAGE_EXECUTION_ID": execution.uuid, "MOORAGE_SCHEDULED_AT": to_wire(moment)}
        return RunSpec(
            key=execution.key,
            token=execution.token,
            argv=argv,
            env={**env, **run_env},
            hidden=inputs.hidden,
            log_folder=str(folder),
            cpu=cronjob.tier.cpu,
            memory_mb=_memory_mb(cronjob),
            pids=PIDS,
            uid=FIRST_UID + cronjob.id if os.getuid() == 0 and self.is_sandboxed else 0,
            allow=list(settings.sandbox_allow),
            block=list(settings.sandbox_block),
            is_boxed=self.is_sandboxed,
            timeout_s=settings.cronjob_minutes * 60,
            result=str(folder / RESULT),
            log_bytes=LOG_BYTES,
        )

    def _folder(self, execution: Execution) -> Path:
        return folder_of(self.db.env.settings.folder("logs"), execution)


def _memory_mb(cronjob: Cronjob) -> int:
    return int(cronjob.tier.memory * MB_OF_GB)


def _read_inputs(tx: Tx, org_id: int, execution: Execution) -> RunInputs:
    cronjob = service.get_by_id(tx, org_id, execution.cronjob_id)
    build = tx.find(tables.FIND_BUILD, org_id=org_id, id=cronjob.build_id or 0)
    hidden = vault.values(tx, org_id, cronjob.resource)
    env = {each.name: each.value for each in read_env(cronjob.env)} | hidden
    return RunInputs(cronjob, build, env, list(hidden.values()))
