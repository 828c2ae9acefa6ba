"""Tables and queries of cronjobs, their builds and their runs."""

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

from moorage.accounts.plans import tiers
from moorage.accounts.plans.tiers import Tier
from moorage.core.db.query import Command, Query, arg, columns, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass
from moorage.core.machines.tables import machine
from moorage.products.projects.deployments.tables import Line

KIND = "cronjob"  # kind of the timetable entries

cronjob = table(
    "cronjob",
    id_column(),
    Column("org_id", Id, nullable=False),
    text("name"),
    text("status"),  # CronjobStatus
    Column("is_active", Boolean, nullable=False),
    text("image_source"),  # codehost or public_image
    text("cron_schedule"),
    text("region"),
    text("instance_type"),
    text("repository_name", nullable=True),
    text("repository_key", nullable=True),  # see `repositories.names.key_of`
    text("branch", nullable=True),
    Column("is_public", Boolean, nullable=False),
    text("language", nullable=True),
    text("base_dir", nullable=True),
    text("build_cmd", nullable=True),
    text("start_cmd", nullable=True),
    text("command"),
    text("dockerfile_path", nullable=True),
    text("docker_build_context_dir", nullable=True),
    text("docker_build_args", nullable=True),  # JSON: name -> value
    text("docker_build_target", nullable=True),
    Column("auto_deploy", Boolean, nullable=False),
    text("public_image", nullable=True),
    text("env"),
    Column("build_id", Id, nullable=True),  # the last build that succeeded; runs use it
    Column("total_runs", Integer, nullable=False),
    Column("successful_runs", Integer, nullable=False),
    Column("failed_runs", Integer, nullable=False),
    Column("skipped_runs", Integer, nullable=False),
    millis("last_run_at", nullable=True),
    millis("created_at"),
    millis("updated_at"),
    UniqueConstraint("org_id", "name"),
)
Index("ix_cronjob_repository_key", cronjob.c.repository_key)

# No foreign keys: builds and runs of a deleted cronjob are removed later.
build = table(
    "cronjob_build",
    id_column(),
    text("uuid", unique=True),
    Column("org_id", Id, nullable=False),
    Column("cronjob_id", Id, nullable=False),
    text("status"),  # BuildStatus
    text("branch", nullable=True),
    text("commit_sha", nullable=True),
    text("digest", nullable=True),  # of the artifact
    text("plan", nullable=True),  # the detected Plan, as JSON
    text("settings"),  # building.BUILD_INPUTS of the cronjob and names of secrets, as JSON
    text("reason", nullable=True),
    millis("created_at"),
    millis("updated_at"),
)
Index("ix_cronjob_build_cronjob_id", build.c.cronjob_id)

line = table(
    "cronjob_build_line",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("build_id", Id, nullable=False),
    Column("seq", Integer, nullable=False),
    millis("at"),
    text("stream"),
    text("message"),
    UniqueConstraint("build_id", "seq"),
)

execution = table(
    "cronjob_execution",
    id_column(),
    text("uuid", unique=True),
    Column("org_id", Id, nullable=False),
    Column("cronjob_id", Id, nullable=False),
    text("status"),  # ExecutionStatus
    millis("scheduled_for", nullable=True),  # the tick; null for a manual trigger
    text("token"),  # secret that authenticates the shim to the control process
    Column("build_id", Id, nullable=True),  # null until the run starts, and for an image
    text("image_digest", nullable=True),
    Column("exit_code", Integer, nullable=True),
    text("error_message", nullable=True),
    millis("started_at", nullable=True),
    millis("completed_at", nullable=True),
    millis("created_at"),
    millis("updated_at"),
    Column("machine_id", Id, nullable=False, server_default="0"),  # machine that runs it and has its log
    UniqueConstraint("cronjob_id", "scheduled_for"),
)
Index("ix_cronjob_execution_status", execution.c.status)


@dataclass(frozen=True, slots=True)
class Cronjob:
    id: int
    org_id: int
    name: str
    status: str
    is_active: bool
    image_source: str
    cron_schedule: str
    region: str
    instance_type: str
    repository_name: str | None
    repository_key: str | None
    branch: str | None
    is_public: bool
    language: str | None
    base_dir: str | None
    build_cmd: str | None
    start_cmd: str | None
    command: str
    dockerfile_path: str | None
    docker_build_context_dir: str | None
    docker_build_args: str | None
    docker_build_target: str | None
    auto_deploy: bool
    public_image: str | None
    env: str
    build_id: int | None
    total_runs: int
    successful_runs: int
    failed_runs: int
    skipped_runs: int
    last_run_at: int | None
    created_at: int
    updated_at: int

    @property
    def tier(self) -> Tier:
        tier = tiers.find_tier(self.instance_type)
        assert tier is not None  # Requests with an unknown instance type are rejected.
        return tier

    @property
    def resource(self) -> str:
        return f"cronjob:{self.id}"

    @property
    def is_image(self) -> bool:
        return self.image_source == "public_image"


