"""What a push to a repository starts: the cronjobs that are built from it, and want that, are built anew."""

from __future__ import annotations

from moorage.accounts.webhooks.service import GithubEvent
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.products.cronjobs import building, tables
from moorage.products.cronjobs.tables import Cronjob
from moorage.products.projects import github
from moorage.products.repositories.service import Push


def on_push(tx: Tx, org_id: int, push: Push) -> list[str]:
    """Build what a push to the built-in git server is for; return the lines that whoever pushed sees."""
    said = []
    moved = {update.branch: update.new for update in push.updates}
    for found in _cronjobs(tx, push.repository):
        if found.org_id != org_id or found.branch not in moved:
            continue
        if found.auto_deploy:
            building.start(tx, org_id, found, moved[found.branch])
            said.append(f"Building cronjob {found.name} ({moved[found.branch][:12]})")
        else:
            said.append(f"Cronjob {found.name} is not built on push (autoDeploy is off)")
    return said


@across_organizations("the repository decides whose cronjob it is")
def on_github_push(tx: Tx, event: GithubEvent) -> None:
    pushed = github.read_push(event)
    if pushed is None:
        return
    for found in _cronjobs(tx, pushed.repository):
        is_wanted = found.auto_deploy and found.branch == pushed.branch
        if is_wanted and github.concerns(tx, found.org_id, event, pushed.repository):
            building.start(tx, found.org_id, found, pushed.sha)


@across_organizations("the repository decides whose cronjob it is")
def _cronjobs(tx: Tx, repository: str) -> list[Cronjob]:
    return tx.all(tables.OF_REPOSITORY, repository=repository.lower())
