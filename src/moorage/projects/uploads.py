"""Sites that come as a ZIP archive: checked, unpacked, scanned, stored, published."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from moorage.artifacts import service as artifact_service
from moorage.artifacts.store import ArtifactStore
from moorage.artifacts.unpacked import Unpacked
from moorage.audit import service as audit
from moorage.builds.collect import OWN
from moorage.db.store import Database
from moorage.db.tx import Tx
from moorage.errors import Conflict, bad_field
from moorage.http.forms import Form
from moorage.http.models import validate
from moorage.http.request import Request
from moorage.http.route import Router, Upload
from moorage.identity.caller import Caller
from moorage.identity.roles import Role
from moorage.kit import folders, zips, zips_writer
from moorage.projects import deployments, pipeline, service
from moorage.projects.deployments import Asked
from moorage.projects.schemas import UploadForm, UploadResult
from moorage.projects.service import NewProject
from moorage.projects.tables import Project
from moorage.scan.service import Scanner

T = TypeVar("T")

MB = 2**20
FIELD = "staticFiles"
PACKED_BYTES = 30 * MB
UPLOADED = zips.Caps(packed_bytes=PACKED_BYTES, unpacked_bytes=512 * MB, entries=20_000)
AT_ONCE = 2  # Packing and unpacking keep a core busy.


@dataclass(frozen=True, slots=True)
class Site:
    """A site that is stored and unpacked, and that no deployment publishes yet."""

    digest: str
    files: int
    owner: str  # of the reference that keeps it until a deployment has its own


class Uploads:
    def __init__(self, db: Database, artifacts: ArtifactStore, releases: Unpacked, scanner: Scanner) -> None:
        self._db = db
        self._artifacts = artifacts
        self._releases = releases
        self._scanner = scanner
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="uploads")

    async def take(self, org_id: int, archive: Path) -> Site:
        """Check an archive and keep its content; raises BadRequest, and leaves nothing behind when it does."""
        scratch = self._releases.new_folder()
        try:
            await self._artifacts.check_room(await self._in_thread(_unpacked_size, archive))
            files = await self._in_thread(_unpack, archive, scratch / "site")
            found = await self._in_thread(self._scanner.check, scratch / "site")
            if found is not None:
                raise bad_field(FIELD, f"{found.file}: {found.why} ({found.rule})")
            await self._in_thread(zips_writer.pack, scratch / "site", scratch / "site.zip")
            owner = f"deploy:{self._db.env.clock.now()}:{secrets.token_hex(8)}"
            stored = await self._artifacts.put_file(org_id, scratch / "site.zip", owner=owner)
            await pipeline.place(self._releases, stored.digest, scratch / "site")
            return Site(stored.digest, files, owner)
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    async def drop(self, org_id: int, site: Site) -> None:
        await self._db.write(partial(artifact_service.unrefer, org_id=org_id, owner=site.owner))

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args))


def make_router(db: Database, uploads: Uploads) -> Router:
    router = Router("Projects")

    @router.post("/projects/static-upload", floor=Role.MEMBER, upload=Upload((FIELD,), PACKED_BYTES, UploadForm))
    async def upload_site(caller: Caller, request: Request, form: Form) -> UploadResult:
        """Publish a ZIP archive as a static site, in the field `staticFiles`.

        An archive for a project of yours that was uploaded before is its next deployment. `uploadId` is that
        deployment's uuid: follow it as any other.
        """
        sent = validate(UploadForm, form.fields)
        archive = form.files.get(FIELD)
        if archive is None:
            raise bad_field(FIELD, "is required: a ZIP archive")
        await db.peek(partial(_check, org_id=caller.org_id, caller=caller, name=sent.name))
        site = await uploads.take(caller.org_id, archive.path)
        try:
            return await db.write(partial(_record, org_id=caller.org_id, caller=caller, name=sent.name, site=site))
        except BaseException:
            await uploads.drop(caller.org_id, site)
            raise

    return router


def _check(tx: Tx, org_id: int, caller: Caller, name: str) -> Project | None:
    """Return the project that an upload is for, or None for a new one; raises what keeps it from being either."""
    found = service.find(tx, org_id, name)
    if found is None:
        assert caller.standing is not None
        service.check_may_create(tx, org_id, name, caller.standing)
    elif found.source != "upload":
        raise Conflict(f"The project {name!r} is deployed from a repository")
    elif not found.enabled:
        raise Conflict(f"The project {name!r} is disabled; enable it first")
    return found


def _record(tx: Tx, org_id: int, caller: Caller, name: str, site: Site) -> UploadResult:
    project = _check(tx, org_id, caller, name)
    if project is None:
        assert caller.standing is not None
        new = NewProject(name, "static", source="upload")
        project = service.create(tx, org_id, caller.as_actor, caller.standing, new)
    asked = Asked("upload", user_id=caller.user_id, digest=site.digest, file_count=site.files)
    made = deployments.start(tx, org_id, project, asked)
    artifact_service.unrefer(tx, org_id, site.owner)
    audit.record(tx, org_id, caller.as_actor, "project.uploaded", service.target_of(project), deployment=made.uuid)
    settings = tx.env.settings
    url = service.url_of(settings, service.host_of(settings, name))
    return UploadResult(project.id, name, made.id, made.uuid, url, site.files)


def _unpacked_size(archive: Path) -> int:
    try:
        return sum(entry.size for entry in zips.inspect(archive, UPLOADED))
    except zips.BadArchive as error:
        raise bad_field(FIELD, str(error)) from error


def _unpack(archive: Path, folder: Path) -> int:
    """Unpack a site and return how many files it has."""
    try:
        entries = zips.extract(archive, folder, UPLOADED, strip_top=True)
    except zips.BadArchive as error:
        raise bad_field(FIELD, str(error)) from error
    # The platform's own place in a release; what lies there decides how a site is served.
    folders.remove(folder / OWN)
    files = sum(not entry.is_folder and not entry.name.startswith(f"{OWN}/") for entry in entries)
    if not files:
        raise bad_field(FIELD, "the archive has no file in it")
    return files
