"""Wiring of registries, and the sources of images that use their credentials."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.records import dataclass
from moorage.core.net import registry_mirrors
from moorage.core.product import Product
from moorage.core.worker.run import Handlers
from moorage.products.registries import routes, service
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.sign_in import Credentials
from moorage.runtime.images.sources import Sources

UNDECRYPTABLE = "the credentials of its registry cannot be decrypted with the keys this platform has"


@dataclass(frozen=True)
class Registries(Product):
    paths = ("/v1/registries",)

    db: Database

    @property
    def sources(self) -> Sources:
        """Return the sources of images: guarded, with mirrors and the organizations' credentials."""
        settings = self.db.env.settings
        mirrors = registry_mirrors.parse(settings.registry_mirrors)
        return Sources(
            settings.targets, credentials=self.find_credentials, mirrors=mirrors, authorities=settings.extra_ca
        )

    async def find_credentials(self, org_id: int, registry: str) -> Credentials | None:
        try:
            return await self.db.read(partial(service.find_credentials, org_id=org_id, host=registry))
        except CannotDecrypt:
            raise PullFailed(UNDECRYPTABLE) from None

    def routers(self) -> Sequence[Router]:
        return [routes.router]

    def register(self, handlers: Handlers) -> None:
        handlers.listen(OrganizationDeleted, _delete_all)


@across_organizations("the event names the organization")
def _delete_all(tx: Tx, event: OrganizationDeleted) -> None:
    service.delete_all(tx, event.org_id)
