"""From a replica's row to everything that is needed to start it; and the same for a single command.

Variables and secrets are read when a replica starts, so they are never written down beside it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from moorage.accounts.plans.tiers import Tier
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.http.envvars import read_env
from moorage.core.kit import folders
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound
from moorage.products.apps import service
from moorage.products.apps.exec.service import Prepared
from moorage.products.apps.tables import Replica
from moorage.products.projects import service as projects
from moorage.products.projects import tables as project_tables
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.tables import Preview, Project
from moorage.runtime.builds.launch import Launch, launch
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.engines.ports import CannotStart, ReplicaSpec
from moorage.runtime.sandbox.runs.job import WORK, Job
from moorage.runtime.sandbox.usage import quotas

FIRST_UID = 500_000_000  # of the users that apps run as, where we are root: one for each project
PIDS = 512
MB_OF_GB = 1024
MB = 2**20
WEIGHT = 100  # of a command's processor time, as an app's
FILE_MB = 512
OUTPUT_BYTES = 32 * 2**20
LEAST_MB = 64
SLACK_MB = 1024  # by which a command may go over the size of a volume: it may be there to clear it up
DATA = "/data"

# Returns addresses of this machine that an app may connect to, as "address:port", such as those of linked databases.
EGRESS: Hook[[Tx, int, int], list[str]] = Hook("app.egress")


@dataclass(frozen=True, slots=True)
class Release:
    """What a deployment runs, and with what."""

    project: Project
    preview: Preview | None
    deployment: Deployment
    plan: Plan
    env: dict[str, str]
    hidden: list[str]  # values of secrets
    doors: list[str]

    @property
    def tier(self) -> Tier:
        return service.tier_of(self.project.tier)

    @property
    def memory_mb(self) -> int:
        return int(self.tier.memory * MB_OF_GB)

    @property
    def volume(self) -> str:
        """Return the name of the folder that this app keeps."""
        number = f"-pr-{self.preview.number}" if self.preview is not None else ""
        return f"{self.project.id}{number}"


def read_release(tx: Tx, org_id: int, deployment_id: int) -> Release:
    """Read what a deployment runs; raises NotFound and CannotDecrypt. A fork's code gets no secrets."""
    found = deployments.find(tx, org_id, deployment_id)
    if found is None or found.plan is None:
        raise NotFound("There is no such release")
    project = projects.get_by_id(tx, org_id, found.project_id)
    preview = None
    if found.preview_id is not None:
        preview = tx.find(project_tables.FIND_PREVIEW_BY_ID, org_id=org_id, id=found.preview_id)
    hidden = vault.values(tx, org_id, projects.resource_of(project.id))
    is_fork = preview is not None and preview.is_fork
    env = {each.name: each.value for each in read_env(project.env)} | ({} if is_fork else hidden)
    linked = [address for each in tx.env.hooks.call(EGRESS, tx, org_id, project.id) for address in each]
    plan = msgspec.json.decode(found.plan, type=Plan)
    return Release(project, preview, found, plan, env, list(hidden.values()), [] if is_fork else linked)


