"""From a deployment's row to a live release: fetch, build, store, publish.

Every step can be repeated. A process that dies leaves a row that says `running` and a job whose lease runs out; the
next attempt starts over, or, where the artifact is stored already, goes on from there. What is live changes only in
the transaction of `go_live`, and the gateway's links follow that row.
"""

from __future__ import annotations

import asyncio
import secrets as random
import shutil
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked, walk
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.envvars import read_env
from moorage.core.kit import folders, zips_writer
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.vault import service as vault
from moorage.core.worker.run import Run
from moorage.errors import NotFound, QuotaExceeded
from moorage.products.projects import service, tables
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.logs import LogWriter
from moorage.products.projects.deployments.runner import Apps, CannotDeploy, Swap, Write
from moorage.products.projects.deployments.service import BuildDeployment, Ended, PublishDeployment
from moorage.products.projects.deployments.states import DEPLOYMENT, DeploymentStatus
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.route_sync import Settle
from moorage.products.projects.tables import Preview, Project
from moorage.products.repositories.fetch import Fetched, FetchFailed, Sources
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.detection.reading import folder_inside
from moorage.runtime.builds.ports import DEFAULT_CMD, DEFAULT_DIR, BuildFailed, BuildRequest, Built, Plan

STARTED_OVER = "The platform was restarted while this deployment was under way; it starts over"
NOT_RUN_HERE = "The app was built, but this process cannot run apps: start the platform with `moorage up`"
UNDECRYPTABLE = "A secret of this project cannot be decrypted with the keys this platform has; nothing was changed"
OURS = "The platform could not finish this deployment; try again"


