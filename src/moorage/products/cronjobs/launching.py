"""From a run's row to everything that is needed to start it.

Variables and secrets are read when a run starts, so they are never written down beside it. A run from a repository has
the artifact of the last good build; one from an image has what the image's name stands for at that moment.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.envvars import read_env
from moorage.core.kit.clock import to_wire
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.vault import service as vault
from moorage.errors import NotFound
from moorage.products.cronjobs import service, tables
from moorage.products.cronjobs.tables import Build, Cronjob, Execution
from moorage.runtime.builds.launch import launch
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.engines.ports import CannotStart, ReplicaSpec
from moorage.runtime.images import references
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.store import Image, Images
from moorage.runtime.sandbox import image_root
from moorage.runtime.sandbox.inside import TMP
from moorage.runtime.shim.logs.logfile import LogFile

FIRST_UID = 700_000_000  # of the users that cronjobs run as, where we are root: one for each cronjob
PIDS = 512
MB_OF_GB = 1024
LOG_BYTES = 10 * 10**6
RESULT = "result.json"
NOTHING_TO_RUN = "nothing that could be run is built (any more)"
UNDECRYPTABLE = "a secret of this cronjob cannot be decrypted with the keys this platform has"


@dataclass(frozen=True, slots=True)
class Told:
    """What the store says about a run."""

    cronjob: Cronjob
    build: Build | None
    env: dict[str, str]
    hidden: list[str]


@dataclass(frozen=True, slots=True)
class Prepared:
    spec: ReplicaSpec
    build_id: int | None
    image_digest: str | None


def folder_of(logs: Path, execution: Execution) -> Path:
    """Return where what a run prints is kept, and how it ended."""
    return logs / "cronjobs" / str(execution.cronjob_id) / str(execution.id)


@dataclass(frozen=True)
class Launcher:
    db: Database
    artifacts: ArtifactStore
    releases: Unpacked
    images: Images
    is_sandboxed: bool

    async def prepare(self, execution: Execution) -> Prepared:
        """Return how a run is started; raises CannotStart. An image may have to be pulled for that."""
        try:
            told = await self.db.read(lambda tx: _read(tx, execution.org_id, execution))
        except NotFound:
            raise CannotStart(NOTHING_TO_RUN) from None
        except CannotDecrypt:
            raise CannotStart(UNDECRYPTABLE) from None
        if told.cronjob.is_image:
            return await self._from_image(execution, told)
        return await self._from_build(execution, told)

    async def _from_build(self, execution: Execution, told: Told) -> Prepared:
        cronjob, build = told.cronjob, told.build
        if build is None or build.digest is None or build.plan is None:
            raise CannotStart(NOTHING_TO_RUN)
        plan = msgspec.json.decode(build.plan, type=Plan)
        command = cronjob.command or cronjob.start_cmd or plan.start
        if not command:
            raise CannotStart("it has no command: set `command` or `startCmd`")
        release = await self.releases.ensure(self.artifacts, build.org_id, build.digest)
        try:
            made = await asyncio.to_thread(
                launch,
                self.db.env.settings,
                replace(plan, start=command),
                plan.base,
                told.env,
                is_sandboxed=self.is_sandboxed,
                release=release,
                memory_mb=_memory_mb(cronjob),
            )
        except BuildFailed as error:
            raise CannotStart(str(error)) from None
        base = self._spec(execution, told, made.argv, made.env)
        spec = replace(base, release=str(release), base=plan.base, binds=made.binds)
        return Prepared(spec, build.id, None)

    async def _from_image(self, execution: Execution, told: Told) -> Prepared:
        log = LogFile(self._folder(execution), execution.key, told.hidden)
        try:
            image = await self._pull(execution.org_id, told.cronjob, lambda line: log.write("system", line.encode()))
        except PullFailed as error:
            log.write("system", str(error).encode())
            raise CannotStart(str(error)) from None
        finally:
            log.close()
        config = image.config
        env = {"PATH": image_root.PATH, "TMPDIR": TMP, **config.env, **told.env}
        base = self._spec(execution, told, argv_of(told.cronjob, image), env)
        return Prepared(replace(base, image=str(image.root), workdir=config.workdir), None, image.digest)

    async def _pull(self, org_id: int, cronjob: Cronjob, say: Callable[[str], None]) -> Image:
        try:
            reference = references.parse(cronjob.public_image or "")
        except ValueError as error:
            raise PullFailed(str(error)) from None
        return await self.images.pull(reference, say, org_id)

    def _spec(self, execution: Execution, told: Told, argv: list[str], env: dict[str, str]) -> ReplicaSpec:
        """Return what is the same for all runs."""
        settings, cronjob = self.db.env.settings, told.cronjob
        folder = self._folder(execution)
        moment = execution.created_at if execution.scheduled_for is None else execution.scheduled_for
        given = {"MOORAGE_EXECUTION_ID": execution.uuid, "MOORAGE_SCHEDULED_AT": to_wire(moment)}
        return ReplicaSpec(
            key=execution.key,
            token=execution.token,
            release="",
            base="",
            argv=argv,
            env={**env, **given},
            binds={},
            hidden=told.hidden,
            log_folder=str(folder),
            cpu=cronjob.tier.cpu,
            memory_mb=_memory_mb(cronjob),
            pids=PIDS,
            uid=FIRST_UID + cronjob.id if os.getuid() == 0 and self.is_sandboxed else 0,
            allow=list(settings.sandbox_allow),
            block=list(settings.sandbox_block),
            is_boxed=self.is_sandboxed,
            is_once=True,
            timeout_s=settings.cronjob_minutes * 60,
            result=str(folder / RESULT),
            log_bytes=LOG_BYTES,
        )

    def _folder(self, execution: Execution) -> Path:
        return folder_of(self.db.env.settings.folder("logs"), execution)


def argv_of(cronjob: Cronjob, image: Image) -> list[str]:
    """Return what an image is started with: its entry point, with the cronjob's command or else its own."""
    try:
        command = shlex.split(cronjob.command)
    except ValueError as error:
        raise CannotStart(f"its command cannot be read: {str(error).lower()}") from None
    argv = [*image.config.entrypoint, *(command or image.config.cmd)]
    if not argv:
        raise CannotStart("the image names no program to run: set `command`")
    return argv


def _memory_mb(cronjob: Cronjob) -> int:
    return int(cronjob.tier.memory * MB_OF_GB)


def _read(tx: Tx, org_id: int, execution: Execution) -> Told:
    cronjob = service.get_by_id(tx, org_id, execution.cronjob_id)
    build = tx.find(tables.FIND_BUILD, org_id=org_id, id=cronjob.build_id or 0)
    hidden = vault.values(tx, org_id, cronjob.resource)
    env = {each.name: each.value for each in read_env(cronjob.env)} | hidden
    return Told(cronjob, build, env, list(hidden.values()))
