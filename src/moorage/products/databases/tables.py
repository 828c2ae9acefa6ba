"""Tables and queries of databases, their servers, backups, WAL files and samples."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    UniqueConstraint,
    delete,
    func,
    insert,
    select,
    update,
)

from moorage.accounts.identity.tables import organization
from moorage.accounts.plans import tiers
from moorage.accounts.plans.tiers import Tier
from moorage.core.db.query import Command, Query, arg, columns, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, partial_index, table, text
from moorage.core.jobs.tables import job
from moorage.core.kit.records import dataclass
from moorage.runtime.engines.ports import Address, Egress

database = table(
    "database",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, nullable=True),  # linked project
    text("secret_name", nullable=True),  # secret of that project that holds the URL
    text("name"),
    text("type"),  # in upper case
    text("version"),  # requested version
    text("software", nullable=True),  # name of the running software, such as postgresql-16.4
    text("engine_version", nullable=True),  # version string that the server reports
    Column("engine_exact", Boolean, nullable=True),
    text("engine_note", nullable=True),
    text("status"),  # DatabaseStatus
    text("status_reason", nullable=True),
    text("visibility"),
    text("instance_type"),
    text("region"),
    text("architecture"),
    text("username"),
    text("db_name"),
    Column("port", Integer, nullable=False),
    Column("backup", Boolean, nullable=False),
    text("backup_method"),
    text("backup_cron"),
    Column("backup_days", Integer, nullable=False),
    Column("backups_to_keep", Integer, nullable=True),
    Column("is_full", Boolean, nullable=False),  # exceeds its disk size and is read-only
    Column("disk_bytes", BigInteger, nullable=False),
    millis("running_since", nullable=True),  # first time that it ran
    millis("verified_at", nullable=True),  # last successful restore test
    millis("deleted_at", nullable=True),  # when it moved to the trash
    millis("created_at"),
    millis("updated_at"),
    Column("machine_id", Id, nullable=False, server_default="0"),  # machine with its folder, servers and jobs
    text("host", nullable=True),  # name by which workloads reach it; null for its machine
)
partial_index(
    "uq_database_org_id_name",
    database.c.org_id,
    database.c.name,
    unique=True,
    where=database.c.deleted_at.is_(None),
)

server = table(
    "database_server",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("database_id", Id, nullable=False),
    text("role"),  # primary, replica or fenced
    text("folder"),  # name below the folder of the database
    text("token"),  # secret that authenticates the shim to the control process
    Column("port", Integer, nullable=False),
    Column("in_sync", Boolean, nullable=False),  # of a replica: has every acknowledged transaction
    Column("restarts", Integer, nullable=False),  # before the current shim
    text("reason", nullable=True),  # why it does not run
    millis("started_at", nullable=True),
    Column("cpu_milli", Integer, nullable=True),
    Column("memory_bytes", BigInteger, nullable=True),
    Column("seen_restarts", Integer, nullable=False),  # total at the last measurement
    millis("seen_at", nullable=True),  # time of the last measurement
    millis("created_at"),
    millis("updated_at"),
    Column("machine_id", Id, nullable=False, server_default="0"),  # machine that runs it
)
Index("ix_database_server_database_id", server.c.database_id)

backup = table(
    "database_backup",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("database_id", Id, nullable=False),
    text("name"),
    text("status"),  # BackupStatus
    text("method"),
    text("cause"),  # schedule, user, or safety: created before a restore
    text("software"),
    text("digest", nullable=True),
    Column("total_size", BigInteger, nullable=True),
    Column("entries", Integer, nullable=True),  # tables of a dump, files of a base backup
    text("first_wal", nullable=True),  # of a base backup: folder and name of the first WAL segment that it needs
    text("reason", nullable=True),
    millis("started_at"),
    millis("completed_at", nullable=True),
    millis("expires_at", nullable=True),
    millis("verified_at", nullable=True),
    millis("updated_at"),
    UniqueConstraint("database_id", "name"),
)

wal = table(
    "database_wal",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("database_id", Id, nullable=False),
    text("name"),
    text("digest"),
    Column("size", BigInteger, nullable=False),
    millis("stored_at"),
    UniqueConstraint("database_id", "name"),
)

sample = table(
    "database_sample",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("database_id", Id, nullable=False),
    Column("step_s", Integer, nullable=False),  # aggregated period: 15, 300 or 3600 s
    millis("at"),  # start of the period
    Column("looks", Integer, nullable=False),  # measurements
    Column("answers", Integer, nullable=False),  # measurements that the server answered
    Column("connections", BigInteger, nullable=False),  # sum over the answers
    Column("max_connections", Integer, nullable=True),
    Column("queries", BigInteger, nullable=True),
    Column("queries_ms", BigInteger, nullable=False),  # time in which `queries` was counted
    Column("cache_hits", BigInteger, nullable=True),
    Column("cache_reads", BigInteger, nullable=True),
    Column("cpu_milli", BigInteger, nullable=True),  # sum over `cpu_looks`
    Column("cpu_looks", Integer, nullable=True),
    Column("memory_bytes", BigInteger, nullable=True),  # sum over `memory_looks`
    Column("memory_looks", Integer, nullable=True),
    Column("disk_bytes", BigInteger, nullable=True),  # the latest value
    UniqueConstraint("database_id", "step_s", "at"),
)
Index("ix_database_sample_step_s_at", sample.c.step_s, sample.c.at)


@dataclass(frozen=True, slots=True)
class Database:
    id: int
    org_id: int
    project_id: int | None
    secret_name: str | None
    name: str
    type: str
    version: str
    software: str | None
    engine_version: str | None
    engine_exact: bool | None
    engine_note: str | None
    status: str
    status_reason: str | None
    visibility: str
    instance_type: str
    region: str
    architecture: str
    username: str
    db_name: str
    port: int
    backup: bool
    backup_method: str
    backup_cron: str
    backup_days: int
    backups_to_keep: int | None
    is_full: bool
    disk_bytes: int
    running_since: int | None
    verified_at: int | None
    deleted_at: int | None
    created_at: int
    updated_at: int
    machine_id: int
    host: str | None = None

    @property
    def address(self) -> Address:
        """Return the address of its primary, which stays the same when a replica takes over."""
        return Address(self.port) if self.host is None else Address(self.port, self.host)

    @property
    def egress(self) -> Egress:
        """Return the rule for workloads that may connect to it."""
        return Egress(self.workload, self.address)

    @property
    def workload(self) -> str:
        """Return the name that the workloads of its servers share."""
        return f"database-{self.id}"

    @property
    def engine(self) -> str:
        """Return the type as in the API, in lower case."""
        return self.type.lower()

    @property
    def tier(self) -> Tier:
        tier = tiers.find_tier(self.instance_type)
        assert tier is not None  # Validated before it was stored.
        return tier

    @property
    def is_replicated(self) -> bool:
        return self.architecture == "replicaset"

    @property
    def resource(self) -> str:
        """Return the resource name of the vault."""
        return f"database:{self.id}"


@dataclass(frozen=True, slots=True)
class Server:
    id: int
    org_id: int
    database_id: int
    role: str
    folder: str
    token: str
    port: int
    in_sync: bool
    restarts: int
    reason: str | None
    started_at: int | None
    cpu_milli: int | None
    memory_bytes: int | None
    seen_restarts: int
    seen_at: int | None
    created_at: int
    updated_at: int
    machine_id: int

    @property
    def key(self) -> str:
        return f"d{self.id}"

    @property
    def address(self) -> Address:
        return Address(self.port)


@dataclass(frozen=True, slots=True)
class Backup:
    id: int
    org_id: int
    database_id: int
    name: str
    status: str
    method: str
    cause: str
    software: str
    digest: str | None
    total_size: int | None
    entries: int | None
    first_wal: str | None
    reason: str | None
    started_at: int
    completed_at: int | None
    expires_at: int | None
    verified_at: int | None
    updated_at: int


_d, _s, _b, _j = database.c, server.c, backup.c, job.c
_this = (_d.org_id == arg("org_id")) & (_d.id == arg("id"))
_live = _d.deleted_at.is_(None)
_of_database = (_s.org_id == arg("org_id")) & (_s.database_id == arg("database_id"))

FIND = Query(
    select(*columns(database)).where((_d.org_id == arg("org_id")) & (_d.name == arg("name")) & _live), Database
)
LOCK = Query(
    select(*columns(database)).where((_d.org_id == arg("org_id")) & (_d.name == arg("name")) & _live).with_for_update(),
    Database,
)
FIND_BY_ID = Query(select(*columns(database)).where(_this), Database)
LOCK_BY_ID = Query(select(*columns(database)).where(_this).with_for_update(), Database)
PAGE = Query(
    select(*columns(database))
    .where((_d.org_id == arg("org_id")) & _live)
    .order_by(_d.id.desc())
    .limit(arg("most", Integer))
    .offset(arg("skip", BigInteger)),
    Database,
)
COUNT: Query[int] = Query(
    select(func.count()).select_from(database).where((_d.org_id == arg("org_id")) & _live), scalar
)
OF_PROJECT = Query(
    select(*columns(database))
    .where((_d.org_id == arg("org_id")) & (_d.project_id == arg("project_id")) & _live)
    .order_by(_d.id),
    Database,
)
ALL_OF = Query(select(*columns(database)).where((_d.org_id == arg("org_id")) & _live), Database)
EVERY = Query(select(*columns(database)).order_by(_d.id), Database)
OF_MACHINE = Query(select(*columns(database)).where(_d.machine_id == arg("machine_id")).order_by(_d.id), Database)
ELSEWHERE = Query(
    select(*columns(database)).where((_d.machine_id != arg("machine_id")) & _live & (_d.status == "running")), Database
)
WITH_PLANS: Query[tuple[Database, str, bool]] = Query(
    select(*columns(database), organization.c.plan, organization.c.card_verified)
    .join(organization, organization.c.id == _d.org_id)
    .where(_live & _d.status.in_(("running", "stopped")))
    .order_by(_d.id),
    lambda *row: (Database(*row[:-2]), row[-2], row[-1]),
)
IN_TRASH = Query(
    select(*columns(database)).where(_d.deleted_at.is_not(None) & (_d.machine_id == arg("machine_id"))).order_by(_d.id),
    Database,
)
PORTS: Query[int] = Query(select(_d.port).union(select(_s.port)), scalar)
ADD: Query[int] = Query(insert(database).returning(_d.id), scalar, sets=sets_of(database))
DELETE = Command(delete(database).where(_this))
# Columns that change, besides the status.
_CHANGING = (
    "project_id", "secret_name", "software", "engine_version", "engine_exact", "engine_note", "status_reason",
    "instance_type", "backup", "backup_method", "backup_cron", "backup_days", "backups_to_keep", "is_full",
    "disk_bytes", "verified_at", "deleted_at", "port", "host", "visibility",
)  # fmt: skip
SET = {
    name: Command(update(database).where(_this).values(**{name: arg("new", _d[name].type), "updated_at": arg("now")}))
    for name in _CHANGING
}

SERVERS_OF = Query(select(*columns(server)).where(_of_database).order_by(_s.id), Server)
_this_server = (_s.org_id == arg("org_id")) & (_s.id == arg("id"))
FIND_SERVER = Query(select(*columns(server)).where(_this_server), Server)
SERVERS_OF_MACHINE = Query(select(*columns(server)).where(_s.machine_id == arg("machine_id")).order_by(_s.id), Server)
MOVE = Command(update(database).where(_this).values(machine_id=arg("machine_id")))
MOVE_SERVERS = Command(update(server).where(_of_database).values(machine_id=arg("machine_id")))
MOVE_JOBS = Command(
    update(job).where((_j.machine_id == arg("before")) & (_j.status == "queued")).values(machine_id=arg("machine_id"))
)
CLAIM = Command(update(database).where(_this & (_d.machine_id == 0)).values(machine_id=arg("machine_id")))
CLAIM_SERVERS = Command(update(server).where(_of_database & (_s.machine_id == 0)).values(machine_id=arg("machine_id")))
CLAIM_JOBS = Command(
    update(job)
    .where((_j.key == arg("key")) & (_j.machine_id.is_(None) | (_j.machine_id == 0)) & (_j.status == "queued"))
    .values(machine_id=arg("machine_id"))
)
ADD_SERVER: Query[int] = Query(insert(server).returning(_s.id), scalar, sets=sets_of(server))
DELETE_SERVER = Command(delete(server).where(_this_server))
SET_SERVER = {
    name: Command(
        update(server).where(_this_server).values(**{name: arg("new", _s[name].type), "updated_at": arg("now")})
    )
    for name in ("role", "folder", "token", "port", "in_sync", "restarts", "reason", "started_at")
}
