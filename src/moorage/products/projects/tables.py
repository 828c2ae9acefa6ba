"""Tables of projects, their current and former names, and their previews."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    UniqueConstraint,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    update,
)

from moorage.accounts.identity.tables import organization
from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass

project = table(
    "project",
    id_column(),
    Column("org_id", Id, nullable=False),
    text("name", unique=True),  # on the whole platform, because it is a subdomain
    text("slug", nullable=True),  # `static` or `container`; null until the kind of an `auto` project was detected
    Column("is_auto", Boolean, nullable=False),
    text("source"),  # `git`, `upload` or `image`
    text("public_image", nullable=True),  # reference of the image, where the source is one
    text("repository_name", nullable=True),
    text("repository_key", nullable=True, index=True),  # see `repositories.names.key_of`
    text("branch", nullable=True),
    text("region", nullable=True),
    text("language", nullable=True),
    text("runtime", nullable=True),
    text("base_dir"),
    text("build_dir", nullable=True),
    text("build_cmd", nullable=True),  # null: not chosen by the user
    text("start_cmd", nullable=True),
    text("entry_point", nullable=True),
    text("health_check_path", nullable=True),
    text("docker_file_path", nullable=True),
    text("docker_build_context_dir", nullable=True),
    text("docker_build_args", nullable=True),  # JSON: name -> value
    text("docker_build_target", nullable=True),
    text("tier", nullable=True),
    Column("disk", Integer, nullable=True),
    text("auto_scaling", nullable=True),  # JSON
    text("paid_compute", nullable=True),  # JSON: tier, disk and autoscaling that come back with a paid plan
    Column("is_public", Boolean, nullable=False),
    Column("enable_analytics", Boolean, nullable=False),
    Column("auto_deploy", Boolean, nullable=False),
    Column("pr_preview", Boolean, nullable=False),
    Column("deploy_guard", Boolean, nullable=False),  # roll back a release that does worse than the one before
    text("env"),  # JSON: a list of {name, value}
    Column("enabled", Boolean, nullable=False),
    Column("replicas", Integer, nullable=False),  # set by autoscaling within its bounds
    Column("asleep", Boolean, nullable=False),  # an idle app was stopped; the next request starts it
    Column("current_deployment_id", Id, nullable=True),  # deployment of the live release
    Column("latest_deployment_id", Id, nullable=True),
    Column("total_deployments", Integer, nullable=False),
    Column("success_deployments", Integer, nullable=False),
    Column("failed_deployments", Integer, nullable=False),
    millis("created_at"),
    millis("updated_at"),
)
Index("ix_project_org_id_id", project.c.org_id, project.c.id)

# Names of a project over time: a former address redirects for a while, and the audit log covers former names.
project_name = table(
    "project_name",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, ForeignKey("project.id"), nullable=False),
    text("name"),
    millis("since"),
    millis("until", nullable=True),  # null for the current name
)
Index("ix_project_name_project_id", project_name.c.project_id)
Index("ix_project_name_until", project_name.c.until)

preview = table(
    "preview",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, ForeignKey("project.id"), nullable=False),
    Column("number", Integer, nullable=False),  # of the pull request
    text("name", unique=True),  # the subdomain
    text("status"),  # PreviewStatus
    Column("is_fork", Boolean, nullable=False),
    text("title"),
    text("repository_name"),  # repository that contains the commit: the fork's, for a fork
    text("branch"),
    text("commit_sha"),
    Column("current_deployment_id", Id, nullable=True),
    millis("created_at"),
    millis("updated_at"),
    UniqueConstraint("project_id", "number"),
)


@dataclass(frozen=True, slots=True)
class Project:
    id: int
    org_id: int
    name: str
    slug: str | None
    is_auto: bool
    source: str
    public_image: str | None
    repository_name: str | None
    repository_key: str | None
    branch: str | None
    region: str | None
    language: str | None
    runtime: str | None
    base_dir: str
    build_dir: str | None
    build_cmd: str | None
    start_cmd: str | None
    entry_point: str | None
    health_check_path: str | None
    docker_file_path: str | None
    docker_build_context_dir: str | None
    docker_build_args: str | None
    docker_build_target: str | None
    tier: str | None
    disk: int | None
    auto_scaling: str | None
    paid_compute: str | None
    is_public: bool
    enable_analytics: bool
    auto_deploy: bool
    pr_preview: bool
    deploy_guard: bool
    env: str
    enabled: bool
    replicas: int
    asleep: bool
    current_deployment_id: int | None
    latest_deployment_id: int | None
    total_deployments: int
    success_deployments: int
    failed_deployments: int
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class GatewayProject:
    """Columns of a project for the gateway."""

    id: int
    name: str
    enabled: bool
    enable_analytics: bool
    current_deployment_id: int | None


@dataclass(frozen=True, slots=True)
class FormerName:
    id: int
    org_id: int
    project_id: int
    name: str
    since: int
    until: int | None


@dataclass(frozen=True, slots=True)
class Preview:
    id: int
    org_id: int
    project_id: int
    number: int
    name: str
    status: str
    is_fork: bool
    title: str
    repository_name: str
    branch: str
    commit_sha: str
    current_deployment_id: int | None
    created_at: int
    updated_at: int


_p, _n, _v = project.c, project_name.c, preview.c
_mine = _p.org_id == arg("org_id")
_this = _mine & (_p.id == arg("id"))
_all = select(*columns(project))

FIND = Query(_all.where(_mine & (_p.name == arg("name"))), Project)
# Locks the row until the transaction ends; SQLite has one writer and needs no lock.
LOCK = Query(_all.where(_mine & (_p.name == arg("name"))).with_for_update(), Project)
FIND_BY_ID = Query(_all.where(_this), Project)
LOCK_BY_ID = Query(_all.where(_this).with_for_update(), Project)
# Projects with a compute that may differ from their plan: `billed` is false where plans are not enforced.
WITH_PLANS: Query[tuple[Project, str, bool]] = Query(
    select(*columns(project), organization.c.plan, organization.c.card_verified)
    .join(organization, organization.c.id == _p.org_id)
    .where(_p.paid_compute.is_not(None) | ((organization.c.plan == "free") & arg("billed", Boolean)))
    .order_by(_p.id),
    lambda *row: (Project(*row[:-2]), row[-2], row[-1]),
)
ALL_OF = Query(_all.where(_mine).order_by(_p.id), Project)
EVERY = Query(
    select(_p.id, _p.name, _p.enabled, _p.enable_analytics, _p.current_deployment_id).order_by(_p.id), GatewayProject
)
COUNT: Query[int] = Query(select(func.count()).where(_mine), scalar)
PAGE = Query(
    _all.where(_mine & (_p.id < arg("before"))).order_by(_p.id.desc()).limit(arg("most")),
    Project,
)
PAGE_OF_SLUG = Query(
    _all.where(_mine & (_p.id < arg("before")) & (_p.slug == arg("slug"))).order_by(_p.id.desc()).limit(arg("most")),
    Project,
)
OF_REPOSITORY = Query(
    _all.where(_p.repository_key == arg("repository")).order_by(_p.id),
    Project,
)
ADD: Query[int] = Query(
    insert_or_ignore(project),
    scalar,
    sets=sets_of(project),
)
SETTINGS = (
    "slug", "language", "runtime", "base_dir", "build_dir", "build_cmd", "start_cmd", "health_check_path",
    "docker_file_path", "docker_build_context_dir", "docker_build_args", "docker_build_target",
    "tier", "disk", "auto_scaling", "enable_analytics", "auto_deploy", "env", "enabled",
    "deploy_guard", "replicas", "asleep", "paid_compute", "public_image",
)  # fmt: skip
UPDATE = Command(
    update(project).where(_this).values(updated_at=arg("now"), **{name: arg("new_" + name) for name in SETTINGS})
)
RENAME = Command(update(project).where(_this).values(name=arg("new_name"), updated_at=arg("now")))
GO_LIVE = Command(
    update(project).where(_this).values(current_deployment_id=arg("deployment_id"), updated_at=arg("now"))
)
COUNT_NEW = Command(
    update(project)
    .where(_this)
    .values(
        total_deployments=_p.total_deployments + 1, latest_deployment_id=arg("deployment_id"), updated_at=arg("now")
    )
)
COUNT_ENDED = Command(
    update(project)
    .where(_this)
    .values(
        success_deployments=_p.success_deployments + arg("succeeded", Integer),
        failed_deployments=_p.failed_deployments + arg("failed", Integer),
        updated_at=arg("now"),
    )
)
DELETE = Command(delete(project).where(_this))
IS_TAKEN: Query[int] = Query(
    select(literal(1)).where(
        exists().where(_p.name == arg("name")) | exists().where((_v.name == arg("name")) & (_v.status != "closed"))
    ),
    scalar,
)

OWNER_OF_NAME: Query[int] = Query(select(_p.org_id).where(_p.name == arg("name")), scalar)

ADD_NAME: Query[int] = Query(
    insert(project_name).returning(_n.id), scalar, sets=("org_id", "project_id", "name", "since", "until")
)
END_NAME = Command(
    update(project_name)
    .where((_n.org_id == arg("org_id")) & (_n.project_id == arg("project_id")) & _n.until.is_(None))
    .values(until=arg("now"))
)
NAMES = Query(
    select(*columns(project_name))
    .where((_n.org_id == arg("org_id")) & (_n.project_id == arg("project_id")))
    .order_by(_n.id.desc()),
    FormerName,
)
# Newest first: of two projects that had the same name, the later one keeps the redirect.
LEFT_SINCE = Query(
    select(*columns(project_name)).where(_n.until >= arg("since")).order_by(_n.until.desc(), _n.id.desc()), FormerName
)
DELETE_NAMES = Command(delete(project_name).where((_n.org_id == arg("org_id")) & (_n.project_id == arg("project_id"))))

_its = (_v.org_id == arg("org_id")) & (_v.project_id == arg("project_id"))
PREVIEWS = Query(select(*columns(preview)).where(_its).order_by(_v.number.desc()), Preview)
FIND_PREVIEW = Query(select(*columns(preview)).where(_its & (_v.number == arg("number"))), Preview)
FIND_PREVIEW_BY_ID = Query(
    select(*columns(preview)).where((_v.org_id == arg("org_id")) & (_v.id == arg("id"))), Preview
)
ADD_PREVIEW: Query[int] = Query(insert_or_ignore(preview), scalar, sets=sets_of(preview))
SET_PREVIEW = Command(
    update(preview)
    .where((_v.org_id == arg("org_id")) & (_v.id == arg("id")))
    .values(
        is_fork=arg("is_fork"),
        title=arg("title"),
        repository_name=arg("repository_name"),
        branch=arg("branch"),
        commit_sha=arg("commit_sha"),
        updated_at=arg("now"),
    )
)
PREVIEW_LIVE = Command(
    update(preview)
    .where((_v.org_id == arg("org_id")) & (_v.id == arg("id")))
    .values(current_deployment_id=arg("deployment_id"), updated_at=arg("now"))
)
RENAME_PREVIEW = Command(
    update(preview)
    .where((_v.org_id == arg("org_id")) & (_v.id == arg("id")))
    .values(name=arg("new_name"), updated_at=arg("now"))
)
DELETE_PREVIEWS = Command(delete(preview).where(_its))
