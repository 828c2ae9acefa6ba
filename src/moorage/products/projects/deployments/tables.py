"""Tables of deployments and the lines of their logs."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    UniqueConstraint,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from moorage.accounts.identity.tables import account
from moorage.core.db.query import Command, Query, arg, columns, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass
from moorage.products.projects.tables import preview, project

deployment = table(
    "deployment",
    id_column(),
    text("uuid", unique=True),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, ForeignKey("project.id"), nullable=False),
    Column("preview_id", Id, nullable=True),
    text("status"),  # DeploymentStatus
    text("kind"),  # `deploy`, `rebuild`, `restart`, `rollback` or `upload`
    text("repository_name", nullable=True),
    text("branch", nullable=True),
    text("commit_sha", nullable=True),
    Column("actor_user_id", Id, nullable=True),  # null for a push by webhook
    text("digest", nullable=True),  # of its artifact; null before the build and after the artifact was released
    Column("file_count", Integer, nullable=True),
    text("plan", nullable=True),  # JSON: the detected build plan
    Column("is_app", Boolean, nullable=False),  # true for an app that runs, false for a static site
    text("swap", nullable=True),  # JSON: requests measured while the app replaced its predecessor
    text("reason", nullable=True),  # why it failed
    millis("started_at", nullable=True),
    millis("ended_at", nullable=True),
    millis("created_at"),
    millis("updated_at"),
)
Index("ix_deployment_project_id_id", deployment.c.project_id, deployment.c.id)
Index("ix_deployment_status", deployment.c.status)
Index("ix_deployment_digest", deployment.c.digest)

project_log = table(
    "project_log",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("deployment_id", Id, ForeignKey("deployment.id"), nullable=False),
    Column("seq", BigInteger, nullable=False),  # from 1, without gaps
    millis("at"),
    text("stream"),  # `stdout`, `stderr` or `system`
    text("message"),
    UniqueConstraint("deployment_id", "seq"),
)


@dataclass(frozen=True, slots=True)
class Deployment:
    id: int
    uuid: str
    org_id: int
    project_id: int
    preview_id: int | None
    status: str
    kind: str
    repository_name: str | None
    branch: str | None
    commit_sha: str | None
    actor_user_id: int | None
    digest: str | None
    file_count: int | None
    plan: str | None
    is_app: bool
    swap: str | None
    reason: str | None
    started_at: int | None
    ended_at: int | None
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Shown:
    """Row of a list of deployments, with the name of the user that requested it."""

    deployment: Deployment
    name: str | None
    username: str | None


@dataclass(frozen=True, slots=True)
class LiveSite:
    """Static site that the gateway serves under one name."""

    name: str
    org_id: int
    project_id: int
    digest: str


@dataclass(frozen=True, slots=True)
class Line:
    seq: int
    at: int
    stream: str
    message: str


_d, _l, _u = deployment.c, project_log.c, account.c
_this = (_d.org_id == arg("org_id")) & (_d.id == arg("id"))
_its = (_d.org_id == arg("org_id")) & (_d.project_id == arg("project_id"))
_all = select(*columns(deployment))


def _shown(*row: object) -> Shown:
    *own, first, last, email, username = row
    name = f"{first or ''} {last or ''}".strip() or email
    return Shown(Deployment(*own), name and str(name), username and str(username))  # type: ignore[arg-type]


_with_actor = select(*columns(deployment), _u.first_name, _u.last_name, _u.email, _u.username).outerjoin(
    account, _u.id == _d.actor_user_id
)

ADD: Query[int] = Query(
    insert(deployment).returning(_d.id),
    scalar,
    sets=sets_of(deployment),
)
FIND = Query(_all.where(_this), Deployment)
FIND_BY_UUID = Query(_all.where((_d.org_id == arg("org_id")) & (_d.uuid == arg("uuid"))), Deployment)
PAGE = Query(
    _with_actor.where(_its & (_d.id < arg("before"))).order_by(_d.id.desc()).limit(arg("most")),
    _shown,
)
QUEUED = Query(
    _all.where(_its & (_d.status == "queued") & (func.coalesce(_d.preview_id, 0) == arg("preview_id"))).order_by(_d.id),
    Deployment,
)
AHEAD: Query[int] = Query(
    select(func.count()).where(_d.status.in_(("queued", "running")) & (_d.id < arg("id"))), scalar
)
SET_SOURCE = Command(
    update(deployment).where(_this).values(commit_sha=arg("commit_sha"), branch=arg("branch"), updated_at=arg("now"))
)
SET_BUILT = Command(
    update(deployment)
    .where(_this)
    .values(
        digest=arg("digest"),
        file_count=arg("file_count"),
        plan=arg("plan"),
        is_app=arg("is_app", Boolean),
        updated_at=arg("now"),
    )
)
SET_SWAP = Command(update(deployment).where(_this).values(swap=arg("swap"), updated_at=arg("now")))
# Candidates for a rollback, newest first.
SUCCEEDED = Query(
    _all.where(_its & (_d.status == "succeeded") & (_d.preview_id.is_(None))).order_by(_d.id.desc()), Deployment
)
# Live apps that were deployed since `since`, of projects with `deploy_guard`. A rollback itself is not guarded.
GUARDED = Query(
    _all.join(project, project.c.current_deployment_id == _d.id).where(
        project.c.enabled & project.c.deploy_guard & _d.is_app & (_d.status == "succeeded") & (_d.kind != "rollback")
        & (_d.ended_at >= arg("since"))
    ),
    Deployment,
)  # fmt: skip
OF_PREVIEW = Query(
    _all.where((_d.org_id == arg("org_id")) & (_d.preview_id == arg("preview_id"))).order_by(_d.id), Deployment
)
DROP_DIGEST = Command(update(deployment).where(_this).values(digest=None, updated_at=arg("now")))
ALL_OF = Query(_all.where(_its).order_by(_d.id), Deployment)
DELETE_OF = Command(delete(deployment).where(_its))
IS_PUBLISHED: Query[int] = Query(select(literal(1)).where(_d.digest == arg("digest")).limit(1), scalar)
DIGESTS_OF: Query[str] = Query(select(_d.digest).where(_its & _d.digest.is_not(None)).distinct(), scalar)

# Projects with a deployment that has not ended, besides those of previews.
OPEN_PROJECTS: Query[int] = Query(
    select(_d.project_id).where(_d.status.in_(("queued", "running")) & _d.preview_id.is_(None)).distinct(), scalar
)

# Static sites that the gateway serves.
LIVE_PROJECTS = Query(
    select(project.c.name, project.c.org_id, project.c.id, _d.digest)
    .join(deployment, _d.id == project.c.current_deployment_id)
    .where(project.c.enabled & _d.digest.is_not(None) & ~_d.is_app),
    LiveSite,
)
LIVE_PREVIEWS = Query(
    select(preview.c.name, preview.c.org_id, preview.c.project_id, _d.digest)
    .join(project, project.c.id == preview.c.project_id)
    .join(deployment, _d.id == preview.c.current_deployment_id)
    .where(project.c.enabled & (preview.c.status == "active") & _d.digest.is_not(None) & ~_d.is_app),
    LiveSite,
)
# Previews, of sites and apps, that are not served because their project is disabled: name and project.
DISABLED_PREVIEWS: Query[tuple[str, int]] = Query(
    select(preview.c.name, preview.c.project_id)
    .join(project, project.c.id == preview.c.project_id)
    .where(~project.c.enabled & (preview.c.status == "active") & preview.c.current_deployment_id.is_not(None)),
    lambda name, project_id: (name, project_id),
)

ADD_LINE = Command(insert(project_log), sets=("org_id", "deployment_id", "seq", "at", "stream", "message"))
LINES = Query(
    select(_l.seq, _l.at, _l.stream, _l.message)
    .where((_l.org_id == arg("org_id")) & (_l.deployment_id == arg("deployment_id")) & (_l.seq > arg("after")))
    .order_by(_l.seq)
    .limit(arg("most")),
    Line,
)
LAST_SEQ: Query[int] = Query(
    select(func.coalesce(func.max(_l.seq), 0)).where(
        (_l.org_id == arg("org_id")) & (_l.deployment_id == arg("deployment_id"))
    ),
    scalar,
)
DELETE_LINES_OF = Command(
    delete(project_log).where(_l.deployment_id.in_(select(_d.id).where(_its)) & (_l.org_id == arg("org_id")))
)
FORGET_LINES = Command(
    delete(project_log).where(_l.deployment_id.in_(select(_d.id).where(_d.ended_at < arg("before"))))
)