@dataclass(frozen=True)
class Launcher:
    db: Database
    artifacts: ArtifactStore
    releases: Unpacked
    is_sandboxed: bool

    async def specify(self, row: Replica) -> ReplicaSpec:
        """Return how a replica is started; raises CannotStart."""
        try:
            found = await self.db.read(lambda tx: read_release(tx, row.org_id, row.deployment_id))
        except NotFound:
            raise CannotStart("its project or release does not exist any more") from None
        except CannotDecrypt:
            raise CannotStart("a secret of this project cannot be decrypted with the keys this platform has") from None
        made, release = await self._launch(found)
        settings = self.db.env.settings
        disk_mb = (found.project.disk or 0) * MB_OF_GB
        uid = FIRST_UID + found.project.id if os.getuid() == 0 and self.is_sandboxed else 0
        return ReplicaSpec(
            key=row.key,
            token=row.token,
            release=str(release),
            base=found.plan.base,
            argv=made.argv,
            env=made.env,
            binds=made.binds,
            hidden=found.hidden,
            log_folder=str(settings.folder("logs") / "apps" / str(found.project.id)),
            volume=str(await self._volume(found, uid, disk_mb)) if disk_mb else None,
            disk_mb=disk_mb,
            reserve_mb=settings.disk_reserve_mb,
            cpu=found.tier.cpu,
            memory_mb=found.memory_mb,
            pids=PIDS,
            uid=uid,
            doors=found.doors,
            allow=list(settings.sandbox_allow),
            block=list(settings.sandbox_block),
            is_boxed=self.is_sandboxed,
        )

    async def prepare_command(self, org_id: int, name: str, command: str) -> Prepared:
        """Return how a command is run beside the release that is live; raises NotFound and Conflict."""

        def live(tx: Tx) -> Replica:
            project = projects.get(tx, org_id, name)
            found = service.live_deployment(tx, org_id, project)
            if found is None:
                raise Conflict("Nothing of this project is live as an app, so there is nothing to run a command in")
            return Replica(0, org_id, project.id, None, found.id, "", "", None, None, None, 0, 0)

        try:
            spec = await self.specify(await self.db.read(live))
        except CannotStart as error:
            raise Conflict(f"The command cannot be run: {error}") from None
        used = await asyncio.to_thread(folders.used_bytes, spec.volume) if spec.volume else 0
        job = _as_job(spec, command, self.db.env.settings.disk_reserve_mb)
        # A volume that is far over its size already can still be cleared up.
        most = max(spec.disk_mb + SLACK_MB, used // MB + LEAST_MB) if spec.volume else 0
        return Prepared(replace(job, disk_mb=most), spec.hidden)

    async def _launch(self, found: Release) -> tuple[Launch, Path]:
        assert found.deployment.digest is not None
        release = await self.releases.ensure(self.artifacts, found.deployment.org_id, found.deployment.digest)
        settings = self.db.env.settings
        try:
            made = await asyncio.to_thread(
                launch,
                settings,
                found.plan,
                found.plan.base,
                found.env,
                is_sandboxed=self.is_sandboxed,
                release=release,
                memory_mb=found.memory_mb,
            )
        except BuildFailed as error:
            raise CannotStart(str(error)) from None
        return made, release

    async def _volume(self, found: Release, uid: int, disk_mb: int) -> Path:
        folder = self.db.env.settings.folder("volumes") / found.volume
        await asyncio.to_thread(_make, folder, uid)
        await asyncio.to_thread(quotas.limit, folder, disk_mb * MB)
        return folder


def _as_job(spec: ReplicaSpec, command: str, reserve_mb: int) -> Job:
    """Return a command in the same surroundings as a replica: its files, its variables, its volume, its network."""
    place = f"{WORK}/{spec.base}".rstrip("/")
    return Job(
        argv=["/bin/sh", "-c", command],
        work="" if spec.is_boxed else spec.release,
        cwd=spec.base if spec.is_boxed else "",
        env=dict(spec.env),
        binds={**spec.binds, place: spec.release} if spec.is_boxed else {},
        writable={DATA: spec.volume} if spec.volume and spec.is_boxed else {},
        uid=spec.uid,
        weight=WEIGHT,
        memory_mb=spec.memory_mb,
        pids=spec.pids,
        file_mb=max(spec.disk_mb, FILE_MB),
        reserve_mb=reserve_mb,
        output_bytes=OUTPUT_BYTES,
        allow=spec.allow,
        block=spec.block,
        doors=spec.doors,
        is_boxed=spec.is_boxed,
    )


def _make(folder: Path, uid: int) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not folder.is_dir():
        folder.mkdir(mode=0o700)
        if uid:
            folders.give(folder, uid)


def volumes_of(root: Path, project_id: int) -> Iterable[Path]:
    """Return the folders that a project and its previews keep."""
    return [path for path in (root / str(project_id), *root.glob(f"{project_id}-pr-*")) if path.is_dir()]