@dataclass(frozen=True, slots=True)
class Build:
    id: int
    uuid: str
    org_id: int
    cronjob_id: int
    status: str
    branch: str | None
    commit_sha: str | None
    digest: str | None
    plan: str | None
    settings: str
    reason: str | None
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Execution:
    id: int
    uuid: str
    org_id: int
    cronjob_id: int
    status: str
    scheduled_for: int | None
    token: str
    build_id: int | None
    image_digest: str | None
    exit_code: int | None
    error_message: str | None
    started_at: int | None
    completed_at: int | None
    created_at: int
    updated_at: int
    machine_id: int

    @property
    def key(self) -> str:
        return f"c{self.id}"


_c, _b, _l, _e = cronjob.c, build.c, line.c, execution.c
_this = (_c.org_id == arg("org_id")) & (_c.id == arg("id"))
_named = (_c.org_id == arg("org_id")) & (_c.name == arg("name"))

FIND = Query(select(*columns(cronjob)).where(_named), Cronjob)
LOCK = Query(select(*columns(cronjob)).where(_named).with_for_update(), Cronjob)
FIND_BY_ID = Query(select(*columns(cronjob)).where(_this), Cronjob)
LOCK_BY_ID = Query(select(*columns(cronjob)).where(_this).with_for_update(), Cronjob)
PAGE = Query(
    select(*columns(cronjob))
    .where(_c.org_id == arg("org_id"))
    .order_by(_c.id.desc())
    .limit(arg("most", Integer))
    .offset(arg("skip", BigInteger)),
    Cronjob,
)
COUNT: Query[int] = Query(select(func.count()).select_from(cronjob).where(_c.org_id == arg("org_id")), scalar)
ALL_OF = Query(select(*columns(cronjob)).where(_c.org_id == arg("org_id")).order_by(_c.id), Cronjob)
DELETING = Query(select(*columns(cronjob)).where(_c.status == "deleting").order_by(_c.id), Cronjob)
OF_REPOSITORY = Query(
    select(*columns(cronjob)).where((_c.repository_key == arg("repository")) & (_c.status != "deleting")), Cronjob
)
ADD: Query[int] = Query(insert(cronjob).returning(_c.id), scalar, sets=sets_of(cronjob))
DELETE = Command(delete(cronjob).where(_this))
SET = {
    name: Command(update(cronjob).where(_this).values(**{name: arg("new", _c[name].type), "updated_at": arg("now")}))
    for name in (
        "is_active", "cron_schedule", "instance_type", "branch", "language", "base_dir", "build_cmd", "start_cmd",
        "command", "dockerfile_path", "docker_build_context_dir", "docker_build_args", "docker_build_target",
        "auto_deploy", "public_image", "env", "build_id",
    )
}  # fmt: skip
COUNT_RUN = Command(
    update(cronjob)
    .where(_this)
    .values(
        total_runs=_c.total_runs + 1,
        successful_runs=_c.successful_runs + arg("succeeded", Integer),
        failed_runs=_c.failed_runs + arg("failed", Integer),
    )
)
COUNT_SKIPPED = Command(update(cronjob).where(_this).values(skipped_runs=_c.skipped_runs + 1))
SET_LAST_RUN = Command(update(cronjob).where(_this).values(last_run_at=arg("at")))

_of_build = (_b.org_id == arg("org_id")) & (_b.id == arg("id"))
FIND_BUILD = Query(select(*columns(build)).where(_of_build), Build)
FIND_BUILD_BY_UUID = Query(
    select(*columns(build)).where((_b.org_id == arg("org_id")) & (_b.uuid == arg("uuid"))), Build
)
BUILDS_OF = Query(
    select(*columns(build))
    .where((_b.org_id == arg("org_id")) & (_b.cronjob_id == arg("cronjob_id")))
    .order_by(_b.id.desc()),
    Build,
)
ADD_BUILD: Query[int] = Query(insert(build).returning(_b.id), scalar, sets=sets_of(build))
SET_BUILD_SOURCE = Command(
    update(build).where(_of_build).values(commit_sha=arg("sha"), branch=arg("of_branch"), updated_at=arg("now"))
)
SET_BUILT = Command(
    update(build).where(_of_build).values(digest=arg("of_digest"), plan=arg("of_plan"), updated_at=arg("now"))
)
DELETE_BUILD = Command(delete(build).where(_of_build))

