"""What a cronjob is built into: asked for, built once for each commit, and kept for its runs.

The build itself is the one of projects: the same sources, the same detection, the same sandbox and artifact store. Only
what becomes of it differs: nothing is published, and the newest build that succeeded is what runs.
"""

from __future__ import annotations

import asyncio
import secrets as random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from moorage.core import jobs
from moorage.core.artifacts import service as artifacts
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx, move
from moorage.core.http.envvars import read_env
from moorage.core.jobs import Lane
from moorage.core.kit import folders, zips_writer
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.ids import new_uuid
from moorage.core.vault import service as vault
from moorage.core.worker.run import Handlers, Run
from moorage.errors import NotFound, QuotaExceeded
from moorage.products.cronjobs import tables
from moorage.products.cronjobs.states import BUILD, CRONJOB, BuildStatus, CronjobStatus
from moorage.products.cronjobs.tables import Build, Cronjob
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.logs import LogWriter
from moorage.products.projects.deployments.pipeline import place
from moorage.products.projects.deployments.runner import Write
from moorage.products.projects.deployments.service import UNCOUNTED_MS
from moorage.products.projects.deployments.tables import Line
from moorage.products.repositories.fetch import FetchFailed, Sources
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.detection.reading import folder_inside
from moorage.runtime.builds.ports import BuildFailed, BuildRequest, Built

TRIES = 3  # of a build whose process died, once such ends count
KEPT = 3  # builds of a cronjob whose artifacts are kept besides the one that runs
MOST_LINES = 100_000
SUPERSEDED = "A newer build of this cronjob was asked for before this one started"
STARTED_OVER = "The platform was restarted while this build was under way; it starts over"
UNDECRYPTABLE = "A secret of this cronjob cannot be decrypted with the keys this platform has"
OURS = "The platform could not finish this build; try again"
# What of a cronjob decides what comes of a build.
DECIDE = ("repository_name", "language", "base_dir", "build_cmd", "start_cmd", "command", "env")


class BuildCronjob(msgspec.Struct, frozen=True, tag="cronjobs.build"):
    """Fetch and build what a cronjob runs."""

    org_id: int
    build_id: int


class CannotBuild(Exception):
    """A build cannot go on; the text is its last line."""


class Gone(Exception):
    """Nobody wants a build any more: its cronjob was deleted."""


def start(tx: Tx, org_id: int, found: Cronjob, commit: str | None = None) -> Build:
    """Ask for a build of the head of the branch, or of a commit. One that still waits is superseded."""
    for waiting in tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=found.id):
        if waiting.status == BuildStatus.QUEUED:
            _end(tx, org_id, waiting, SUPERSEDED)
    build_id = tx.one(
        tables.ADD_BUILD,
        uuid=new_uuid(),
        org_id=org_id,
        cronjob_id=found.id,
        status=BuildStatus.QUEUED,
        branch=found.branch,
        commit_sha=commit,
        digest=None,
        plan=None,
        settings=_deciding(tx, org_id, found),
        reason=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    to = CronjobStatus.DEPLOYING if found.status == CronjobStatus.PENDING else CronjobStatus.UPDATING
    if found.status not in (CronjobStatus.DEPLOYING, CronjobStatus.UPDATING):
        move(tx, CRONJOB, found, to=to)
    key = f"cronjob-build:{found.id}"
    jobs.add(tx, BuildCronjob(org_id, build_id), key=key, lane=Lane.HEAVY, max_attempts=TRIES)
    return get(tx, org_id, build_id)


def _deciding(tx: Tx, org_id: int, found: Cronjob) -> str:
    """Return what decides about a build as one text. Of secrets only the names: they are read while it is built."""
    told = {name: getattr(found, name) for name in DECIDE} | {"secrets": vault.names(tx, org_id, found.resource)}
    return msgspec.json.encode(told).decode()


def is_last_good(tx: Tx, org_id: int, found: Cronjob) -> bool:
    """Tell whether the newest build can be run."""
    builds = tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=found.id)
    return bool(builds) and builds[0].status == BuildStatus.SUCCEEDED


@across_organizations("content is stored once for everybody")
def is_used(tx: Tx, digest: str) -> bool:
    """Tell whether any build came to this, and may be run."""
    return tx.find(tables.IS_USED, of_digest=digest) is not None


def get(tx: Tx, org_id: int, build_id: int) -> Build:
    found = tx.find(tables.FIND_BUILD, org_id=org_id, id=build_id)
    if found is None:
        raise _no_build()
    return found


def get_by_uuid(tx: Tx, org_id: int, cronjob: Cronjob, uuid: str) -> Build:
    found = tx.find(tables.FIND_BUILD_BY_UUID, org_id=org_id, uuid=uuid)
    if found is None or found.cronjob_id != cronjob.id:
        raise _no_build()
    return found


