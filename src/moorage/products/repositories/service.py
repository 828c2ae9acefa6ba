"""Whose a repository is, and who may make one under which owner.

The owner part belongs to the first organization that used it, else to the one whose slug it is. It rests for 30 days
when that organization is gone. A repository belongs to the organization of its first push. To everybody else neither
exists: the answer is the same, whether a repository is somebody else's, may not be made, or is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from moorage.accounts.identity.organizations import freed_names
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.organizations.freed_names import NameKind
from moorage.core import jobs
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, Target
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.errors import NotFound
from moorage.products.repositories import tables
from moorage.products.repositories.names import Name
from moorage.products.repositories.tables import Repository

FIRST_BRANCH = "main"


@dataclass(frozen=True, slots=True)
class Update:
    """A branch that a push created or moved. `old` is all zeros where it was created."""

    branch: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Push:
    """A push that is stored. The repository is spelled as it was first pushed; case does not tell them apart."""

    org_id: int
    repository: str
    updates: tuple[Update, ...]
    actor: Actor


# Notes a push in the transaction that starts what follows it; False where that was done already.
Settle = Callable[[Tx], bool]


class FollowPush(msgspec.Struct, frozen=True, tag="repositories.follow_push"):
    """Do what follows a push whose process died after git had moved its branches."""

    org_id: int
    repository_id: int
    updates: tuple[Update, ...]
    actor: Actor


class RemoveRepositories(msgspec.Struct, frozen=True, tag="repositories.remove"):
    """Delete the folders of repositories whose rows are gone."""

    ids: tuple[int, ...]


def find(tx: Tx, org_id: int, name: Name) -> Repository | None:
    """Return the organization's own repository of that name."""
    found = _find_anybodys(tx, name)
    return found if found is not None and found.org_id == org_id else None


def find_by_id(tx: Tx, org_id: int, repository_id: int) -> Repository | None:
    return tx.find(tables.FIND_BY_ID, org_id=org_id, id=repository_id)


def get(tx: Tx, org_id: int, name: Name) -> Repository:
    found = find(tx, org_id, name)
    if found is None:
        raise NotFound(f"There is no repository {name}")
    return found


def find_to_push(tx: Tx, org_id: int, name: Name) -> Repository | None:
    """Return the repository that a push goes to, or None where the push would make it; raises NotFound."""
    found = _find_anybodys(tx, name)
    if found is not None and found.org_id == org_id:
        return found
    if found is not None or not _may_use(tx, org_id, name.key.owner):
        raise NotFound(f"There is no repository {name} that you may push to{_hint(tx, org_id)}")
    return None


def begin_push(tx: Tx, org_id: int, name: Name, actor: Actor) -> Repository:
    """Return the repository of a push that is about to be stored; the first one makes it."""
    if find_to_push(tx, org_id, name) is None and _add(tx, org_id, name) is not None:
        audit.record(tx, org_id, actor, "repository.created", Target("repository", str(name)))
    found = find_to_push(tx, org_id, name)  # Another's first push may have come between.
    assert found is not None
    tx.run(tables.TOUCH, org_id=org_id, id=found.id, now=tx.now)
    return found


def finish_push(
    tx: Tx, org_id: int, repository: Repository, push: Push, *, size_bytes: int, default_branch: str
) -> None:
    """Note what a push left behind."""
    tx.run(tables.FINISH, org_id=org_id, id=repository.id, size=size_bytes, branch=default_branch, now=tx.now)
    if push.updates:
        target = Target("repository", push.repository)
        branches = {update.branch: update.new for update in push.updates}
        audit.record(tx, org_id, push.actor, "repository.pushed", target, branches=branches)


def delete_all(tx: Tx, org_id: int) -> None:
    """Forget an organization's repositories; a job deletes their folders."""
    ids = tx.all(tables.IDS_OF, org_id=org_id)
    for owner in tx.all(tables.OWNERS_OF, org_id=org_id):
        freed_names.reserve(tx, org_id, NameKind.OWNER, owner)
    tx.run(tables.RELEASE_INSTALLATIONS, org_id=org_id, now=tx.now)
    tx.run(tables.DELETE_BINDINGS_OF, org_id=org_id)
    if ids:
        tx.run(tables.DELETE_OF, org_id=org_id)
        jobs.add(tx, RemoveRepositories(tuple(ids)), key=f"repositories:{org_id}")


@across_organizations("who has a name has it on the whole platform")
def _find_anybodys(tx: Tx, name: Name) -> Repository | None:
    return tx.find(tables.FIND, owner_key=name.key.owner, name_key=name.key.name)


def _may_use(tx: Tx, org_id: int, owner: str) -> bool:
    """Tell whether an organization may make repositories under an owner, which is in lower case."""
    first = tx.find(tables.FIRST_USER, owner_key=owner)
    if first is not None:
        return first == org_id
    named = orgs.find_by_slug(tx, owner)
    if named is not None:
        return named.id == org_id
    return not any(freed_names.is_reserved(tx, org_id, kind, owner) for kind in (NameKind.OWNER, NameKind.SLUG))


def _hint(tx: Tx, org_id: int) -> str:
    slug = orgs.get(tx, org_id).slug
    return f"; yours are named {slug}/..." if _may_use(tx, org_id, slug) else ""


@across_organizations("a slug must not be an owner that another organization uses")
def is_owner(tx: Tx, slug: str) -> bool:
    rests = freed_names.is_reserved(tx, 0, NameKind.OWNER, slug)
    return rests or tx.find(tables.FIRST_USER, owner_key=slug) is not None


def _add(tx: Tx, org_id: int, name: Name) -> int | None:
    return tx.find(
        tables.ADD,
        org_id=org_id,
        owner=name.owner,
        name=name.name,
        owner_key=name.key.owner,
        name_key=name.key.name,
        size_bytes=0,
        default_branch=FIRST_BRANCH,
        created_at=tx.now,
        updated_at=tx.now,
    )