@dataclass(frozen=True)
class Pipeline:
    db: Database
    artifacts: ArtifactStore
    releases: Unpacked  # of sites
    app_releases: Unpacked
    sources: Sources
    builder: Builder
    followers: Followers
    settle: Settle  # returns when the gateway serves what the store says
    apps: Apps | None = None  # None where nothing can be run

    def releases_of(self, found: Deployment) -> Unpacked:
        return self.app_releases if found.is_app else self.releases

    async def remove_unused(self, digests: Iterable[str]) -> None:
        """Remove the releases among these that nothing refers to."""
        for releases in (self.releases, self.app_releases):
            await releases.remove_unused(self.db, digests)

    async def clear_up(self) -> None:
        """Remove what builds left behind whose process died; called before any build of this process starts."""
        root = self.db.env.settings.folder("builds")
        left = list(root.iterdir()) if root.is_dir() else []
        for folder in left:
            await asyncio.to_thread(folders.remove, folder)

    async def run_build(self, run: Run, job: BuildDeployment) -> None:
        found = await self._begin(run, job.org_id, job.deployment_id)
        if found is not None:
            await self._see_through(run, found, self._build)

    async def run_publish(self, run: Run, job: PublishDeployment) -> None:
        found = await self._begin(run, job.org_id, job.deployment_id)
        if found is not None:
            await self._see_through(run, found, self._publish)

    async def _build(self, write: Write, found: Deployment, log: LogWriter) -> None:
        if found.digest is None:
            found = await log.guard(self._make(write, found, log))
        if found.is_app:
            # Built anywhere, it is run by who can run it.
            await write(partial(deployments.publish, org_id=found.org_id, deployment=found))
        else:
            await self._publish(write, found, log)

    async def _see_through(
        self, run: Run, found: Deployment, work: Callable[[Write, Deployment, LogWriter], Awaitable[None]]
    ) -> None:
        """Do a part of a deployment that was begun; one that is ended by others meanwhile is let be."""
        write = _fenced(run, found)
        try:
            async with LogWriter(write, found.org_id, found.id, self.followers, self.db.env.clock.now) as log:
                try:
                    await work(write, found, log)
                except (CannotDeploy, FetchFailed, BuildFailed, QuotaExceeded) as error:
                    await log.finish()
                    end = partial(deployments.fail_if_open, org_id=found.org_id, deployment_id=found.id)
                    await write(partial(end, reason=str(error)))
        except Ended:
            abandon = partial(deployments.abandon, org_id=found.org_id, deployment_id=found.id)
            await run.write(abandon)

    async def _begin(self, run: Run, org_id: int, deployment_id: int) -> Deployment | None:
        """Take a deployment up; None where it has ended, or gone with its project."""

        def begin(tx: Tx) -> Deployment | None:
            found = deployments.find(tx, org_id, deployment_id)
            if found is None or found.status in DEPLOYMENT.terminal:
                return None
            if found.status == DeploymentStatus.QUEUED:
                deployments.begin(tx, org_id, found)
            elif run.attempt > 1 or not found.is_app:  # An app is handed on by who built it.
                deployments.add_line(tx, org_id, deployment_id, STARTED_OVER)
            return deployments.find(tx, org_id, deployment_id)

        return await run.write(begin)

    async def _make(self, write: Write, found: Deployment, log: LogWriter) -> Deployment:
        """Fetch and build, and store what came of it."""
        project, preview, env = await self._read(found, log)
        scratch = self._scratch(found)
        try:
            await asyncio.to_thread(scratch.mkdir, parents=True, mode=0o700)
            fetched = await self._fetch(found, scratch / "source", log)
            note = partial(deployments.set_source, org_id=found.org_id, deployment=found)
            await write(partial(note, sha=fetched.sha, branch=fetched.branch))
            built = await self.builder.build(_request(project, preview, found, scratch / "source", env), log)
            await log.finish()
            if built.plan.kind == "static" and (problem := await self.sources.check_site(built.folder)):
                raise CannotDeploy(problem)
            base = folder_inside(scratch / "source", project.base_dir, "baseDir")
            return await self._store(write, found, replace(built, plan=replace(built.plan, base=base)), scratch)
        finally:
            await asyncio.to_thread(folders.remove, scratch)

    async def _read(self, found: Deployment, log: LogWriter) -> tuple[Project, Preview | None, dict[str, str]]:
        """Return what is to be deployed, with its variables. A fork's code gets no secrets."""

        def read(tx: Tx) -> tuple[Project, Preview | None, dict[str, str], dict[str, str]]:
            project = service.get_by_id(tx, found.org_id, found.project_id)
            preview = (
                tx.find(tables.FIND_PREVIEW_BY_ID, org_id=found.org_id, id=found.preview_id)
                if found.preview_id is not None
                else None
            )
            hidden = vault.values(tx, found.org_id, service.resource_of(project.id))
            given = {} if preview is not None and preview.is_fork else hidden
            return project, preview, {each.name: each.value for each in read_env(project.env)} | given, hidden

        try:
            project, preview, env, hidden = await self.db.read(read)
        except CannotDecrypt:
            raise CannotDeploy(UNDECRYPTABLE) from None
        except NotFound:
            raise CannotDeploy("The project was deleted") from None
        log.hide(hidden.values())
        return project, preview, env

    async def _fetch(self, found: Deployment, target: Path, log: LogWriter) -> Fetched:
        target.mkdir()
        if found.repository_name is None:
            raise CannotDeploy("This project has no repository")
        return await self.sources.fetch(
            found.org_id,
            found.repository_name,
            branch=found.branch or "main",
            commit=found.commit_sha,
            target=target,
            say=log.say,
        )

    async def _store(self, write: Write, found: Deployment, built: Built, scratch: Path) -> Deployment:
        """Keep what was built as an artifact, and put it where it is served or run from."""
        files = await asyncio.to_thread(_count_files, built.folder)
        packed = scratch / "site.zip"
        await asyncio.to_thread(zips_writer.pack, built.folder, packed)
        stored = await self.artifacts.put_file(found.org_id, packed, owner=service.owner_of(found.id))
        releases = self.app_releases if built.plan.kind == "container" else self.releases
        await place(releases, stored.digest, built.folder)

        def note(tx: Tx) -> Deployment | None:
            _note_kind(tx, found.org_id, found, built.plan)
            deployments.set_built(tx, found.org_id, found, digest=stored.digest, file_count=files, plan=built.plan)
            return deployments.find(tx, found.org_id, found.id)

        noted: Deployment | None = await write(note)
        assert noted is not None
        return noted

    async def _publish(self, write: Write, found: Deployment, log: LogWriter) -> None:
        assert found.digest is not None
        files = "1 file" if found.file_count == 1 else f"{found.file_count} files"
        log.say(f"Publishing {files}" if found.file_count else "Publishing")
        await log.finish()
        await self.releases_of(found).ensure(self.artifacts, found.org_id, found.digest)
        if found.is_app:
            await self._swap(write, found, log)
        else:
            await self._go_live(write, found)
        dropped = await write(partial(_succeed, org_id=found.org_id, deployment=found))
        await self.remove_unused(dropped)

    async def _swap(self, write: Write, found: Deployment, log: LogWriter) -> None:
        """Start an app beside the one that serves, and let it take over once it is healthy."""
        if self.apps is None:
            raise CannotDeploy(NOT_RUN_HERE)
        await self.apps.bring_up(found, write, log)
        async with self.apps.watched(found) as measured:
            await self._go_live(write, found)
        swap = measured()
        await write(partial(deployments.set_swap, org_id=found.org_id, deployment=found, measured=swap))
        log.say(_told(swap))
        await log.finish()

    async def _go_live(self, write: Write, found: Deployment) -> None:
        if not await write(partial(deployments.go_live, org_id=found.org_id, deployment=found)):
            raise CannotDeploy(deployments.OVERTAKEN)
        await self.settle()

    def _scratch(self, found: Deployment) -> Path:
        return self.db.env.settings.folder("builds") / f"{found.id}-{random.token_hex(4)}"


