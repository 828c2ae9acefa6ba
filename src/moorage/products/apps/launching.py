"""Specifications of replicas for the engine, and sandbox jobs of commands.

Variables and secrets are read at each start and never stored with the replica.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from moorage.accounts.plans.tiers import Tier
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.kit import folders
from moorage.core.kit.crypto import CannotDecrypt, sign
from moorage.core.kit.decoding import decode
from moorage.core.kit.envvars import read_env
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound
from moorage.products.apps import health, service
from moorage.products.apps.exec.service import Prepared
from moorage.products.apps.machines import placing
from moorage.products.apps.tables import Replica
from moorage.products.projects import service as projects
from moorage.products.projects import tables as project_tables
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.tables import Preview, Project
from moorage.runtime.builds import launch as builds_launch
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.engines import port_choice
from moorage.runtime.engines.ports import AppSpec, CannotStart
from moorage.runtime.images import launching
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.store import Images
from moorage.runtime.sandbox.network import setup
from moorage.runtime.sandbox.rootfs import spec as rootfs
from moorage.runtime.sandbox.runs import job as runs_job
from moorage.runtime.sandbox.usage import quotas

FIRST_UID = 500_000_000  # where the platform runs as root, each project's app runs as FIRST_UID + project id
MAX_PIDS = 512
MB_OF_GB = 1024
MB = 2**20
COMMAND_CPU_WEIGHT = 100  # of a command's cgroup, the same as an app's
COMMAND_FILE_MB = 512
COMMAND_OUTPUT_BYTES = 32 * 2**20
COMMAND_ROOT_MB = 64  # that a command may at least write to the root of an image
COMMAND_FREE_MB = 64  # that a command may add to a volume that is already over its size
COMMAND_SLACK_MB = 1024  # by which a command may exceed the size of a volume, for example to clean it up
DATA_PATH = "/data"
USABLE_PORTS = range(1, 65_536)

# Returns the local addresses that an app may connect to, as "address:port", such as those of linked databases.
EGRESS: Hook[[Tx, int, int], list[str]] = Hook("app.egress")


@dataclass(frozen=True, slots=True)
class Release:
    """Deployment with its project, build plan and environment."""

    project: Project
    preview: Preview | None
    deployment: Deployment
    plan: Plan
    env: dict[str, str]
    hidden: list[str]  # values of secrets, masked in the output
    egress: list[str]  # local addresses that the app may connect to

    @property
    def tier(self) -> Tier:
        return service.tier_of(self.project.tier)

    @property
    def memory_mb(self) -> int:
        return int(self.tier.memory * MB_OF_GB)

    @property
    def volume(self) -> str:
        """Name of the folder of the app's persistent volume."""
        number = f"-pr-{self.preview.number}" if self.preview is not None else ""
        return f"{self.project.id}{number}"


def read_release(tx: Tx, org_id: int, deployment_id: int) -> Release:
    """Read a release; a fork gets no secrets. Raises NotFound and CannotDecrypt."""
    deployment = deployments.find(tx, org_id, deployment_id)
    if deployment is None or deployment.plan is None:
        raise NotFound("There is no such release")
    project = projects.get_by_id(tx, org_id, deployment.project_id)
    preview = None
    if deployment.preview_id is not None:
        preview = tx.find(project_tables.FIND_PREVIEW_BY_ID, org_id=org_id, id=deployment.preview_id)
    hidden = vault.values(tx, org_id, projects.resource_of(project.id))
    is_fork = preview is not None and preview.is_fork
    env = {each.name: each.value for each in read_env(project.env)} | ({} if is_fork else hidden)
    linked = [address for each in tx.env.hooks.call(EGRESS, tx, org_id, project.id) for address in each]
    plan = decode(deployment.plan, Plan)
    release = Release(project, preview, deployment, plan, env, list(hidden.values()), [] if is_fork else linked)
    made = {name: _made_value(tx.env.app_key, release.volume, name) for name in plan.keys if name not in env}
    return replace(release, env={**made, **env}, hidden=[*release.hidden, *made.values()])


def _made_value(key: bytes, place: str, name: str) -> str:
    """Return a random value that stays the same; a preview has its own, which does not reveal the project's."""
    return sign(key, f"{place} {name}".encode())