LAST_SEQ: Query[int] = Query(
    select(func.coalesce(func.max(_l.seq), 0)).where((_l.org_id == arg("org_id")) & (_l.build_id == arg("build_id"))),
    scalar,
)
LINES_AFTER = Query(
    select(_l.seq, _l.at, _l.stream, _l.message)
    .where((_l.org_id == arg("org_id")) & (_l.build_id == arg("build_id")) & (_l.seq > arg("seq", Integer)))
    .order_by(_l.seq)
    .limit(arg("most", Integer)),
    Line,
)
ADD_LINE = Command(insert(line), sets=sets_of(line))
DELETE_LINES = Command(delete(line).where((_l.org_id == arg("org_id")) & (_l.build_id == arg("build_id"))))

_of_execution = (_e.org_id == arg("org_id")) & (_e.id == arg("id"))
_of_cronjob = (_e.org_id == arg("org_id")) & (_e.cronjob_id == arg("cronjob_id"))
FIND_EXECUTION = Query(select(*columns(execution)).where(_of_execution), Execution)
FIND_EXECUTION_BY_UUID = Query(
    select(*columns(execution)).where((_e.org_id == arg("org_id")) & (_e.uuid == arg("uuid"))), Execution
)
EXECUTIONS = Query(
    select(*columns(execution))
    .where(_of_cronjob)
    .order_by(_e.id.desc())
    .limit(arg("most", Integer))
    .offset(arg("skip", BigInteger)),
    Execution,
)
COUNT_EXECUTIONS: Query[int] = Query(select(func.count()).select_from(execution).where(_of_cronjob), scalar)
OPEN_OF = Query(
    select(*columns(execution)).where(_of_cronjob & _e.status.in_(("queued", "running"))).order_by(_e.id), Execution
)
RUNNING = Query(select(*columns(execution)).where(_e.status == "running").order_by(_e.id), Execution)
QUEUED = Query(
    select(*columns(execution))
    .where((_e.status == "queued") & (_e.machine_id == arg("machine_id")))
    .order_by(_e.created_at, _e.id)
    .limit(arg("most", Integer)),
    Execution,
)
_is_active = _e.machine_id.in_(select(machine.c.id).where(machine.c.status == "active"))
# Queued runs of machines that do not start them.
MISPLACED = Query(
    select(*columns(execution))
    .where((_e.status == "queued") & ~_is_active)
    .order_by(_e.id)
    .limit(arg("most", Integer)),
    Execution,
)
# Runs of machines that are gone since a time.
LOST = Query(
    select(*columns(execution)).where(
        (_e.status == "running") & _e.machine_id.in_(select(machine.c.id).where(machine.c.gone_at < arg("before")))
    ),
    Execution,
)
PLACE = Command(update(execution).where(_of_execution).values(machine_id=arg("machine_id"), updated_at=arg("now")))
COUNT_BY_TIER: Query[tuple[int, str, int]] = Query(
    select(_e.machine_id, _c.instance_type, func.count())
    .join(cronjob, _c.id == _e.cronjob_id)
    .where(_e.status.in_(("queued", "running")))
    .group_by(_e.machine_id, _c.instance_type),
    lambda machine_id, tier, count: (machine_id, tier, count),
)
IMAGES_QUEUED: Query[int] = Query(
    select(_c.id).where(
        (_c.image_source == "public_image") & _c.id.in_(select(_e.cronjob_id).where(_e.status == "queued"))
    ),
    scalar,
)
ADD_EXECUTION: Query[int] = Query(insert(execution).returning(_e.id), scalar, sets=sets_of(execution))
SET_ARTIFACT = Command(
    update(execution)
    .where(_of_execution)
    .values(build_id=arg("of_build", _e.build_id.type), image_digest=arg("digest"), updated_at=arg("now"))
)
_rank = func.row_number().over(partition_by=_e.cronjob_id, order_by=_e.id.desc())
_ranked = select(_e.id, _rank.label("rank")).subquery()
# Ended runs that are too old, or have too many newer runs of the same cronjob.
OLD_EXECUTIONS = Query(
    select(*columns(execution))
    .join(_ranked, _ranked.c.id == _e.id)
    .where(
        _e.status.in_(("succeeded", "failed"))
        & ((_ranked.c.rank > arg("kept", Integer)) | (_e.created_at < arg("before")))
        & ((_e.machine_id == arg("machine_id")) | _e.machine_id.not_in(select(machine.c.id)))
    )
    .order_by(_e.id)
    .limit(arg("most", Integer)),
    Execution,
)
SOME_EXECUTIONS = Query(
    select(*columns(execution)).where(_of_cronjob).order_by(_e.id).limit(arg("most", Integer)), Execution
)
IS_USED: Query[int] = Query(select(_b.id).where(_b.digest == arg("of_digest")).limit(1), scalar)
DELETE_EXECUTION = Command(delete(execution).where(_of_execution))
