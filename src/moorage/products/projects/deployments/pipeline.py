"""Pipeline of a deployment: fetch, build, store, publish.

Every step can be repeated. A process that dies leaves a row in state `running` and a job whose lease expires; the next
attempt starts over, or continues after the build where the artifact is stored. The live release changes only in the
transaction of `go_live`; the gateway's routes are synced after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.envvars import read_env
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.core.worker.run import Run
from moorage.errors import NotFound, QuotaExceeded
from moorage.products.projects import service
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.logs import LogWriter
from moorage.products.projects.deployments.ready_images import ReadyImages
from moorage.products.projects.deployments.runner import Apps, CannotDeploy, Swap, Write
from moorage.products.projects.deployments.service import BuildDeployment, DeploymentEnded, PublishDeployment
from moorage.products.projects.deployments.states import DEPLOYMENT, DeploymentStatus
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.route_sync import SyncRoutes
from moorage.products.projects.tables import Preview, Project
from moorage.products.repositories.fetch import FetchFailed, Sources
from moorage.runtime.builds import ports
from moorage.runtime.builds.ports import (
    CHOSEN_BY_ENGINE,
    DEFAULT_CMD,
    DEFAULT_DIR,
    DOCKERFILE,
    BuildFailed,
    BuildRequest,
    ImageSettings,
    Plan,
    read_args,
)
from moorage.runtime.engines.ports import Programs
from moorage.runtime.images.references import PullFailed
from moorage.settings import Settings

STARTED_OVER = "The platform was restarted while this deployment ran; it starts over"
NOT_RUN_HERE = "The app was built, but this process cannot run apps: start the platform with `moorage up`"
UNDECRYPTABLE = "A secret of this project cannot be decrypted with the keys this platform has; nothing was changed"
OURS = "The platform could not finish this deployment; try again"


@dataclass(frozen=True)
class Pipeline:
    db: Database
    artifacts: ArtifactStore
    releases: Unpacked  # of sites
    programs: Programs
    sources: Sources
    builder: ports.Builds
    followers: Followers
    sync_routes: SyncRoutes
    images: ReadyImages
    apps: Apps | None = None  # None in a process that cannot run apps

    async def remove_unused(self, digests: Iterable[str]) -> None:
        """Delete those of the releases that nothing refers to."""
        unused = list(digests)
        await self.releases.remove_unused(self.db, unused)
        await self.programs.remove_unused(unused)

    async def clear_up(self) -> None:
        """Delete files of crashed builds; called before the first build."""
        await self.builder.clear_up()

    async def run_build(self, run: Run, job: BuildDeployment) -> None:
        deployment = await self._begin(run, job.org_id, job.deployment_id)
        if deployment is not None:
            await self._run_job(run, deployment, self._build)

    async def run_publish(self, run: Run, job: PublishDeployment) -> None:
        deployment = await self._begin(run, job.org_id, job.deployment_id)
        if deployment is not None:
            await self._run_job(run, deployment, self._publish)

    async def _build(self, write: Write, deployment: Deployment, log: LogWriter) -> None:
        if deployment.digest is None:
            deployment = await log.guard(self._fetch_and_build(write, deployment, log))
        if deployment.is_app:
            # Any worker may build; only app hosts run the result.
            await write(partial(deployments.publish, org_id=deployment.org_id, deployment=deployment))
        else:
            await self._publish(write, deployment, log)

    async def _run_job(
        self, run: Run, deployment: Deployment, work: Callable[[Write, Deployment, LogWriter], Awaitable[None]]
    ) -> None:
        """Run one job of a deployment, and record its failure."""
        write = _fenced(run, deployment)
        try:
            async with LogWriter(write, deployment.org_id, deployment.id, self.followers, self.db.env.clock.now) as log:
                try:
                    await work(write, deployment, log)
                except (CannotDeploy, FetchFailed, BuildFailed, PullFailed, QuotaExceeded) as error:
                    await log.finish()
                    end = partial(deployments.fail_if_open, org_id=deployment.org_id, deployment_id=deployment.id)
                    await write(partial(end, reason=str(error)))
        except DeploymentEnded:
            abandon = partial(deployments.abandon, org_id=deployment.org_id, deployment_id=deployment.id)
            await run.write(abandon)

    async def _begin(self, run: Run, org_id: int, deployment_id: int) -> Deployment | None:
        """Set a deployment to running; None where it has ended or was deleted."""

        def begin(tx: Tx) -> Deployment | None:
            deployment = deployments.find(tx, org_id, deployment_id)
            if deployment is None or deployment.status in DEPLOYMENT.terminal:
                return None
            if deployment.status == DeploymentStatus.QUEUED:
                deployments.begin(tx, org_id, deployment)
            elif run.attempt > 1 or not deployment.is_app:  # The first publish job of an app continues its build job.
                deployments.add_line(tx, org_id, deployment_id, STARTED_OVER)
            return deployments.find(tx, org_id, deployment_id)

        return await run.write(begin)

    async def _fetch_and_build(self, write: Write, deployment: Deployment, log: LogWriter) -> Deployment:
        """Fetch the source, build it, and store the artifact."""
        project, preview, env = await self._read(deployment, log)
        if project.source == "image":
            return await self._store_image(write, deployment, project, log)
        source = _Source(self.sources, write, deployment, log, self.apps)
        built = await self.builder.build(
            request_of(self.db.env.settings, project, preview, deployment, env), source, log
        )
        await log.finish()
        return await self._note_built(write, deployment, built.plan, built.digest, built.files)

    async def _store_image(self, write: Write, deployment: Deployment, project: Project, log: LogWriter) -> Deployment:
        """Resolve the reference of a ready image, and store the image."""
        owner = service.owner_of(deployment.id)
        image = await self.images.store(deployment.org_id, project.public_image or "", owner, log.say)
        await log.finish()
        plan = Plan("container", "docker", start=project.start_cmd or "", image=image)

        def note(tx: Tx) -> Deployment | None:
            digest = image.removeprefix("sha256:")
            deployments.set_built(tx, deployment.org_id, deployment, digest=digest, file_count=0, plan=plan)
            return deployments.find(tx, deployment.org_id, deployment.id)

        noted: Deployment | None = await write(note)
        assert noted is not None
        return noted

    async def _read(self, deployment: Deployment, log: LogWriter) -> tuple[Project, Preview | None, dict[str, str]]:
        """Return project, preview and environment. Code of a fork gets no secrets."""

        def read(tx: Tx) -> tuple[Project, Preview | None, dict[str, str], dict[str, str]]:
            project = service.get_by_id(tx, deployment.org_id, deployment.project_id)
            preview = service.find_preview(tx, deployment.org_id, deployment.preview_id)
            hidden = vault.values(tx, deployment.org_id, service.resource_of(project.id))
            secrets = {} if preview is not None and preview.is_fork else hidden
            return project, preview, {each.name: each.value for each in read_env(project.env)} | secrets, hidden

        try:
            project, preview, env, hidden = await self.db.read(read)
        except CannotDecrypt:
            raise CannotDeploy(UNDECRYPTABLE) from None
        except NotFound:
            raise CannotDeploy("The project was deleted") from None
        log.hide(hidden.values())
        return project, preview, env

    async def _note_built(
        self, write: Write, deployment: Deployment, plan: Plan, digest: str, files: int
    ) -> Deployment:
        def note(tx: Tx) -> Deployment | None:
            _store_kind(tx, deployment.org_id, deployment, plan)
            deployments.set_built(tx, deployment.org_id, deployment, digest=digest, file_count=files, plan=plan)
            return deployments.find(tx, deployment.org_id, deployment.id)

        noted: Deployment | None = await write(note)
        assert noted is not None
        return noted

    async def _publish(self, write: Write, deployment: Deployment, log: LogWriter) -> None:
        assert deployment.digest is not None
        files = "1 file" if deployment.file_count == 1 else f"{deployment.file_count} files"
        log.say(f"Publishing {files}" if deployment.file_count else "Publishing")
        await log.finish()
        if not deployment.is_app:
            await self.releases.ensure(self.artifacts, deployment.org_id, deployment.digest)
        elif not deployments.image_of(deployment):
            await self.programs.fetch(deployment.org_id, deployment.digest)
        if deployment.is_app:
            await self._swap(write, deployment, log)
        else:
            await self._go_live(write, deployment)
        dropped = await write(partial(_succeed, org_id=deployment.org_id, deployment=deployment))
        await self.remove_unused(dropped)

    async def _swap(self, write: Write, deployment: Deployment, log: LogWriter) -> None:
        """Start an app beside the live one; switch the routes once it is healthy."""
        if self.apps is None:
            raise CannotDeploy(NOT_RUN_HERE)
        await self.apps.bring_up(deployment, write, log)
        async with self.apps.watched(deployment) as measured:
            await self._go_live(write, deployment)
        swap = measured()
        await write(partial(deployments.set_swap, org_id=deployment.org_id, deployment=deployment, swap=swap))
        log.say(_describe(swap))
        await log.finish()

    async def _go_live(self, write: Write, deployment: Deployment) -> None:
        if not await write(partial(deployments.go_live, org_id=deployment.org_id, deployment=deployment)):
            raise CannotDeploy(deployments.OVERTAKEN)
        await self.sync_routes()


@dataclass(frozen=True)
class _Source:
    """Repository of a deployment."""

    sources: Sources
    write: Write
    deployment: Deployment
    log: LogWriter
    apps: Apps | None = None

    async def fetch(self, target: Path) -> None:
        deployment = self.deployment
        if deployment.repository_name is None:
            raise CannotDeploy("This project has no repository")
        fetched = await self.sources.fetch(
            deployment.org_id,
            deployment.repository_name,
            branch=deployment.branch or "main",
            commit=deployment.commit_sha,
            target=target,
            say=self.log.say,
        )
        note = partial(deployments.set_source, org_id=deployment.org_id, deployment=deployment)
        await self.write(partial(note, sha=fetched.sha, branch=fetched.branch))

    async def check(self, plan: Plan, folder: Path) -> None:
        if plan.kind != "static":
            return
        if problem := await self.sources.check_site(self.deployment.org_id, folder):
            raise CannotDeploy(problem)

    async def databases(self, plan: Plan) -> ports.BuildDatabases:
        if self.apps is None:
            return ports.BuildDatabases()
        return await self.apps.open_databases(self.deployment, plan, self.write, self.log)


def _describe(swap: Swap) -> str:
    failed = "none failed" if swap.failed == 0 else f"{swap.failed} failed"
    return f"Switched over: {swap.requests} requests meanwhile, {failed}, longest gap {swap.longest_gap_ms} ms"


def cache_of(project: Project, preview: Preview | None) -> str:
    """Return the name of the build cache.

    A fork gets its own cache, because its build could leave files for the next build, which has secrets.
    """
    own = service.cache_of(project)
    return f"{own}-pr-{preview.number}" if preview is not None and preview.is_fork else own


def request_of(
    settings: Settings, project: Project, preview: Preview | None, deployment: Deployment, env: dict[str, str]
) -> BuildRequest:
    """Return the request of a build. Code of a fork pulls no private images."""
    return BuildRequest(
        cache=cache_of(project, preview),
        source=CHOSEN_BY_ENGINE,
        wanted="auto" if project.is_auto else "container" if project.slug == "container" else "static",
        # An `auto` project stores the detected language, which is not a choice of the user.
        language="auto" if project.is_auto else project.language or "auto",
        base_dir=project.base_dir,
        build_dir=project.build_dir or DEFAULT_DIR,
        build_cmd=project.build_cmd if project.build_cmd is not None else DEFAULT_CMD,
        start_cmd=project.start_cmd or "",
        entry_point=project.entry_point or "",
        is_default_build=project.build_cmd in (None, DEFAULT_CMD) and project.build_dir in (None, DEFAULT_DIR),
        env=env,
        use_caches=deployment.kind != "rebuild",
        health_path="" if project.health_check_path in (None, "/") else project.health_check_path,
        image=ImageSettings(
            org_id=project.org_id,
            owner=service.owner_of(deployment.id),
            dockerfile=project.docker_file_path or DOCKERFILE,
            context=project.docker_build_context_dir or "./",
            args=read_args(project.docker_build_args) if project.docker_build_args else {},
            target=project.docker_build_target or "",
            has_credentials=preview is None or not preview.is_fork,
        ),
        project=project.name,
        url=service.url_of(settings, service.host_of(settings, (preview or project).name)),
    )


def _fenced(run: Run, deployment: Deployment) -> Write:
    """Return a write that raises LostLease or DeploymentEnded for a superseded job."""

    async def write(unit: Callable[[Tx], Any]) -> Any:
        def fenced(tx: Tx) -> Any:
            deployments.check_runs(tx, deployment.org_id, deployment.id)
            return unit(tx)

        return await run.write(fenced)

    return write


def _succeed(tx: Tx, org_id: int, deployment: Deployment) -> list[str]:
    project = service.get_by_id(tx, org_id, deployment.project_id)
    name = (service.find_preview(tx, org_id, deployment.preview_id) or project).name
    settings = tx.env.settings
    deployments.succeed(tx, org_id, deployment, f"Live at {service.url_of(settings, service.host_of(settings, name))}")
    return deployments.trim(tx, org_id, project)


def _store_kind(tx: Tx, org_id: int, deployment: Deployment, plan: Plan) -> None:
    """Store the detected kind of an `auto` project until its first release is live."""
    project = service.get_by_id(tx, org_id, deployment.project_id)
    if project.current_deployment_id is not None or deployment.preview_id is not None:
        return
    if project.is_auto:
        service.set_columns(tx, org_id, project, {"slug": plan.kind, "language": plan.language})
