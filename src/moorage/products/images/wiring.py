"""Wiring of pushed images."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.dispatch import Mount
from moorage.core.kit.records import dataclass
from moorage.core.product import Product
from moorage.core.worker.run import Handlers
from moorage.products.images import collecting, deploying, service
from moorage.products.images.blob_http import Blobs
from moorage.products.images.http import PREFIX, ImageServer
from moorage.products.images.manifest_http import Manifests
from moorage.products.images.uploads import Uploads
from moorage.products.projects import service as projects
from moorage.products.projects.deployments.ready_images import FIND_PUSHED


@dataclass(frozen=True)
class Images(Product):
    db: Database
    server: ImageServer
    uploads: Uploads
    manifests: Manifests

    @classmethod
    def make(cls, db: Database, artifacts: ArtifactStore, gate: IdentityGate) -> Images:
        uploads, manifests = Uploads(db.env.settings), Manifests(db, artifacts)
        return cls(db, ImageServer(db, gate, Blobs(db, artifacts, uploads), manifests), uploads, manifests)

    def mounts(self) -> Sequence[Mount]:
        return [Mount(PREFIX, self.server.handle)]

    def register(self, handlers: Handlers) -> None:
        collecting.register(handlers, self.uploads, self.manifests)
        handlers.listen(OrganizationDeleted, _remove_all)
        hooks = self.db.env.hooks
        hooks.add(projects.REMOVE, "images", service.leave_project)
        hooks.add(FIND_PUSHED, "images", deploying.find_pushed)


@across_organizations("the event names the organization")
def _remove_all(tx: Tx, event: OrganizationDeleted) -> None:
    service.remove_all(tx, event.org_id)