def lines(tx: Tx, org_id: int, build: Build, after: int = 0) -> list[Line]:
    return tx.all(tables.LINES_AFTER, org_id=org_id, build_id=build.id, seq=after, most=MOST_LINES)


def owner_of(build_id: int) -> str:
    """Return what holds the reference to a build's artifact."""
    return f"cronjob-build:{build_id}"


@dataclass(frozen=True)
class BuildLines:
    """Where the log of a build is kept."""

    def last_seq(self, tx: Tx, org_id: int, owner_id: int) -> int:
        return tx.one(tables.LAST_SEQ, org_id=org_id, build_id=owner_id)

    def add(self, tx: Tx, org_id: int, owner_id: int, lines: Sequence[Line]) -> None:
        given = [
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
        tx.run_many(tables.ADD_LINE, given)


@dataclass(frozen=True)
class Builds:
    db: Database
    artifacts: ArtifactStore
    releases: Unpacked  # where runs find their files
    sources: Sources
    builder: Builder
    followers: Followers

    async def handle(self, run: Run, job: BuildCronjob) -> None:
        begun = await run.write(partial(_begin, org_id=job.org_id, build_id=job.build_id, attempt=run.attempt))
        if begun is None:
            return
        build, cronjob = begun
        write = _fenced(run, build)
        try:
            clock = self.db.env.clock
            async with LogWriter(write, build.org_id, build.id, self.followers, clock.now, lines=BuildLines()) as log:
                try:
                    await log.guard(self._make(write, build, cronjob, log))
                except (CannotBuild, FetchFailed, BuildFailed, QuotaExceeded) as error:
                    log.say(str(error))
                    await log.finish()
                    await write(partial(_fail, org_id=build.org_id, build_id=build.id, why=str(error)))
        except Gone:
            await run.write(partial(remove, org_id=build.org_id, build=build))

    async def _make(self, write: Write, build: Build, cronjob: Cronjob, log: LogWriter) -> None:
        env = await self._read(cronjob, log)
        scratch = self.db.env.settings.folder("builds") / f"c{build.id}-{random.token_hex(4)}"
        try:
            source = scratch / "source"
            await asyncio.to_thread(source.mkdir, parents=True, mode=0o700)
            fetched = await self.sources.fetch(
                build.org_id,
                cronjob.repository_name or "",
                branch=build.branch or "main",
                commit=build.commit_sha,
                target=source,
                say=log.say,
            )
            note = partial(_note_source, org_id=build.org_id, build=build, sha=fetched.sha, branch=fetched.branch)
            await write(note)
            built_before = await self.db.read(partial(_same, org_id=build.org_id, build=build, sha=fetched.sha))
            if built_before is not None:
                log.say("This commit was built before with the same settings: that is what is run")
                await log.finish()
                await write(partial(_take, org_id=build.org_id, build=build, other=built_before))
                return
            built = await self.builder.build(_request(cronjob, source, env), log)
            await log.finish()
            base = folder_inside(source, cronjob.base_dir or "./", "baseDir")
            await self._store(write, build, replace(built, plan=replace(built.plan, base=base)), scratch)
        finally:
            await asyncio.to_thread(folders.remove, scratch)

    async def _read(self, cronjob: Cronjob, log: LogWriter) -> dict[str, str]:
        try:
            hidden = await self.db.read(lambda tx: vault.values(tx, cronjob.org_id, cronjob.resource))
        except CannotDecrypt:
            raise CannotBuild(UNDECRYPTABLE) from None
        log.hide(hidden.values())
        return {each.name: each.value for each in read_env(cronjob.env)} | hidden

    async def _store(self, write: Write, build: Build, built: Built, scratch: Path) -> None:
        packed = scratch / "job.zip"
        await asyncio.to_thread(zips_writer.pack, built.folder, packed)
        stored = await self.artifacts.put_file(build.org_id, packed, owner=owner_of(build.id))
        await place(self.releases, stored.digest, built.folder)
        plan = msgspec.json.encode(built.plan).decode()
        await write(partial(_succeed, org_id=build.org_id, build=build, digest=stored.digest, plan=plan))


def register(handlers: Handlers, builds: Builds) -> None:
    handlers.add(BuildCronjob, builds.handle, on_failure=_give_up, uncounted_ms=UNCOUNTED_MS)


def _fenced(run: Run, build: Build) -> Write:
    """Let a job write only while its lease is its own and its cronjob is there; raises LostLease and Gone."""

    async def write(unit: Callable[[Tx], Any]) -> Any:
        def fenced(tx: Tx) -> Any:
            cronjob = tx.find(tables.LOCK_BY_ID, org_id=build.org_id, id=build.cronjob_id)
            if cronjob is None or cronjob.status == CronjobStatus.DELETING:
                raise Gone
            return unit(tx)

        return await run.write(fenced)

    return write


def _note_source(tx: Tx, org_id: int, build: Build, sha: str, branch: str) -> None:
    tx.run(tables.SET_BUILD_SOURCE, org_id=org_id, id=build.id, sha=sha, of_branch=branch, now=tx.now)


def _take(tx: Tx, org_id: int, build: Build, other: Build) -> None:
    """Let an earlier build's artifact be what comes of this one."""
    assert other.digest is not None
    assert other.plan is not None
    artifacts.refer(tx, org_id, other.digest, owner_of(build.id))
    _succeed(tx, org_id, build, other.digest, other.plan)


def cache_of(cronjob: Cronjob) -> str:
    """Return the name of the build cache; after a restore of the store the same ids are given out again."""
    return f"cronjob-{cronjob.org_id}-{cronjob.id}-{cronjob.created_at}"


def _request(cronjob: Cronjob, source: Path, env: dict[str, str]) -> BuildRequest:
    return BuildRequest(
        cache=cache_of(cronjob),
        source=source,
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
    )


def _begin(tx: Tx, org_id: int, build_id: int, attempt: int) -> tuple[Build, Cronjob] | None:
    """Take a build up; None where it has ended, or gone with its cronjob."""
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


def _same(tx: Tx, org_id: int, build: Build, sha: str) -> Build | None:
    """Return an earlier build of the same commit with the same settings, as long as its artifact is kept."""
    for other in tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=build.cronjob_id):
        is_same = (other.commit_sha, other.settings) == (sha, build.settings)
        if is_same and other.status == BuildStatus.SUCCEEDED and other.digest is not None:
            return other
    return None


