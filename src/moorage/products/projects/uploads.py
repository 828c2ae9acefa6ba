"""Upload of a static site as a ZIP archive: check, unpack, scan, store, publish."""

from __future__ import annotations

import asyncio
import secrets
import shutil
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
from moorage.core.http import models
from moorage.core.http.forms import Form
from moorage.core.http.idempotency.once import Write
from moorage.core.http.route import Router, Upload
from moorage.core.kit.records import dataclass
from moorage.errors import Conflict, bad_field
from moorage.products.projects import pushed, schemas, service
from moorage.products.projects.deployments import routes as deployment_routes
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.service import DeploymentRequest
from moorage.products.projects.service import NewProject
from moorage.products.projects.tables import Project
from moorage.products.projects.unpacking import PACKED_BYTES
from moorage.runtime.sandbox.heavy import HeavyWork, Refused
from moorage.runtime.scan.service import ScanUnavailable

FIELD = "staticFiles"
UNPACKING = "moorage.products.projects.unpacking"


@dataclass(frozen=True, slots=True)
class Site:
    """Stored and unpacked site that no deployment refers to yet."""

    digest: str
    files: int
    owner: str  # of the artifact reference that is held until the deployment has its own


class Uploads:
    """Stores uploaded sites; the `module:function` in `finish` adds gateway files."""

    def __init__(
        self, db: Database, artifacts: ArtifactStore, releases: Unpacked, heavy: HeavyWork, *, finish: str
    ) -> None:
        self._db = db
        self._artifacts = artifacts
        self._releases = releases
        self._heavy = heavy
        self._finish = finish

    async def take(self, org_id: int, archive: Path) -> Site:
        """Check an archive and store its content; raises BadRequest and leaves no files."""
        scratch = self._releases.new_folder()
        try:
            site, packed = scratch / "site", scratch / "site.zip"
            settings = self._db.env.settings
            unpacked_bytes = await self._heavy.run(org_id, f"{UNPACKING}:measure", str(archive))
            disk.check_room(scratch, unpacked_bytes, settings.disk_reserve_mb)
            prepare = (f"{UNPACKING}:prepare", str(archive), str(site), str(packed), settings.clamd, self._finish)
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
        min_role=Role.MEMBER,
        upload=Upload((FIELD,), PACKED_BYTES, schemas.UploadForm),
        identifies=(("/v1/projects/{name}", "name"), ("/v1/deployments/{uuid}", "uploadId")),
        follow=deployment_routes.follow_deployment,
    )
    async def upload_site(caller: Caller, form: Form, write: Write) -> schemas.UploadResult:
        """Publish a ZIP archive, sent in the field `staticFiles`, as a static site.

        An archive for an existing uploaded project becomes its next deployment. `uploadId` is the uuid of that
        deployment and works with every route of deployments.
        """
        archive = form.files.get(FIELD)
        missing = {} if archive is not None else {FIELD: "is required: a ZIP archive"}
        fields = models.validate(schemas.UploadForm, form.fields, problems=missing)
        assert archive is not None
        await db.peek(partial(_check, org_id=caller.org_id, caller=caller, name=fields.name))
        site = await uploads.take(caller.org_id, archive.path)
        try:
            return await write(partial(_record, org_id=caller.org_id, caller=caller, name=fields.name, site=site))
        except BaseException:
            await uploads.drop(caller.org_id, site)
            raise

    return router


def _check(tx: Tx, org_id: int, caller: Caller, name: str) -> Project | None:
    """Return the project of an upload, None for a new one; raises Conflict."""
    project = service.find(tx, org_id, name)
    if project is not None and pushed.gives_way(tx, org_id, project):
        return None
    if project is None:
        assert caller.standing is not None
        service.check_may_create(tx, org_id, name, caller.standing)
    elif project.source != "upload":
        raise Conflict(f"The project {name!r} is deployed from a repository")
    elif not project.enabled:
        raise Conflict(f"The project {name!r} is disabled; enable it first")
    return project


def _record(tx: Tx, org_id: int, caller: Caller, name: str, site: Site) -> schemas.UploadResult:
    pushed.make_way(tx, org_id, caller.as_actor, name=name)
    project = _check(tx, org_id, caller, name)
    if project is None:
        assert caller.standing is not None
        new = NewProject(name, "static", source="upload")
        project = service.create(tx, org_id, caller.as_actor, caller.standing, new)
    request = DeploymentRequest("upload", user_id=caller.user_id, digest=site.digest, file_count=site.files)
    started = deployments.start(tx, org_id, project, request)
    artifact_service.unrefer(tx, org_id, site.owner)
    audit.record(tx, org_id, caller.as_actor, "project.uploaded", service.target_of(project), deployment=started.uuid)
    settings = tx.env.settings
    url = service.url_of(settings, service.host_of(settings, name))
    return schemas.UploadResult(project.id, name, started.id, started.uuid, url, site.files)