async def place(releases: Unpacked, digest: str, folder: Path) -> None:
    """Move a folder to where its release belongs, as if it had been unpacked from the artifact."""
    fresh = releases.new_folder()
    try:
        await asyncio.to_thread(_move_in, folder, fresh / "package")
        await asyncio.to_thread(releases.finish, fresh / "package")
        await releases.place(digest, fresh / "package")
    finally:
        await asyncio.to_thread(shutil.rmtree, fresh, ignore_errors=True)


def _move_in(folder: Path, target: Path) -> None:
    # A rename where it can be one: both are in the data folder.
    shutil.move(folder, target)


def _told(swap: Swap) -> str:
    failed = "none failed" if swap.failed == 0 else f"{swap.failed} failed"
    return f"Took over: {swap.requests} requests meanwhile, {failed}, longest gap {swap.longest_gap_ms} ms"


def _count_files(folder: Path) -> int:
    return sum(path.is_file() for path in walk(folder))


def cache_of(project: Project, preview: Preview | None) -> str:
    """Return the name of the build cache.

    The moment of creation is part of it: after a restore of the store the same ids are given out again. A fork gets a
    cache of its own, because its build could leave something there for the next build, which has secrets.
    """
    own = f"project-{project.org_id}-{project.id}-{project.created_at}"
    return f"{own}-pr-{preview.number}" if preview is not None and preview.is_fork else own


def _request(
    project: Project, preview: Preview | None, found: Deployment, source: Path, env: dict[str, str]
) -> BuildRequest:
    return BuildRequest(
        cache=cache_of(project, preview),
        source=source,
        wanted="auto" if project.is_auto else "container" if project.slug == "container" else "static",
        # What was found out the last time is not what somebody chose.
        language="auto" if project.is_auto else project.language or "auto",
        base_dir=project.base_dir,
        build_dir=project.build_dir or DEFAULT_DIR,
        build_cmd=project.build_cmd if project.build_cmd is not None else DEFAULT_CMD,
        start_cmd=project.start_cmd or "",
        entry_point=project.entry_point or "",
        is_default_build=project.build_cmd in (None, DEFAULT_CMD) and project.build_dir in (None, DEFAULT_DIR),
        env=env,
        use_caches=found.kind != "rebuild",
    )


def _fenced(run: Run, found: Deployment) -> Write:
    """Let a job write only while its lease is its own and its deployment is under way; raises LostLease and Ended."""

    async def write(unit: Callable[[Tx], Any]) -> Any:
        def fenced(tx: Tx) -> Any:
            deployments.check_runs(tx, found.org_id, found.id)
            return unit(tx)

        return await run.write(fenced)

    return write


def _succeed(tx: Tx, org_id: int, deployment: Deployment) -> list[str]:
    project = service.get_by_id(tx, org_id, deployment.project_id)
    name = project.name
    if deployment.preview_id is not None:
        preview = tx.find(tables.FIND_PREVIEW_BY_ID, org_id=org_id, id=deployment.preview_id)
        name = preview.name if preview is not None else name
    settings = tx.env.settings
    deployments.succeed(tx, org_id, deployment, f"Live at {service.url_of(settings, service.host_of(settings, name))}")
    return deployments.trim(tx, org_id, project)


def _note_kind(tx: Tx, org_id: int, deployment: Deployment, plan: Plan) -> None:
    """Remember what an `auto` project turned out to be, as long as nothing of it is live: that is what it is then."""
    project = service.get_by_id(tx, org_id, deployment.project_id)
    if project.current_deployment_id is not None or deployment.preview_id is not None:
        return
    if project.is_auto:
        service.set_columns(tx, org_id, project, {"slug": plan.kind, "language": plan.language})