def _succeed(tx: Tx, org_id: int, build: Build, digest: str, plan: str) -> None:
    """Let what was built be what runs, from the next run on."""
    tx.run(tables.SET_BUILT, org_id=org_id, id=build.id, of_digest=digest, of_plan=plan, now=tx.now)
    move(tx, BUILD, build, to=BuildStatus.SUCCEEDED)
    cronjob = tx.find(tables.LOCK_BY_ID, org_id=org_id, id=build.cronjob_id)
    assert cronjob is not None  # Who writes for a build has seen to that.
    tx.run(tables.SET["build_id"], org_id=org_id, id=cronjob.id, new=build.id, now=tx.now)
    _settle(tx, org_id, cronjob, CronjobStatus.RUNNING)
    trim(tx, org_id, cronjob.id, build.id)


def _fail(tx: Tx, org_id: int, build_id: int, why: str) -> None:
    build = tx.find(tables.FIND_BUILD, org_id=org_id, id=build_id)
    if build is None or build.status in BUILD.terminal:
        return
    _end(tx, org_id, build, why)
    cronjob = tx.find(tables.LOCK_BY_ID, org_id=org_id, id=build.cronjob_id)
    if cronjob is not None and cronjob.status != CronjobStatus.DELETING:
        _settle(tx, org_id, cronjob, CronjobStatus.FAILED)


def _end(tx: Tx, org_id: int, build: Build, why: str) -> None:
    move(tx, BUILD, build, to=BuildStatus.FAILED, reason=why)


def _settle(tx: Tx, org_id: int, cronjob: Cronjob, to: CronjobStatus) -> None:
    """Give a cronjob the status that the end of a build means, unless another build waits already."""
    open_ones = [
        each
        for each in tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=cronjob.id)
        if each.status not in BUILD.terminal
    ]
    if open_ones or cronjob.status not in (CronjobStatus.DEPLOYING, CronjobStatus.UPDATING):
        return
    if to == CronjobStatus.RUNNING and not cronjob.is_active:
        to = CronjobStatus.PAUSED
    move(tx, CRONJOB, cronjob, to=to)


def trim(tx: Tx, org_id: int, cronjob_id: int, current: int) -> None:
    """Let go of builds that nobody runs any more, but for a few."""
    others = [each for each in tx.all(tables.BUILDS_OF, org_id=org_id, cronjob_id=cronjob_id) if each.id != current]
    in_use = {each.build_id for each in tx.all(tables.OPEN_OF, org_id=org_id, cronjob_id=cronjob_id)}
    for build in others[KEPT:]:
        if build.status in BUILD.terminal and build.id not in in_use:
            remove(tx, org_id, build)


def remove(tx: Tx, org_id: int, build: Build) -> None:
    artifacts.unrefer(tx, org_id, owner_of(build.id))
    tx.run(tables.DELETE_LINES, org_id=org_id, build_id=build.id)
    tx.run(tables.DELETE_BUILD, org_id=org_id, id=build.id)


@across_organizations("the job names the organization")
def _give_up(tx: Tx, job: BuildCronjob) -> None:
    _fail(tx, job.org_id, job.build_id, OURS)


def _no_build() -> NotFound:
    return NotFound("There is no such build")
