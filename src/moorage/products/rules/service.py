"""Header and redirect rules of projects: read, replace, and list for the gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.products.projects import service as projects
from moorage.products.rules import tables
from moorage.products.rules.destinations import OwnAddresses
from moorage.products.rules.patterns import HeaderRule, HostRules, RedirectRule
from moorage.products.rules.tables import StoredHeader, StoredRedirect

SHOWN_NAMES = 50  # of headers, in the audit log

HostsOf = Callable[[Tx, int, int], Iterable[str]]
# Returns further hosts of a project: takes the organization's id and the project's.
HOSTS: Hook[[Tx, int, int], Iterable[str]] = Hook("project.hosts")


def headers_of(tx: Tx, org_id: int, name: str) -> list[StoredHeader]:
    return tx.all(tables.HEADERS_OF, org_id=org_id, project_id=projects.get(tx, org_id, name).id)


def redirects_of(tx: Tx, org_id: int, name: str) -> list[StoredRedirect]:
    return tx.all(tables.REDIRECTS_OF, org_id=org_id, project_id=projects.get(tx, org_id, name).id)


def rules_of(tx: Tx, org_id: int, name: str) -> HostRules:
    """Return the stored rules of a project."""
    redirects = tuple(row.rule for row in redirects_of(tx, org_id, name))
    return HostRules(redirects, tuple(row.rule for row in headers_of(tx, org_id, name)))


def set_headers(tx: Tx, org_id: int, actor: Actor, name: str, rules: Sequence[HeaderRule]) -> list[StoredHeader]:
    """Replace all header rules of a project; `rules` are validated."""
    project = projects.lock(tx, org_id, name)
    names = sorted({rule.name.lower() for rule in rules})[:SHOWN_NAMES]
    target = projects.target_of(project)
    audit.record(tx, org_id, actor, "project.headers_changed", target, count=len(rules), names=names)
    keys = {"org_id": org_id, "project_id": project.id}
    tx.run(tables.DELETE_HEADERS, **keys)
    if rules:
        rows = [
            {**keys, "place": place, "source": rule.source, "name": rule.name, "value": rule.value}
            for place, rule in enumerate(rules)
        ]
        tx.run_many(tables.ADD_HEADER, rows)
    return tx.all(tables.HEADERS_OF, **keys)


def set_redirects(tx: Tx, org_id: int, actor: Actor, name: str, rules: Sequence[RedirectRule]) -> list[StoredRedirect]:
    """Replace all redirects of a project; `rules` are validated."""
    project = projects.lock(tx, org_id, name)
    target = projects.target_of(project)
    audit.record(tx, org_id, actor, "project.redirects_changed", target, count=len(rules))
    keys = {"org_id": org_id, "project_id": project.id}
    tx.run(tables.DELETE_REDIRECTS, **keys)
    if rules:
        rows = [
            {**keys, "place": place, "source": rule.source, "destination": rule.destination, "status": rule.status}
            for place, rule in enumerate(rules)
        ]
        tx.run_many(tables.ADD_REDIRECT, rows)
    return tx.all(tables.REDIRECTS_OF, **keys)


def remove_of_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Remove the rules of a project in the transaction that deletes it. Idempotent."""
    tx.run(tables.DELETE_HEADERS, org_id=org_id, project_id=project_id)
    tx.run(tables.DELETE_REDIRECTS, org_id=org_id, project_id=project_id)


def own_addresses(tx: Tx, org_id: int, name: str) -> OwnAddresses:
    """Return the hosts and ports that serve a project.

    Ports 80 and 443 count too, because a proxy may run in front of the gateway.
    """
    project, settings = projects.get(tx, org_id, name), tx.env.settings
    others = chain.from_iterable(tx.env.hooks.call(HOSTS, tx, org_id, project.id))
    ports = (80, 443, settings.gateway_port, settings.https_port)
    return OwnAddresses(frozenset((projects.host_of(settings, name), *others)), frozenset(ports))


@across_organizations("one gateway serves the projects of all organizations")
def all_rules(tx: Tx) -> dict[int, HostRules]:
    """Return the rules of every project that has any."""
    headers: dict[int, list[HeaderRule]] = {}
    redirects: dict[int, list[RedirectRule]] = {}
    for project_id, header in tx.all(tables.EVERY_HEADER):
        headers.setdefault(project_id, []).append(header)
    for project_id, redirect in tx.all(tables.EVERY_REDIRECT):
        redirects.setdefault(project_id, []).append(redirect)
    return {
        project_id: HostRules(tuple(redirects.get(project_id, ())), tuple(headers.get(project_id, ())))
        for project_id in sorted({*headers, *redirects})
    }
