"""Routes of repositories of the built-in git server."""

from __future__ import annotations

from moorage.accounts.identity.caller import Caller
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.products.repositories import service
from moorage.products.repositories.schemas import RepositoryItem

router = Router("Projects")


@router.get("/repositories")
def list_repositories(tx: Tx, caller: Caller) -> list[RepositoryItem]:
    """List the organization's newest 200 repositories of the built-in git server."""
    return [RepositoryItem.of(each, tx.env.settings) for each in service.newest(tx, caller.org_id)]
