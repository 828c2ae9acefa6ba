"""Lower the compute of projects after a plan downgrade, and restore it later.

After a downgrade the compute is lowered to the free plan's, the app restarts and the members are notified. The former
compute is kept in `paid_compute` and comes back when the organization pays again.
"""

from __future__ import annotations

from typing import Any

from moorage.accounts.identity import notifications
from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.roles import Role
from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.decoding import decode
from moorage.products.projects import compute, service, tables
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.tables import Project
from moorage.settings import Billing


async def ensure(db: Database, now: int) -> None:
    """Lower compute on unpaid plans; restore it for organizations that pay again."""
    if await db.read(_differing):
        await db.write(level)


@across_organizations("each organization's plan is compared with its projects")
def level(tx: Tx) -> None:
    for project, standing in _differing(tx):
        locked = tx.find(tables.LOCK_BY_ID, org_id=project.org_id, id=project.id)
        if locked is None:
            continue
        if plans.counts_as_paid(tx.env.settings, standing):
            _restore(tx, locked.org_id, locked)
        else:
            _lower(tx, locked.org_id, locked)


@across_organizations("each organization's plan is compared with its projects")
def _differing(tx: Tx) -> list[tuple[Project, Standing]]:
    """Return the projects with a compute that differs from their plan."""
    projects = []
    for project, plan, card_verified in tx.all(tables.WITH_PLANS, billed=tx.env.settings.billing is not Billing.NONE):
        standing = Standing(plan, card_verified)
        if plans.counts_as_paid(tx.env.settings, standing):
            is_due = project.paid_compute is not None
        else:
            is_due = compute.lowered(project) != compute.of(project)
        if is_due:
            projects.append((project, standing))
    return projects


def _lower(tx: Tx, org_id: int, project: Project) -> None:
    before, after = compute.of(project), compute.lowered(project)
    if before == after:
        return
    kept = project.paid_compute or compute.to_text(before)
    service.set_columns(tx, org_id, project, after | {"paid_compute": kept, "replicas": compute.FREE_REPLICAS})
    audit.record(tx, org_id, THE_PLATFORM, "project.compute_lowered", service.target_of(project), before=before)
    _notify(
        tx,
        org_id,
        project,
        "project.compute_lowered",
        f"{project.name} runs with the compute of the free plan",
        "Its tier, disk or replicas need a paid plan. No file was deleted; a disk that is larger than the free plan "
        "allows is read-only. With a paid plan the former compute comes back by itself.",
    )
    _restart(tx, org_id, project)


def _restore(tx: Tx, org_id: int, project: Project) -> None:
    if project.paid_compute is None:
        return
    before = decode(project.paid_compute, dict[str, Any])
    service.set_columns(tx, org_id, project, before | {"paid_compute": None})
    audit.record(tx, org_id, THE_PLATFORM, "project.compute_restored", service.target_of(project), after=before)
    title = f"{project.name} has its former compute again"
    _notify(tx, org_id, project, "project.compute_restored", title, "The organization has a paid plan again.")
    if before != compute.of(project):
        _restart(tx, org_id, project)


def _restart(tx: Tx, org_id: int, project: Project) -> None:
    """Restart the live app with its new compute; no-op for sites and disabled apps."""
    current = service.get_by_id(tx, org_id, project.id)
    if current.slug == "container" and current.enabled and current.current_deployment_id is not None:
        deployments.start_again(tx, org_id, THE_PLATFORM, current)


def _notify(tx: Tx, org_id: int, project: Project, kind: str, title: str, body: str) -> None:
    about = f"project:{project.id}:{tx.now}"
    for each in members.all_of(tx, org_id):
        if Role(each.role).reaches(Role.MEMBER):
            notifications.add(tx, each.user_id, kind, title, body, about=about, org_id=org_id)
