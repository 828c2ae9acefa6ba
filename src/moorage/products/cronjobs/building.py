"""Builds of cronjobs: requested, built once per commit, and kept for the runs.

A build uses the sources, detection, sandbox and artifact store of projects. The result differs: nothing is published,
and runs use the newest build that succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from moorage.core import jobs
from moorage.core.artifacts import service as artifacts
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx, move
from moorage.core.jobs import Lane
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.envvars import read_env
from moorage.core.kit.ids import new_uuid
from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import one_line
from moorage.core.vault import service as vault
from moorage.core.worker.run import Handlers, Run
from moorage.errors import NotFound, QuotaExceeded
from moorage.products.cronjobs import tables
from moorage.products.cronjobs.states import BUILD, CRONJOB, BuildStatus, CronjobStatus
from moorage.products.cronjobs.tables import Build, Cronjob
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.logs import LogWriter
from moorage.products.projects.deployments.runner import Write
from moorage.products.projects.deployments.service import UNCOUNTED_MS
from moorage.products.projects.deployments.tables import Line
from moorage.products.repositories.fetch import FetchFailed, Sources
from moorage.runtime.builds import ports
from moorage.runtime.builds.ports import (
    CHOSEN_BY_ENGINE,
    DOCKERFILE,
    BuildDatabases,
    BuildFailed,
    BuildRequest,
    ImageSettings,
    Plan,
    read_args,
)

MAX_BUILD_ATTEMPTS = 3  # Attempts that end with the worker process within UNCOUNTED_MS do not count.
KEPT_BUILDS = 3  # builds of a cronjob that are kept besides the current one
MAX_LOG_LINES = 100_000
SUPERSEDED = "A newer build of this cronjob was requested before this one started"
STARTED_OVER = "The platform was restarted while this build was under way; it starts over"
UNDECRYPTABLE = "A secret of this cronjob cannot be decrypted with the keys this platform has"
PLATFORM_FAILED = "The platform could not finish this build; try again"
# Columns of a cronjob that determine the result of a build.
BUILD_INPUTS = (
    "repository_name", "language", "base_dir", "build_cmd", "start_cmd", "command", "env", "dockerfile_path",
    "docker_build_context_dir", "docker_build_args", "docker_build_target",
)  # fmt: skip


class BuildCronjob(msgspec.Struct, frozen=True, tag="cronjobs.build"):
    """Fetch and build the source of a cronjob."""

    org_id: int
    build_id: int


class CannotBuild(Exception):
    """Fails a build; the text becomes the last line of its log."""


class CronjobDeleted(Exception):
    """The cronjob was deleted while its build was running."""


def start(tx: Tx, org_id: int, cronjob: Cronjob, commit: str | None = None) -> Build:
    """Request a build of the branch head, or of a commit; supersedes queued builds."""
    for waiting in tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=cronjob.id):
        if waiting.status == BuildStatus.QUEUED:
            _end(tx, org_id, waiting, SUPERSEDED)
    build_id = tx.one(
        tables.ADD_BUILD,
        uuid=new_uuid(),
        org_id=org_id,
        cronjob_id=cronjob.id,
        status=BuildStatus.QUEUED,
        branch=cronjob.branch,
        commit_sha=commit,
        digest=None,
        plan=None,
        settings=_build_inputs(tx, org_id, cronjob),
        reason=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    to = CronjobStatus.DEPLOYING if cronjob.status == CronjobStatus.PENDING else CronjobStatus.UPDATING
    if cronjob.status not in (CronjobStatus.DEPLOYING, CronjobStatus.UPDATING):
        move(tx, CRONJOB, cronjob, to=to)
    key = f"cronjob-build:{cronjob.id}"
    jobs.add(tx, BuildCronjob(org_id, build_id), key=key, lane=Lane.HEAVY, max_attempts=MAX_BUILD_ATTEMPTS)
    return get(tx, org_id, build_id)


def _build_inputs(tx: Tx, org_id: int, cronjob: Cronjob) -> str:
    """Encode the inputs of a build as JSON; secrets only by name."""
    inputs = {name: getattr(cronjob, name) for name in BUILD_INPUTS}
    return msgspec.json.encode(inputs | {"secrets": vault.names(tx, org_id, cronjob.resource)}).decode()


def is_newest_good(tx: Tx, org_id: int, cronjob: Cronjob) -> bool:
    """Return whether the newest build succeeded."""
    builds = tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=cronjob.id)
    return bool(builds) and builds[0].status == BuildStatus.SUCCEEDED


@across_organizations("organizations share artifacts with the same digest")
def is_used(tx: Tx, digest: str) -> bool:
    """Return whether any build refers to the artifact."""
    return tx.find(tables.IS_USED, of_digest=digest) is not None


def get(tx: Tx, org_id: int, build_id: int) -> Build:
    build = tx.find(tables.FIND_BUILD, org_id=org_id, id=build_id)
    if build is None:
        raise _no_build()
    return build


def get_by_uuid(tx: Tx, org_id: int, cronjob: Cronjob, uuid: str) -> Build:
    build = tx.find(tables.FIND_BUILD_BY_UUID, org_id=org_id, uuid=uuid)
    if build is None or build.cronjob_id != cronjob.id:
        raise _no_build()
    return build


def lines(tx: Tx, org_id: int, build: Build, after: int = 0) -> list[Line]:
    return tx.all(tables.LINES_AFTER, org_id=org_id, build_id=build.id, seq=after, most=MAX_LOG_LINES)


def owner_of(build_id: int) -> str:
    """Return the name under which a build holds its artifact reference."""
    return f"cronjob-build:{build_id}"


@dataclass(frozen=True)
class BuildLines:
    """Stores the log of a build as rows; the `lines` of a LogWriter."""

    def last_seq(self, tx: Tx, org_id: int, owner_id: int) -> int:
        return tx.one(tables.LAST_SEQ, org_id=org_id, build_id=owner_id)

    def add(self, tx: Tx, org_id: int, owner_id: int, lines: Sequence[Line]) -> None:
        rows = [
            {
                "org_id": org_id,
                "build_id": owner_id,
                "seq": each.seq,
                "at": each.at,
                "stream": each.stream,
                "message": each.message,
            }
            for each in lines
        ]
        tx.run_many(tables.ADD_LINE, rows)


@dataclass(frozen=True)
class Builds:
    db: Database
    sources: Sources
    builder: ports.Builds
    followers: Followers

    async def handle(self, run: Run, job: BuildCronjob) -> None:
        claimed = await run.write(partial(_begin, org_id=job.org_id, build_id=job.build_id, attempt=run.attempt))
        if claimed is None:
            return
        build, cronjob = claimed
        write = _fenced(run, build)
        try:
            clock = self.db.env.clock
            async with LogWriter(write, build.org_id, build.id, self.followers, clock.now, lines=BuildLines()) as log:
                try:
                    await log.guard(self._build(write, build, cronjob, log))
                except (CannotBuild, FetchFailed, BuildFailed, QuotaExceeded) as error:
                    log.say(str(error))
                    await log.finish()
                    await write(partial(_fail, org_id=build.org_id, build_id=build.id, why=str(error)))
        except CronjobDeleted:
            await run.write(partial(remove, org_id=build.org_id, build=build))

    async def _build(self, write: Write, build: Build, cronjob: Cronjob, log: LogWriter) -> None:
        env = await self._read_env(cronjob, log)
        source = _Source(self.db, self.sources, write, build, cronjob, log)
        try:
            built = await self.builder.build(_request(cronjob, build, env), source, log)
        except _BuiltBefore as before:
            log.say("This commit was built before with the same settings: its artifact is used again")
            await log.finish()
            await write(partial(_reuse, org_id=build.org_id, build=build, other=before.build))
            return
        await log.finish()
        plan = msgspec.json.encode(built.plan).decode()
        await write(partial(_succeed, org_id=build.org_id, build=build, digest=built.digest, plan=plan))

    async def _read_env(self, cronjob: Cronjob, log: LogWriter) -> dict[str, str]:
        try:
            hidden = await self.db.read(lambda tx: vault.values(tx, cronjob.org_id, cronjob.resource))
        except CannotDecrypt:
            raise CannotBuild(UNDECRYPTABLE) from None
        log.hide(hidden.values())
        return {each.name: each.value for each in read_env(cronjob.env)} | hidden


class _BuiltBefore(Exception):
    """The artifact of an earlier build is used again."""

    def __init__(self, build: Build) -> None:
        super().__init__()
        self.build = build


@dataclass(frozen=True)
class _Source:
    """Repository of a cronjob."""

    db: Database
    sources: Sources
    write: Write
    build: Build
    cronjob: Cronjob
    log: LogWriter

    async def fetch(self, target: Path) -> None:
        """Fetch the commit; raises _BuiltBefore if its artifact is stored."""
        build = self.build
        fetched = await self.sources.fetch(
            build.org_id,
            self.cronjob.repository_name or "",
            branch=build.branch or "main",
            commit=build.commit_sha,
            target=target,
            say=self.log.say,
        )
        await self.write(
            partial(_record_source, org_id=build.org_id, build=build, sha=fetched.sha, branch=fetched.branch)
        )
        earlier = await self.db.read(partial(_find_same, org_id=build.org_id, build=build, sha=fetched.sha))
        if earlier is not None:
            raise _BuiltBefore(earlier)

    async def check(self, plan: Plan, folder: Path) -> None:
        """Accept all files: a cronjob publishes none."""

    async def databases(self, plan: Plan) -> BuildDatabases:
        """Return none: databases are linked to projects."""
        return BuildDatabases()


def register(handlers: Handlers, builds: Builds) -> None:
    handlers.add(BuildCronjob, builds.handle, on_failure=_give_up, uncounted_ms=UNCOUNTED_MS)


def _fenced(run: Run, build: Build) -> Write:
    """Fence the writes of a job; they raise LostLease or CronjobDeleted."""

    async def write(unit: Callable[[Tx], Any]) -> Any:
        def fenced(tx: Tx) -> Any:
            cronjob = tx.find(tables.LOCK_BY_ID, org_id=build.org_id, id=build.cronjob_id)
            if cronjob is None or cronjob.status == CronjobStatus.DELETING:
                raise CronjobDeleted
            return unit(tx)

        return await run.write(fenced)

    return write


def _record_source(tx: Tx, org_id: int, build: Build, sha: str, branch: str) -> None:
    tx.run(tables.SET_BUILD_SOURCE, org_id=org_id, id=build.id, sha=sha, of_branch=branch, now=tx.now)


def _reuse(tx: Tx, org_id: int, build: Build, other: Build) -> None:
    """Finish a build with the artifact of an earlier one."""
    assert other.digest is not None
    assert other.plan is not None
    artifacts.share(tx, org_id, owner_of(other.id), owner_of(build.id))
    _succeed(tx, org_id, build, other.digest, other.plan)


def cache_of(cronjob: Cronjob) -> str:
    # After a database restore ids are assigned again; the creation time keeps the names unique.
    return f"cronjob-{cronjob.org_id}-{cronjob.id}-{cronjob.created_at}"


def _request(cronjob: Cronjob, build: Build, env: dict[str, str]) -> BuildRequest:
    return BuildRequest(
        cache=cache_of(cronjob),
        source=CHOSEN_BY_ENGINE,
        wanted="container",
        language=cronjob.language or "auto",
        base_dir=cronjob.base_dir or "./",
        build_dir="",
        build_cmd=cronjob.build_cmd or "",
        start_cmd=cronjob.command or cronjob.start_cmd or "",
        entry_point="",
        is_default_build=not cronjob.build_cmd,
        env=env,
        use_caches=True,
        image=ImageSettings(
            org_id=cronjob.org_id,
            owner=owner_of(build.id),
            dockerfile=cronjob.dockerfile_path or DOCKERFILE,
            context=cronjob.docker_build_context_dir or "./",
            args=read_args(cronjob.docker_build_args) if cronjob.docker_build_args else {},
            target=cronjob.docker_build_target or "",
        ),
    )


def _begin(tx: Tx, org_id: int, build_id: int, attempt: int) -> tuple[Build, Cronjob] | None:
    """Move a build to running; None where it has ended or its cronjob is deleted."""
    build = tx.find(tables.FIND_BUILD, org_id=org_id, id=build_id)
    if build is None or build.status in BUILD.terminal:
        return None
    cronjob = tx.find(tables.FIND_BY_ID, org_id=org_id, id=build.cronjob_id)
    if cronjob is None or cronjob.status == CronjobStatus.DELETING:
        return None
    if build.status == BuildStatus.QUEUED:
        move(tx, BUILD, build, to=BuildStatus.RUNNING)
    elif attempt > 1:
        seq = tx.one(tables.LAST_SEQ, org_id=org_id, build_id=build.id) + 1
        BuildLines().add(tx, org_id, build.id, [Line(seq, tx.now, "system", STARTED_OVER)])
    return build, cronjob


def _find_same(tx: Tx, org_id: int, build: Build, sha: str) -> Build | None:
    """Find an earlier build of the same commit and settings with a kept artifact."""
    for other in tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=build.cronjob_id):
        is_same = (other.commit_sha, other.settings) == (sha, build.settings)
        if is_same and other.status == BuildStatus.SUCCEEDED and other.digest is not None:
            return other
    return None


def _succeed(tx: Tx, org_id: int, build: Build, digest: str, plan: str) -> None:
    """Record the artifact; the next run uses it."""
    tx.run(tables.SET_BUILT, org_id=org_id, id=build.id, of_digest=digest, of_plan=plan, now=tx.now)
    move(tx, BUILD, build, to=BuildStatus.SUCCEEDED)
    cronjob = tx.find(tables.LOCK_BY_ID, org_id=org_id, id=build.cronjob_id)
    assert cronjob is not None  # The fenced write has locked the row.
    tx.run(tables.SET["build_id"], org_id=org_id, id=cronjob.id, new=build.id, now=tx.now)
    _end_deploying(tx, org_id, cronjob, CronjobStatus.RUNNING)
    trim(tx, org_id, cronjob.id, build.id)


def _fail(tx: Tx, org_id: int, build_id: int, why: str) -> None:
    build = tx.find(tables.FIND_BUILD, org_id=org_id, id=build_id)
    if build is None or build.status in BUILD.terminal:
        return
    _end(tx, org_id, build, why)
    cronjob = tx.find(tables.LOCK_BY_ID, org_id=org_id, id=build.cronjob_id)
    if cronjob is not None and cronjob.status != CronjobStatus.DELETING:
        _end_deploying(tx, org_id, cronjob, CronjobStatus.FAILED)


def _end(tx: Tx, org_id: int, build: Build, why: str) -> None:
    move(tx, BUILD, build, to=BuildStatus.FAILED, reason=one_line(why))


def _end_deploying(tx: Tx, org_id: int, cronjob: Cronjob, to: CronjobStatus) -> None:
    """Move a cronjob out of deploying or updating, unless another build is open."""
    builds = tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=cronjob.id)
    has_open_build = any(each.status not in BUILD.terminal for each in builds)
    if has_open_build or cronjob.status not in (CronjobStatus.DEPLOYING, CronjobStatus.UPDATING):
        return
    if to == CronjobStatus.RUNNING and not cronjob.is_active:
        to = CronjobStatus.PAUSED
    move(tx, CRONJOB, cronjob, to=to)


def trim(tx: Tx, org_id: int, cronjob_id: int, current: int) -> None:
    """Delete unused builds, keeping the latest KEPT_BUILDS and those of open runs."""
    others = [each for each in tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=cronjob_id) if each.id != current]
    in_use = {each.build_id for each in tx.all(tables.OPEN_OF, org_id=org_id, cronjob_id=cronjob_id)}
    for build in others[KEPT_BUILDS:]:
        if build.status in BUILD.terminal and build.id not in in_use:
            remove(tx, org_id, build)


def remove(tx: Tx, org_id: int, build: Build) -> None:
    artifacts.unrefer(tx, org_id, owner_of(build.id))
    tx.run(tables.DELETE_LINES, org_id=org_id, build_id=build.id)
    tx.run(tables.DELETE_BUILD, org_id=org_id, id=build.id)


@across_organizations("the job names the organization")
def _give_up(tx: Tx, job: BuildCronjob) -> None:
    _fail(tx, job.org_id, job.build_id, PLATFORM_FAILED)


def _no_build() -> NotFound:
    return NotFound("There is no such build")
