"""Projects that a push to the built-in git server creates.

A push to a repository that nothing uses creates a project, so that `git push` alone deploys. A client that creates the
project itself after the push must get the project that it asks for: a project that a push created gives way to it, as
long as no one changed it and it is new or was never live. Decision 43 has the reasons.
"""

from __future__ import annotations

import contextlib

import msgspec

from moorage.accounts.identity.organizations import service as orgs
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.ids import slugify
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound, QuotaExceeded
from moorage.products.projects import names, route_sync, service, tables
from moorage.products.projects.service import NewProject
from moorage.products.projects.tables import Project
from moorage.products.repositories import service as repositories
from moorage.products.repositories.names import Name, key_of, parse_name
from moorage.products.repositories.service import Push

DATABASE_CREATED = "project.database_created"  # action of the platform, in the audit log of the project
CAUSE = "push"  # in the audit log of a project that a push created
NEW_MS = 10 * MINUTE_MS  # how long a live project gives way to one that a client creates
MAX_NUMBER = 9  # of variations of a taken name

# Return whether another product uses a repository, or a project: takes the organization's id and a name or id.
USES_REPOSITORY: Hook[[Tx, int, str], bool] = Hook("repository.is_used")
USES_PROJECT: Hook[[Tx, int, int], bool] = Hook("project.is_used")
# Runs before a project that a push created is removed for one that a client creates.
GIVES_WAY: Hook[[Tx, int, Project], None] = Hook("project.gives_way")


@dataclass(frozen=True, slots=True)
class Created:
    """The project that a push created, or None, and a line for the git client."""

    project: Project | None
    line: str


def create(tx: Tx, org_id: int, push: Push) -> Created:
    """Create a project for the default branch of a repository that nothing uses."""
    nothing = f"Stored. No project uses {push.repository} yet: POST /v1/projects creates one"
    name, organization = parse_name(push.repository), orgs.get(tx, org_id)
    repository = repositories.find(tx, org_id, name) if name is not None else None
    is_pushed = repository is not None and repository.default_branch in {update.branch for update in push.updates}
    uses: list[bool] = tx.env.hooks.call(USES_REPOSITORY, tx, org_id, push.repository)
    if name is None or repository is None or not is_pushed or any(uses) or not organization.create_on_push:
        return Created(None, nothing)
    chosen = _free_name(tx, org_id, name)
    if chosen is None:
        return Created(None, f"{nothing}. None was created, because the names after {name} are taken")
    new = NewProject(
        chosen,
        None,
        is_auto=True,
        repository_name=push.repository,
        branch=repository.default_branch,
        auto_deploy=True,
    )
    try:
        with tx.savepoint():
            project = service.create(tx, org_id, push.actor, organization.standing, new, cause=CAUSE)
    except (QuotaExceeded, Conflict) as error:
        return Created(None, f"{nothing}. None was created: {error.message}")
    url = service.url_of(tx.env.settings, service.host_of(tx.env.settings, project.name))
    return Created(project, f"Created the project {project.name}, because none used {push.repository}: {url}")


def _free_name(tx: Tx, org_id: int, repository: Name) -> str | None:
    """Return a free project name after a repository."""
    plain, full = (slugify(text, "project") for text in (repository.name, f"{repository.owner}-{repository.name}"))
    candidates = [plain, full, *(f"{plain}-{number}" for number in range(2, MAX_NUMBER + 1))]
    return next((each for each in candidates if names.is_available(tx, org_id, each)), None)


def gives_way(tx: Tx, org_id: int, project: Project) -> bool:
    """Return whether a project was created by a push, is unchanged, and is new or never was live."""
    is_new = project.current_deployment_id is None or tx.now - project.created_at < NEW_MS
    uses: list[bool] = tx.env.hooks.call(USES_PROJECT, tx, org_id, project.id)
    if not is_new or any(uses):
        return False
    resource = service.resource_of(project.id)
    if any(vault.find_origin(tx, org_id, resource, name) is None for name in vault.names(tx, org_id, resource)):
        return False
    # Every change by a user is in the audit log. Older rows are of a former project of that name.
    rows = audit.latest_of(tx, org_id, service.target_of(project), before=None, most=10)
    own = [row for row in rows if row.at >= project.created_at and row.action != DATABASE_CREATED]
    return bool(own) and all(
        row.action == "project.created" and msgspec.json.decode(row.details).get("cause") == CAUSE for row in own
    )


def make_way(
    tx: Tx, org_id: int, actor: Actor, *, name: str = "", repository: str | None = None, branch: str | None = None
) -> None:
    """Remove projects that give way to a new resource of this name, or of this repository and branch."""
    holders = [] if not name else [service.find(tx, org_id, name)]
    if repository is not None:
        tracking = tx.all(tables.OF_REPOSITORY, repository=key_of(repository))
        holders += [each for each in tracking if each.org_id == org_id and each.branch == branch]
    for project in {each.id: each for each in holders if each is not None}.values():
        if gives_way(tx, org_id, project):
            with contextlib.suppress(NotFound), tx.savepoint():  # A concurrent request may have removed it.
                tx.env.hooks.call(GIVES_WAY, tx, org_id, project)
                service.delete(tx, org_id, actor, project.name)
            route_sync.request(tx)


def is_available(tx: Tx, org_id: int, name: str) -> bool:
    """Return whether an organization may create a project of a name."""
    if names.is_available(tx, org_id, name):
        return True
    holder = service.find(tx, org_id, name)
    return holder is not None and gives_way(tx, org_id, holder)
