"""Ownership of repositories, and the right to create one under an owner name.

The owner part of a name belongs to the first organization that used it, else to the organization with that slug. After
that organization was deleted, it stays reserved for 30 days. A repository belongs to the organization of its first
push. Other organizations get the same answer for a foreign, a forbidden and a missing repository.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable

import msgspec

from moorage.accounts.identity.organizations import freed_names
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.organizations.freed_names import NameKind
from moorage.core import jobs
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, AuditTarget
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.core.machines import service as machines
from moorage.errors import NotFound
from moorage.products.repositories import tables
from moorage.products.repositories.names import Name
from moorage.products.repositories.tables import Repository

FIRST_BRANCH = "main"
SHOWN = 200  # repositories in a list
SIMILARITY = 0.75  # of a mistyped name, by `difflib`


@dataclass(frozen=True, slots=True)
class Update:
    """Branch that a push created or moved; `old` is all zeros for a new branch."""

    branch: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Push:
    """Stored push. `repository` is spelled as in the first push; case is ignored."""

    org_id: int
    repository: str
    updates: tuple[Update, ...]
    actor: Actor
    deploys: bool = True  # False: the client starts the deployment itself, after it has set up the project


# Records a push in the transaction that starts its deployments; False where that was done already.
RecordPush = Callable[[Tx], bool]


class FollowPush(msgspec.Struct, frozen=True, tag="repositories.follow_push"):
    """Start the deployments of a push after a crash of the process that received it."""

    org_id: int
    repository_id: int
    updates: tuple[Update, ...]
    actor: Actor
    deploys: bool = True


class RemoveRepositories(msgspec.Struct, frozen=True, tag="repositories.remove"):
    """Delete the folders of deleted repositories."""

    ids: tuple[int, ...]


def find(tx: Tx, org_id: int, name: Name) -> Repository | None:
    """Return the organization's own repository of that name."""
    repository = _find_of_any(tx, name)
    return repository if repository is not None and repository.org_id == org_id else None


def find_by_id(tx: Tx, org_id: int, repository_id: int) -> Repository | None:
    return tx.find(tables.FIND_BY_ID, org_id=org_id, id=repository_id)


def newest(tx: Tx, org_id: int) -> list[Repository]:
    """Return the newest repositories of an organization."""
    return tx.all(tables.NEWEST_OF, org_id=org_id, most=SHOWN)


def get(tx: Tx, org_id: int, name: Name) -> Repository:
    repository = find(tx, org_id, name)
    if repository is None:
        raise NotFound(f"There is no repository {name}")
    return repository


def find_to_push(tx: Tx, org_id: int, name: Name) -> Repository | None:
    """Return the target of a push, or None if the push creates it; raises NotFound."""
    repository = _find_of_any(tx, name)
    if repository is not None and repository.org_id == org_id:
        return repository
    if repository is not None or not _may_use(tx, org_id, name.key.owner):
        raise NotFound(f"There is no repository {name} that you may push to{_hint(tx, org_id)}")
    return None


def begin_push(tx: Tx, org_id: int, name: Name, actor: Actor) -> Repository:
    """Return the repository of a push; the first push creates it."""
    if find_to_push(tx, org_id, name) is None and _add(tx, org_id, name) is not None:
        audit.record(tx, org_id, actor, "repository.created", AuditTarget("repository", str(name)))
    repository = find_to_push(tx, org_id, name)  # Raises if another organization's first push was faster.
    assert repository is not None
    if repository.machine_id == machines.UNOWNED and tx.env.machine.id:
        tx.run(tables.CLAIM, id=repository.id, machine_id=tx.env.machine.id)
    tx.run(tables.TOUCH, org_id=org_id, id=repository.id, now=tx.now)
    return repository


def finish_push(
    tx: Tx, org_id: int, repository: Repository, push: Push, *, size_bytes: int, default_branch: str
) -> None:
    """Record the state of a repository after a push."""
    tx.run(tables.FINISH, org_id=org_id, id=repository.id, size=size_bytes, branch=default_branch, now=tx.now)
    if push.updates:
        target = AuditTarget("repository", push.repository)
        branches = {update.branch: update.new for update in push.updates}
        audit.record(tx, org_id, push.actor, "repository.pushed", target, branches=branches)


def delete_all(tx: Tx, org_id: int) -> None:
    """Delete an organization's repositories; a job deletes their folders."""
    ids_of = defaultdict(list)
    for repository_id, machine_id in tx.all(tables.MACHINES_OF, org_id=org_id):
        ids_of[machine_id].append(repository_id)
    for owner in tx.all(tables.OWNERS_OF, org_id=org_id):
        freed_names.reserve(tx, org_id, NameKind.OWNER, owner)
    tx.run(tables.RELEASE_INSTALLATIONS, org_id=org_id, now=tx.now)
    tx.run(tables.DELETE_BINDINGS_OF, org_id=org_id)
    tx.run(tables.DELETE_OF, org_id=org_id)
    for machine_id, ids in ids_of.items():
        key = f"repositories:{org_id}:{machine_id}"
        jobs.add(tx, RemoveRepositories(tuple(ids)), key=key, machine_id=machine_id or None)


def find_hint(tx: Tx, org_id: int, name: Name) -> str | None:
    """Return a hint where a missing name was probably meant for the built-in git server."""
    own = {str(each.full_name).lower(): each.full_name for each in tx.all(tables.NEWEST_OF, org_id=org_id, most=1000)}
    missing = f"There is no repository {name} on the built-in git server"
    similar = difflib.get_close_matches(str(name.key), own, n=1, cutoff=SIMILARITY)
    if similar:
        return f"{missing}; did you mean {own[similar[0]]}?"
    owners = {each.key.owner for each in own.values()} | {orgs.get(tx, org_id).slug}
    if name.key.owner in owners:
        return f"{missing}; a push creates it: git push {tx.env.settings.api_url}/git/{name}.git"
    return None


@across_organizations("names are unique on the whole platform")
def _find_of_any(tx: Tx, name: Name) -> Repository | None:
    return tx.find(tables.FIND, owner_key=name.key.owner, name_key=name.key.name)


def _may_use(tx: Tx, org_id: int, owner: str) -> bool:
    """Return whether an organization may create repositories under a lower-case owner."""
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
        machine_id=tx.env.machine.id,
    )


@across_organizations("a machine has repositories of all organizations")
def claim(tx: Tx, has_folder: Callable[[int], bool]) -> None:
    """Become the owner of repositories from before machines had rows, if their folder is here."""
    for repository_id in tx.all(tables.UNOWNED):
        if tx.dialect == "sqlite" or has_folder(repository_id):
            tx.run(tables.CLAIM, id=repository_id, machine_id=tx.env.machine.id)


@across_organizations("a machine has repositories of all organizations")
def describe_held(tx: Tx, machine_id: int) -> list[str]:
    """Name the repositories of the built-in git server on a machine."""
    names = [f"{owner}/{name}" for owner, name in tx.all(tables.NAMES_OF_MACHINE, machine_id=machine_id)]
    return [f"repositories {', '.join(names)}"] if names else []


@across_organizations("a machine has repositories of all organizations")
def give_up(tx: Tx, machine_id: int) -> None:
    """Leave the repositories of a lost machine without content; the next push of each chooses another machine."""
    tx.run(tables.DISOWN, machine_id=machine_id)
