"""Specifications of replicas and of commands beside them, for the engine.

Variables and secrets are read at each start and never stored with the replica.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import partial

from moorage.accounts.plans.tiers import Tier
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.kit.crypto import CannotDecrypt, sign
from moorage.core.kit.decoding import decode
from moorage.core.kit.envvars import read_env
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound
from moorage.products.apps import health, service
from moorage.products.apps.exec.service import Prepared
from moorage.products.apps.linked import databases
from moorage.products.apps.logs import following
from moorage.products.apps.machines import placing
from moorage.products.apps.tables import Replica
from moorage.products.projects import service as projects
from moorage.products.projects import tables as project_tables
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.tables import Preview, Project
from moorage.runtime.builds.detection.values import own_address
from moorage.runtime.builds.ports import Plan
from moorage.runtime.engines import port_choice, ports
from moorage.runtime.engines.ports import AppSpec, CannotStart, Egress, Engine, Owner, Program, Programs
from moorage.runtime.sandbox.network import setup

FIRST_UID = 500_000_000  # where the platform runs as root, each project's app runs as FIRST_UID + project id
MAX_PIDS = 512
MB_OF_GB = 1024
USABLE_PORTS = range(1, 65_536)

# Returns the workloads that an app may connect to, such as linked databases.
EGRESS: Hook[[Tx, int, int], list[Egress]] = Hook("app.egress")


@dataclass(frozen=True, slots=True)
class Release:
    """Deployment with its project, build plan and environment."""

    project: Project
    preview: Preview | None
    deployment: Deployment
    plan: Plan
    env: dict[str, str]
    hidden: list[str]  # values of secrets, masked in the output
    egress: list[Egress]  # workloads that the app may connect to

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
    linked = [rule for each in tx.env.hooks.call(EGRESS, tx, org_id, project.id) for rule in each]
    plan = decode(deployment.plan, Plan)
    release = Release(project, preview, deployment, plan, env, list(hidden.values()), [] if is_fork else linked)
    linked_databases = [] if is_fork else databases.linked(tx, org_id, project.id)
    parts = databases.variables(linked_databases, plan, env)
    settings = tx.env.settings
    url = projects.url_of(settings, projects.host_of(settings, (preview or project).name))
    keys = [name for name in plan.keys if name not in env and name not in parts]
    made = {name: _made_value(tx.env.app_key, release.volume, name) for name in keys}
    return replace(
        release,
        env={**dict(plan.values), **own_address.fill(plan.own_addresses, url), **made, **env, **parts},
        hidden=[*release.hidden, *made.values(), *databases.secrets_of(linked_databases, parts)],
    )


def _made_value(key: bytes, place: str, name: str) -> str:
    """Return a random value that stays the same; a preview has its own, which does not reveal the project's."""
    return sign(key, f"{place} {name}".encode())


@dataclass(frozen=True)
class Launcher:
    db: Database
    engine: Engine
    programs: Programs
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
        program = await self._prepare(release)
        settings = self.db.env.settings
        disk_mb = (release.project.disk or 0) * MB_OF_GB
        uid = FIRST_UID + release.project.id if os.getuid() == 0 and self.is_sandboxed else 0
        spec = AppSpec(
            key=row.key,
            token=row.token,
            name=f"app-{release.project.id}",
            argv=program.argv,
            env=program.env,
            files=program.files,
            hidden=release.hidden,
            log=following.log_of(release.project.id),
            volume=await self._volume(release, uid, disk_mb) if disk_mb else None,
            disk_mb=disk_mb,
            reserve_mb=settings.disk_reserve_mb,
            cpu=release.tier.cpu,
            memory_mb=release.memory_mb,
            pids=MAX_PIDS,
            uid=uid,
            egress=release.egress,
            allow=list(settings.sandbox_allow),
            block=list(settings.sandbox_block),
            is_boxed=self.is_sandboxed,
            stop_signal=program.stop_signal,
            inside_port=own_port({**program.env, **release.env})
            or self.found_ports.get(row.deployment_id, 0)
            or exposed_port(program),
        )
        # A health path that the owner chose counts more than the check of the image.
        has_path = release.project.health_check_path not in (None, health.DEFAULT_PATH)
        return spec if has_path else replace(spec, **program.health)

    async def prepare_command(self, org_id: int, name: str, command: str, timeout_s: float) -> Prepared:
        """Return a command, ready to run; raises NotFound and Conflict."""

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
        run = partial(self.engine.commands.run, spec, ["/bin/sh", "-c", command], timeout_s=timeout_s)
        return Prepared(run, spec.hidden, timeout_s)

    async def _prepare(self, release: Release) -> Program:
        deployment = release.deployment
        assert deployment.digest is not None
        assert deployment.plan is not None
        owner = Owner("app", release.project.id)
        build = ports.Release(deployment.org_id, deployment.digest, deployment.plan, owner)
        return await self.programs.prepare(build, release.env, release.memory_mb)

    async def _volume(self, release: Release, uid: int, disk_mb: int) -> str:
        org_id = release.deployment.org_id
        await self.engine.volumes.ensure(release.volume, uid=uid, size_mb=disk_mb, org_id=org_id)
        return release.volume


def own_port(env: Mapping[str, str]) -> int:
    """Return the user's own value of PORT; 0 without one that an app can listen on."""
    value = env.get("PORT", "").strip()
    is_port = value.isascii() and value.isdigit() and len(value) <= 5 and int(value) in USABLE_PORTS
    return int(value) if is_port and int(value) != setup.RESOLVER_PORT else 0


def exposed_port(program: Program) -> int:
    """Return the port of an image's program that requests are sent to; 0 if it exposes none."""
    usable = [port for port in program.ports if port in USABLE_PORTS and port != setup.RESOLVER_PORT]
    return port_choice.preferred(usable) if usable else 0


def projects_with_volumes(volumes: Iterable[str]) -> list[int]:
    """Return the ids of projects with a volume, their own or of a preview."""
    names = [volume.partition("-")[0] for volume in volumes]
    return sorted({int(name) for name in names if name.isdecimal()})
