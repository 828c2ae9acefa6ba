"""Sites that come as a ZIP archive: checked, unpacked, scanned, stored, published."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core import disk
from moorage.core.artifacts import service as artifact_service
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.audit import service as audit
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.forms import Form
from moorage.core.http.idempotency.once import Write
from moorage.core.http.models import validate
from moorage.core.http.route import Router, Upload
from moorage.errors import Conflict, bad_field
from moorage.products.projects import service
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.service import Asked
from moorage.products.projects.schemas import UploadForm, UploadResult
from moorage.products.projects.service import NewProject
from moorage.products.projects.tables import Project
from moorage.products.projects.unpacking import PACKED_BYTES
from moorage.runtime.sandbox.heavy import HeavyWork, Refused
from moorage.runtime.scan.service import ScanUnavailable

FIELD = "staticFiles"
WORK = "moorage.products.projects.unpacking"


@dataclass(frozen=True, slots=True)
class Site:
    """A site that is stored and unpacked, and that no deployment publishes yet."""

    digest: str
    files: int
    owner: str  # of the reference that keeps it until a deployment has its own


class Uploads:
    """`finish` names the function, as `module:function`, that makes a folder a release of the gateway."""

    def __init__(
        self, db: Database, artifacts: ArtifactStore, releases: Unpacked, heavy: HeavyWork, *, finish: str
    ) -> None:
        self._db = db
        self._artifacts = artifacts
        self._releases = releases
        self._heavy = heavy
        self._finish = finish

    async def take(self, org_id: int, archive: Path) -> Site:
        """Check an archive and keep its content; raises BadRequest, and leaves nothing behind when it does."""
        scratch = self._releases.new_folder()
        try:
            site, packed = scratch / "site", scratch / "site.zip"
            settings = self._db.env.settings
            unpacked_bytes = await self._heavy.run(org_id, f"{WORK}:measure", str(archive))
            disk.check_room(scratch, unpacked_bytes, settings.disk_reserve_mb)
            prepare = (f"{WORK}:prepare", str(archive), str(site), str(packed), settings.clamd, self._finish)
            prepared = await self._heavy.run(org_id, *prepare)
            if "unavailable" in prepared:
                raise ScanUnavailable(prepared["unavailable"])
            owner = f"deploy:{self._db.env.clock.now()}:{secrets.token_hex(8)}"
            stored = await self._artifacts.put_file(org_id, packed, owner=owner)
            await self._releases.place(stored.digest, site)
            return Site(stored.digest, prepared["files"], owner)
        except Refused as refused:
            raise bad_field(FIELD, str(refused)) from refused
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    def close(self) -> None:
        self._heavy.close()

    async def drop(self, org_id: int, site: Site) -> None:
        await self._db.write(partial(artifact_service.unrefer, org_id=org_id, owner=site.owner))


def make_router(db: Database, uploads: Uploads) -> Router:
    router = Router("Projects")

    @router.post(
        "/projects/static-upload",
        floor=Role.MEMBER,
        upload=Upload((FIELD,), PACKED_BYTES, UploadForm),
        identifies=(("/v1/projects/{name}", "name"), ("/v1/deployments/{uuid}", "uploadId")),
    )
    async def upload_site(caller: Caller, form: Form, write: Write) -> UploadResult:
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
            return await write(partial(_record, org_id=caller.org_id, caller=caller, name=sent.name, site=site))
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
