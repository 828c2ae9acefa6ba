"""Functions: create, deploy, update, roll back and delete them.

A version is immutable. The current version is one column of the function, so a switch is atomic; every change that
concerns the edge increments `revision` in the same statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import msgspec

from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core import jobs
from moorage.core.artifacts import service as artifacts
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, AuditTarget
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.kit.ids import token_preview
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound
from moorage.products.functions import tables, variables
from moorage.products.functions.packages import Package
from moorage.products.functions.records import tables as records
from moorage.products.functions.tables import Function, Version

# `GET /v1/functions/token` is another route, so a function of that name could never be read.
RESERVED = frozenset(("token",))
MAX_VERSION = 2**31 - 1


class PurgeFunction(msgspec.Struct, frozen=True, tag="functions.forget"):
    """Remove a deleted function from the edge, and its unused code and logs from disk."""

    org_id: int
    function_id: int
    digests: list[str]


# Removes the data of other products that belongs to a function: takes the organization's id and the function's.
REMOVE: Hook[[Tx, int, int], None] = Hook("function.remove")


@dataclass(frozen=True, slots=True)
class NewFunction:
    """Requested settings of a new function."""

    name: str
    runtime: str
    timeout_ms: int
    memory_mb: int
    description: str | None
    network: str
    raw_http: bool
    own_options: bool
    env: str = variables.NONE  # JSON: a list of {name, value}
    secrets: Mapping[str, str] = field(default_factory=dict)


_IN_VAULT = ("env", "secrets")  # All other fields are columns of the function.


def find(tx: Tx, org_id: int, name: str) -> Function | None:
    return tx.find(tables.FIND, org_id=org_id, name=name)


def get(tx: Tx, org_id: int, name: str) -> Function:
    function = find(tx, org_id, name)
    if function is None:
        raise _no_function()
    return function


def find_by_id(tx: Tx, org_id: int, function_id: int) -> Function | None:
    return tx.find(tables.FIND_BY_ID, org_id=org_id, id=function_id)


def page(tx: Tx, org_id: int, *, offset: int, most: int) -> list[Function]:
    return tx.all(tables.PAGE, org_id=org_id, offset=offset, most=most)


def count(tx: Tx, org_id: int) -> int:
    return tx.one(tables.COUNT, org_id=org_id)


def versions(tx: Tx, org_id: int, function: Function) -> list[Version]:
    """Return all versions, newest first."""
    return tx.all(tables.VERSIONS, org_id=org_id, function_id=function.id)


def get_version(tx: Tx, org_id: int, name: str, number: int) -> Version:
    function = get(tx, org_id, name)
    version = next((each for each in versions(tx, org_id, function) if each.version == number), None)
    if version is None:
        raise NotFound("There is no such version")
    return version


def masked_token(tx: Tx, org_id: int) -> str:
    token = vault.find(tx, org_id, "organization", "function_token")
    if token is None:
        raise NotFound("This organization has no function token")
    return token_preview(token)


def check_may_create(tx: Tx, org_id: int, name: str, standing: Standing) -> None:
    """Raise Conflict or a quota error before the code of a new function is processed."""
    if name in RESERVED:
        raise Conflict(f"cannot create function {name!r}: the name is reserved")
    if find(tx, org_id, name) is not None:
        raise _name_taken(name)
    plans.check_room(tx, org_id, standing, "functions")


def create(tx: Tx, org_id: int, actor: Actor, standing: Standing, new: NewFunction, package: Package) -> Function:
    """Create a function with its first version."""
    check_may_create(tx, org_id, new.name, standing)
    function_id = tx.find(
        tables.ADD,
        org_id=org_id,
        **{name: getattr(new, name) for name in NewFunction.__slots__ if name not in _IN_VAULT},
        current_version=1,
        last_version=1,
        revision=1,
        created_at=tx.now,
        updated_at=tx.now,
    )
    if function_id is None:
        raise _name_taken(new.name)
    function = _get_by_id(tx, org_id, function_id)
    _add_version(tx, org_id, function, package)
    variables.put_env(tx, org_id, function_id, new.env)
    for name, value in new.secrets.items():
        vault.put(tx, org_id, variables.secrets_of(function_id), name, value)
    details = {"runtime": new.runtime} | ({"secrets": sorted(new.secrets)} if new.secrets else {})
    audit.record(tx, org_id, actor, "function.created", _target(function), **details)
    return function


def deploy(tx: Tx, org_id: int, actor: Actor, function_id: int, package: Package) -> Function:
    """Add a version and make it current; raises NotFound if the function was deleted."""
    function = tx.find(tables.NEXT_VERSION, org_id=org_id, id=function_id, now=tx.now)
    if function is None:
        raise _no_function()
    _add_version(tx, org_id, function, package)
    audit.record(tx, org_id, actor, "function.deployed", _target(function), version=function.current_version)
    return function


def update(
    tx: Tx,
    org_id: int,
    actor: Actor,
    name: str,
    changes: dict[str, Any],
    secrets: Sequence[tuple[str, str | None]] | None = None,
) -> Function:
    """Update settings (by column name), variables (`env`) and secrets, if given."""
    function = _lock(tx, org_id, name)
    resource = variables.secrets_of(function.id)
    put, removed = vault.replace_all(tx, org_id, resource, secrets) if secrets is not None else ([], [])
    if put or removed:
        audit.record(tx, org_id, actor, "function.secrets_changed", _target(function), set=put, removed=removed)
    elif not changes:
        return function
    if "env" in changes:
        variables.put_env(tx, org_id, function.id, changes["env"])
    settings = {f"new_{column}": changes.get(column, getattr(function, column)) for column in tables.SETTINGS}
    tx.run(tables.UPDATE, org_id=org_id, id=function.id, now=tx.now, **settings)
    if changes:
        audit.record(tx, org_id, actor, "function.updated", _target(function), changed=sorted(changes))
    return _get_by_id(tx, org_id, function.id)


def reveal(tx: Tx, org_id: int, actor: Actor, name: str, secret: str) -> str:
    """Return a secret's value and record the caller in the audit log."""
    function = get(tx, org_id, name)
    value = vault.find(tx, org_id, variables.secrets_of(function.id), secret)
    if value is None:
        raise NotFound("There is no secret of that name")
    audit.record(tx, org_id, actor, "function.secret_revealed", _target(function), secret=secret)
    return value