@dataclass(frozen=True, slots=True)
class _Launched:
    command: builds_launch.Launch
    folder: str  # of the release, "" for an image
    own_port: int = 0  # value of PORT that the owner or the image sets
    port: int = 0  # that the image exposes
    image: dict[str, Any] = field(default_factory=dict)  # fields of the spec of an image


@dataclass(frozen=True)
class Launcher:
    db: Database
    artifacts: ArtifactStore
    releases: Unpacked
    images: Images
    is_sandboxed: bool
    # By deployment: the port on which its app listens instead of PORT. Its next replicas get it as PORT.
    found_ports: dict[int, int] = field(default_factory=dict)

    async def specify(self, row: Replica) -> AppSpec:
        """Return the specification of a replica; raises CannotStart."""
        try:
            release = await self.db.read(lambda tx: read_release(tx, row.org_id, row.deployment_id))
        except NotFound:
            raise CannotStart("its project or release was deleted") from None
        except CannotDecrypt:
            raise CannotStart("a secret of this project cannot be decrypted with the keys this platform has") from None
        launched = await (self._launch_image(release) if release.plan.image else self._launch(release))
        command = launched.command
        settings = self.db.env.settings
        disk_mb = (release.project.disk or 0) * MB_OF_GB
        uid = FIRST_UID + release.project.id if os.getuid() == 0 and self.is_sandboxed else 0
        spec = AppSpec(
            key=row.key,
            token=row.token,
            release=launched.folder,
            base=release.plan.base,
            workdir=release.plan.workdir,
            argv=command.argv,
            env=command.env,
            binds=command.binds,
            hidden=release.hidden,
            log_folder=str(settings.folder("logs") / "apps" / str(release.project.id)),
            volume=str(await self._volume(release, uid, disk_mb)) if disk_mb else None,
            disk_mb=disk_mb,
            reserve_mb=settings.disk_reserve_mb,
            cpu=release.tier.cpu,
            memory_mb=release.memory_mb,
            pids=MAX_PIDS,
            uid=uid,
            doors=release.egress,
            allow=list(settings.sandbox_allow),
            block=list(settings.sandbox_block),
            is_boxed=self.is_sandboxed,
            inside_port=launched.own_port or self.found_ports.get(row.deployment_id, 0) or launched.port,
        )
        return replace(spec, **launched.image)

    async def prepare_command(self, org_id: int, name: str, command: str) -> Prepared:
        """Return the sandbox job of a command; raises NotFound and Conflict."""

        def live(tx: Tx) -> Replica:
            project = projects.get(tx, org_id, name)
            deployment = service.live_deployment(tx, org_id, project)
            if deployment is None:
                raise Conflict("Nothing of this project is live as an app, so there is nothing to run a command in")
            placing.check_volume_is_here(tx, org_id, project)
            return Replica(0, org_id, project.id, None, deployment.id, "", "", None, None, None, 0, 0, 0)

        try:
            spec = await self.specify(await self.db.read(live))
        except CannotStart as error:
            raise Conflict(f"The command cannot be run: {error}") from None
        used = await asyncio.to_thread(folders.used_bytes, spec.volume) if spec.volume else 0
        job = _as_job(spec, command, self.db.env.settings.disk_reserve_mb)
        # A command can still clean up a volume that is far over its size.
        limit_mb = max(spec.disk_mb + COMMAND_SLACK_MB, used // MB + COMMAND_FREE_MB) if spec.volume else 0
        return Prepared(replace(job, disk_mb=limit_mb), spec.hidden)

    async def _launch_image(self, release: Release) -> _Launched:
        """Return how to start the image of a release, unpacked if needed; raises CannotStart."""
        org_id, project = release.deployment.org_id, release.project
        try:
            image = await self.images.ensure(org_id, release.plan.image)
            started = launching.launch(image, release.plan.start, release.env, rootfs.first_id("app", project.id))
        except (PullFailed, launching.NoCommand) as error:
            raise CannotStart(str(error)) from None
        # A health path that the owner chose counts more than the check of the image.
        has_path = project.health_check_path not in (None, health.DEFAULT_PATH)
        fields = {**started.fields, **({} if has_path else launching.health_fields(image.config))}
        usable = [port for port in started.ports if port in USABLE_PORTS and port != setup.RESOLVER_PORT]
        port = port_choice.preferred(usable) if usable else 0
        command = builds_launch.Launch(started.argv, started.env, {})
        return _Launched(command, "", own_port(started.env), port, fields)

    async def _launch(self, release: Release) -> _Launched:
        """Return the start command and folder of a release; raises CannotStart."""
        assert release.deployment.digest is not None
        folder = await self.releases.ensure(self.artifacts, release.deployment.org_id, release.deployment.digest)
        settings = self.db.env.settings
        try:
            await builds_launch.fetch_runtimes(settings, release.plan, is_sandboxed=self.is_sandboxed)
            command = await asyncio.to_thread(
                builds_launch.launch,
                settings,
                release.plan,
                release.env,
                is_sandboxed=self.is_sandboxed,
                release=folder,
                memory_mb=release.memory_mb,
            )
        except BuildFailed as error:
            raise CannotStart(str(error)) from None
        return _Launched(command, str(folder), own_port(release.env))

    async def _volume(self, release: Release, uid: int, disk_mb: int) -> Path:
        folder = self.db.env.settings.folder("volumes") / release.volume
        await asyncio.to_thread(_create_volume, folder, uid)
        await asyncio.to_thread(quotas.limit, folder, disk_mb * MB)
        return folder


def _as_job(spec: AppSpec, command: str, reserve_mb: int) -> runs_job.Job:
    """Return a command's job with a replica's files, variables, volume and network."""
    files = _image_files(spec) if spec.image else _release_files(spec)
    return runs_job.Job(
        argv=["/bin/sh", "-c", command],
        **files,
        env=dict(spec.env),
        writable={DATA_PATH: spec.volume} if spec.volume and spec.is_boxed else {},
        uid=spec.uid,
        weight=COMMAND_CPU_WEIGHT,
        memory_mb=spec.memory_mb,
        pids=spec.pids,
        file_mb=max(spec.disk_mb, COMMAND_FILE_MB),
        reserve_mb=reserve_mb,
        output_bytes=COMMAND_OUTPUT_BYTES,
        allow=spec.allow,
        block=spec.block,
        doors=spec.doors,
        is_boxed=spec.is_boxed,
    )


def _release_files(spec: AppSpec) -> dict[str, Any]:
    release_path = f"{runs_job.WORK}/{spec.base}".rstrip("/")
    return {
        "work": "" if spec.is_boxed else spec.release,
        "cwd": f"{spec.base}/{spec.workdir}".strip("/") if spec.is_boxed else spec.workdir,
        "binds": {**spec.binds, release_path: spec.release} if spec.is_boxed else {},
    }


def _image_files(spec: AppSpec) -> dict[str, Any]:
    size_mb = max(spec.memory_mb // 2, COMMAND_ROOT_MB)
    root = rootfs.ImageRoot([spec.image], size_mb=size_mb, first_id=spec.image_ids, user=spec.image_user)
    return {"work": "", "cwd": spec.workdir, "binds": dict(spec.binds), "root": root}


def own_port(env: Mapping[str, str]) -> int:
    """Return the user's own value of PORT; 0 without one that an app can listen on."""
    value = env.get("PORT", "").strip()
    is_port = value.isascii() and value.isdigit() and len(value) <= 5 and int(value) in USABLE_PORTS
    return int(value) if is_port and int(value) != setup.RESOLVER_PORT else 0


def _create_volume(folder: Path, uid: int) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not folder.is_dir():
        folder.mkdir(mode=0o700)
        if uid:
            folders.change_owner(folder, uid)


def volumes_of(root: Path, project_id: int) -> Iterable[Path]:
    """Return the volumes of a project and its previews."""
    return [path for path in (root / str(project_id), *root.glob(f"{project_id}-pr-*")) if path.is_dir()]


def projects_with_volumes(root: Path) -> list[int]:
    """Return the ids of projects with a volume in a folder, their own or of a preview."""
    names = [path.name.partition("-")[0] for path in root.iterdir()] if root.is_dir() else []
    return sorted({int(name) for name in names if name.isdecimal()})
