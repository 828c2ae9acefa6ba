"""Tables of the desired replicas of apps, and of the machines that have their volumes."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, delete, func, insert, select, update

from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass
from moorage.products.projects.deployments.tables import deployment
from moorage.products.projects.tables import preview, project
from moorage.runtime.engines.ports import Address

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
    Column("port", Integer, nullable=True),  # null before the start
    text("reason", nullable=True),  # why the replica is not ready
    millis("drain_until", nullable=True),
    millis("created_at"),
    millis("updated_at"),
    Column("machine_id", Id, nullable=False, server_default="0"),  # machine that runs it
    text("host", nullable=True),  # address of its own in the network of a cluster; null for the loopback of its machine
)
Index("ix_replica_deployment_id", replica.c.deployment_id)
Index("ix_replica_project_id", replica.c.project_id)

# The volumes of a project and of its previews are on one machine, which runs all of its replicas.
volume = table(
    "app_volume",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, nullable=False, unique=True),
    Column("machine_id", Id, nullable=False),
    millis("created_at"),
)


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
    machine_id: int
    host: str | None = None

    @property
    def key(self) -> str:
        return f"r{self.id}"

    @property
    def address(self) -> Address | None:
        if not self.port:
            return None
        return Address(self.port, self.host) if self.host else Address(self.port)


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
    disk: int | None

    @property
    def has_volume(self) -> bool:
        return bool(self.disk)


@dataclass(frozen=True, slots=True)
class Candidate:
    """App of a running deployment: it may have replicas but no public route yet."""

    uuid: str
    org_id: int
    project_id: int
    deployment_id: int


_r, _p, _v, _d, _o = replica.c, project.c, preview.c, deployment.c, volume.c
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
DELETE_OF_MACHINE = Command(delete(replica).where(_r.machine_id == arg("machine_id")))
CLAIM = Command(update(replica).where(_this & (_r.machine_id == 0)).values(machine_id=arg("machine_id")))
# Running replicas by machine and tier, for the memory that they may use.
COUNT_BY_TIER: Query[tuple[int, str | None, int]] = Query(
    select(_r.machine_id, _p.tier, func.count())
    .join(project, _p.id == _r.project_id)
    .where(_r.status.in_(("starting", "ready")))
    .group_by(_r.machine_id, _p.tier),
    lambda machine_id, tier, count: (machine_id, tier, count),
)
# Replicas of apps without a volume, draining ones included.
COUNT_MOVABLE: Query[int] = Query(
    select(func.count())
    .select_from(replica.outerjoin(project, _p.id == _r.project_id))
    .where((_r.machine_id == arg("machine_id")) & (func.coalesce(_p.disk, 0) == 0)),
    scalar,
)
FIND_VOLUME: Query[int] = Query(select(_o.machine_id).where(_o.project_id == arg("project_id")), scalar)
VOLUMES_OF_MACHINE: Query[str] = Query(
    select(_p.name).join(volume, _o.project_id == _p.id).where(_o.machine_id == arg("machine_id")).order_by(_p.name),
    scalar,
)
ADD_VOLUME: Query[int] = Query(insert_or_ignore(volume), scalar, sets=sets_of(volume))
DELETE_VOLUMES_OF_MACHINE = Command(delete(volume).where(_o.machine_id == arg("machine_id")))
DELETE_VOLUME = Command(delete(volume).where((_o.org_id == arg("org_id")) & (_o.project_id == arg("project_id"))))
ORGANIZATION: Query[int] = Query(select(_p.org_id).where(_p.id == arg("project_id")), scalar)

LIVE_PROJECTS = Query(
    select(_p.name, _p.org_id, _p.id, _d.id, _p.replicas, _p.asleep, _p.auto_scaling, _p.tier, _p.disk)
    .join(deployment, _d.id == _p.current_deployment_id)
    .where(_p.enabled & _d.is_app & _d.digest.is_not(None))
    .order_by(_p.id),
    lambda name, org_id, project_id, *rest: LiveApp(name, org_id, project_id, None, *rest),
)
LIVE_PREVIEWS = Query(
    select(_v.name, _v.org_id, _v.project_id, _v.id, _d.id, _p.replicas, _p.asleep, _p.auto_scaling, _p.tier, _p.disk)
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