def rollback(tx: Tx, org_id: int, actor: Actor, name: str, version: int) -> Function:
    """Make an existing version the current one."""
    function = _lock(tx, org_id, name)
    # The column cannot hold a larger number.
    if version > MAX_VERSION or not tx.find(
        tables.FIND_VERSION, org_id=org_id, function_id=function.id, version=version
    ):
        raise NotFound(f"The function has no version {version}")
    tx.run(tables.SWITCH, org_id=org_id, id=function.id, version=version, now=tx.now)
    audit.record(
        tx, org_id, actor, "function.rolled_back", _target(function), version=version, before=function.current_version
    )
    return _get_by_id(tx, org_id, function.id)


def delete(tx: Tx, org_id: int, actor: Actor, name: str) -> PurgeFunction:
    """Delete a function; return the job that cleans up the edge and the disk."""
    function = _lock(tx, org_id, name)
    audit.record(tx, org_id, actor, "function.deleted", _target(function))
    return _remove(tx, org_id, function)


def delete_all(tx: Tx, org_id: int) -> None:
    """Delete every function of a deleted organization."""
    for function in tx.all(tables.ALL_OF, org_id=org_id):
        _remove(tx, org_id, function)


def _lock(tx: Tx, org_id: int, name: str) -> Function:
    function = tx.find(tables.LOCK, org_id=org_id, name=name)
    if function is None:
        raise _no_function()
    return function


def _remove(tx: Tx, org_id: int, function: Function) -> PurgeFunction:
    records.delete_all_of(tx, org_id, function.id)
    tx.env.hooks.call(REMOVE, tx, org_id, function.id)
    variables.remove(tx, org_id, function.id)
    stored = versions(tx, org_id, function)
    # A reference locks its artifact: one common order prevents deadlocks.
    for version in sorted(stored, key=lambda each: each.digest):
        artifacts.unrefer(tx, org_id, _owner(function.id, version.version))
    tx.run(tables.DELETE_VERSIONS, org_id=org_id, function_id=function.id)
    tx.run(tables.DELETE, org_id=org_id, id=function.id)
    job = PurgeFunction(org_id, function.id, sorted({version.digest for version in stored}))
    jobs.add(tx, job, key=f"function:{function.id}")
    return job


def _add_version(tx: Tx, org_id: int, function: Function, package: Package) -> None:
    """Add the newest version; it takes over the reference of the package."""
    tx.one(
        tables.ADD_VERSION,
        org_id=org_id,
        function_id=function.id,
        version=function.last_version,
        digest=package.digest,
        main=package.main,
        created_at=tx.now,
        updated_at=tx.now,
    )
    artifacts.refer(tx, org_id, package.digest, _owner(function.id, function.last_version))
    artifacts.unrefer(tx, org_id, package.owner)


def _get_by_id(tx: Tx, org_id: int, function_id: int) -> Function:
    function = find_by_id(tx, org_id, function_id)
    if function is None:
        raise _no_function()
    return function


def _owner(function_id: int, version: int) -> str:
    return f"function:{function_id}:version:{version}"


def _target(function: Function) -> AuditTarget:
    return AuditTarget("function", function.name)


def _no_function() -> NotFound:
    return NotFound("There is no such function")


def _name_taken(name: str) -> Conflict:
    return Conflict(f"cannot create function {name!r}: the name is taken")
