"""Table of the desired replicas of apps on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Column, Index, Integer, delete, insert, select, update

from moorage.core.db.query import Command, Query, arg, columns, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.products.projects.deployments.tables import deployment
from moorage.products.projects.tables import preview, project

# No foreign keys, because a replica is stopped some time after its project was deleted.
replica = table(
    "replica",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, nullable=False),
    Column("preview_id", Id, nullable=True),
    Column("deployment_id", Id, nullable=False),
    text("token"),  # secret that authenticates the replica's shim to the control process
    text("status"),  # ReplicaStatus
    Column("port", Integer, nullable=True),  # on 127.0.0.1; null before the start
    text("reason", nullable=True),  # why the replica is not ready
    millis("drain_until", nullable=True),
    millis("created_at"),
    millis("updated_at"),
)
Index("ix_replica_deployment_id", replica.c.deployment_id)
Index("ix_replica_project_id", replica.c.project_id)


@dataclass(frozen=True, slots=True)
class Replica:
    id: int
    org_id: int
    project_id: int
    preview_id: int | None
    deployment_id: int
    token: str
    status: str
    port: int | None
    reason: str | None
    drain_until: int | None
    created_at: int
    updated_at: int

    @property
    def key(self) -> str:
        return f"r{self.id}"


@dataclass(frozen=True, slots=True)
class LiveApp:
    """App that the gateway routes to, of a project or of a preview."""

    name: str
    org_id: int
    project_id: int
    preview_id: int | None
    deployment_id: int
    replicas: int
    asleep: bool
    auto_scaling: str | None
    tier: str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """App of a running deployment: it may have replicas but no public route yet."""

    uuid: str
    org_id: int
    project_id: int
    deployment_id: int


_r, _p, _v, _d = replica.c, project.c, preview.c, deployment.c
_this = (_r.org_id == arg("org_id")) & (_r.id == arg("id"))

EVERY = Query(select(*columns(replica)).order_by(_r.id), Replica)
FIND = Query(select(*columns(replica)).where(_this), Replica)
OF_DEPLOYMENT = Query(
    select(*columns(replica))
    .where((_r.org_id == arg("org_id")) & (_r.deployment_id == arg("deployment_id")))
    .order_by(_r.id),
    Replica,
)
OF_PROJECT = Query(
    select(*columns(replica))
    .where((_r.org_id == arg("org_id")) & (_r.project_id == arg("project_id")))
    .order_by(_r.id),
    Replica,
)
ADD: Query[int] = Query(insert(replica).returning(_r.id), scalar, sets=sets_of(replica))
SET_REASON = Command(update(replica).where(_this).values(reason=arg("reason"), updated_at=arg("now")))
DELETE = Command(delete(replica).where(_this))

LIVE_PROJECTS = Query(
    select(_p.name, _p.org_id, _p.id, _d.id, _p.replicas, _p.asleep, _p.auto_scaling, _p.tier)
    .join(deployment, _d.id == _p.current_deployment_id)
    .where(_p.enabled & _d.is_app & _d.digest.is_not(None))
    .order_by(_p.id),
    lambda name, org_id, project_id, *rest: LiveApp(name, org_id, project_id, None, *rest),
)
LIVE_PREVIEWS = Query(
    select(_v.name, _v.org_id, _v.project_id, _v.id, _d.id, _p.replicas, _p.asleep, _p.auto_scaling, _p.tier)
    .join(project, _p.id == _v.project_id)
    .join(deployment, _d.id == _v.current_deployment_id)
    .where(_p.enabled & (_v.status == "active") & _d.is_app & _d.digest.is_not(None))
    .order_by(_v.id),
    LiveApp,
)
CANDIDATES = Query(
    select(_d.uuid, _d.org_id, _d.project_id, _d.id).where((_d.status == "running") & _d.is_app).order_by(_d.id),
    Candidate,
)
