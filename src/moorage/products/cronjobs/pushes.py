"""Rebuilds cronjobs with autoDeploy when their branch is pushed."""

from __future__ import annotations

from moorage.accounts.webhooks.service import GithubEvent
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.products.cronjobs import building, tables
from moorage.products.cronjobs.tables import Cronjob
from moorage.products.projects import github
from moorage.products.repositories.names import key_of
from moorage.products.repositories.service import Push


def on_push(tx: Tx, org_id: int, push: Push) -> list[str]:
    """Build the cronjobs of a push to the built-in git server.

    Returns lines for the terminal of the pusher.
    """
    lines = []
    moved = {update.branch: update.new for update in push.updates}
    for cronjob in _cronjobs(tx, push.repository):
        if cronjob.org_id != org_id or cronjob.branch not in moved:
            continue
        if cronjob.auto_deploy:
            building.start(tx, org_id, cronjob, moved[cronjob.branch])
            lines.append(f"Building cronjob {cronjob.name} ({moved[cronjob.branch][:12]})")
        else:
            lines.append(f"Cronjob {cronjob.name} is not built on push (autoDeploy is off)")
    return lines


def uses_repository(tx: Tx, org_id: int, repository: str) -> bool:
    return any(cronjob.org_id == org_id for cronjob in _cronjobs(tx, repository))


@across_organizations("cronjobs of any organization may use the repository")
def on_github_push(tx: Tx, event: GithubEvent) -> None:
    pushed = github.read_push(event)
    if pushed is None:
        return
    for cronjob in _cronjobs(tx, pushed.repository):
        is_wanted = cronjob.auto_deploy and cronjob.branch == pushed.branch
        if is_wanted and github.concerns(tx, cronjob.org_id, event, pushed.repository):
            building.start(tx, cronjob.org_id, cronjob, pushed.sha)


@across_organizations("cronjobs of any organization may use the repository")
def _cronjobs(tx: Tx, repository: str) -> list[Cronjob]:
    return tx.all(tables.OF_REPOSITORY, repository=key_of(repository))
