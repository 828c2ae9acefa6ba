"""Tables of the built-in git server, and of installations of the GitHub app."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, UniqueConstraint, delete, select, update

from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, pair, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass
from moorage.products.repositories.names import Name

repository = table(
    "repository",
    id_column(),
    Column("org_id", Id, nullable=False, index=True),
    text("owner"),
    text("name"),
    text("owner_key"),  # in lower case, for comparison
    text("name_key"),
    Column("size_bytes", BigInteger, nullable=False),
    text("default_branch"),
    millis("created_at"),
    millis("updated_at"),  # start or end of the last push
    Column("machine_id", Id, nullable=False, server_default="0"),  # machine with its folder
    UniqueConstraint("owner_key", "name_key"),
)

github_installation = table(
    "github_installation",
    id_column(),
    text("login"),  # name of the account, as GitHub spells it
    text("login_key", unique=True),
    Column("installation_id", BigInteger, nullable=False),
    Column("suspended", Boolean, nullable=False),
    # Claim of an earlier version, for the first organization to ask or with the account's name. It gives no access. It
    # stays until the organization proves ownership, so that the operator can list it.
    Column("org_id", Id, nullable=True),
    millis("created_at"),
    millis("updated_at"),
)

# Organizations that proved, as administrator of the GitHub account, that they may read through an installation.
github_binding = table(
    "github_binding",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("installation_id", BigInteger, nullable=False),
    text("login"),  # name of the account, as GitHub spells it
    text("login_key"),
    text("proved_by"),  # login of the GitHub user that authorized it
    Column("user_id", Id, nullable=False),  # user of this platform that requested it
    millis("created_at"),
    UniqueConstraint("org_id", "installation_id"),
)
Index("ix_github_binding_installation_id", github_binding.c.installation_id)

# Setup states that were used, so that each works once. A row is kept until its state has expired.
github_used_state = table(
    "github_used_state",
    id_column(),
    Column("org_id", Id, nullable=False),
    text("nonce", unique=True),
    millis("expires_at"),
)


@dataclass(frozen=True, slots=True)
class Repository:
    id: int
    org_id: int
    owner: str
    name: str
    owner_key: str
    name_key: str
    size_bytes: int
    default_branch: str
    created_at: int
    updated_at: int
    machine_id: int

    @property
    def full_name(self) -> Name:
        return Name(self.owner, self.name)


@dataclass(frozen=True, slots=True)
class Installation:
    id: int
    login: str
    login_key: str
    installation_id: int
    suspended: bool
    org_id: int | None
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Binding:
    id: int
    org_id: int
    installation_id: int
    login: str
    login_key: str
    proved_by: str
    user_id: int
    created_at: int


_r, _i, _b = repository.c, github_installation.c, github_binding.c
_this = (_r.org_id == arg("org_id")) & (_r.id == arg("id"))
_account = _i.login_key == arg("login_key")

FIND = Query(
    select(*columns(repository)).where((_r.owner_key == arg("owner_key")) & (_r.name_key == arg("name_key"))),
    Repository,
)
FIND_BY_ID = Query(select(*columns(repository)).where(_this), Repository)
FIRST_USER: Query[int] = Query(
    select(_r.org_id).where(_r.owner_key == arg("owner_key")).order_by(_r.id).limit(1), scalar
)
ADD: Query[int] = Query(insert_or_ignore(repository), scalar, sets=sets_of(repository))
TOUCH = Command(update(repository).where(_this).values(updated_at=arg("now")))
FINISH = Command(
    update(repository).where(_this).values(size_bytes=arg("size"), default_branch=arg("branch"), updated_at=arg("now"))
)
OWNERS_OF: Query[str] = Query(select(_r.owner_key).where(_r.org_id == arg("org_id")).distinct(), scalar)
NEWEST_OF = Query(
    select(*columns(repository)).where(_r.org_id == arg("org_id")).order_by(_r.id.desc()).limit(arg("most")), Repository
)
DELETE_OF = Command(delete(repository).where(_r.org_id == arg("org_id")))
PAGE = Query(select(*columns(repository)).where(_r.id > arg("after")).order_by(_r.id).limit(arg("most")), Repository)
IS_THERE: Query[int] = Query(select(_r.id).where(_r.id == arg("id")), scalar)
UNOWNED: Query[int] = Query(select(_r.id).where(_r.machine_id == 0).order_by(_r.id), scalar)
CLAIM = Command(
    update(repository).where((_r.id == arg("id")) & (_r.machine_id == 0)).values(machine_id=arg("machine_id"))
)
DISOWN = Command(update(repository).where(_r.machine_id == arg("machine_id")).values(machine_id=0, size_bytes=0))
MACHINES_OF: Query[tuple[int, int]] = Query(
    select(_r.id, _r.machine_id).where(_r.org_id == arg("org_id")).order_by(_r.id), pair
)
NAMES_OF_MACHINE: Query[tuple[str, str]] = Query(
    select(_r.owner, _r.name).where(_r.machine_id == arg("machine_id")).order_by(_r.id), pair
)
# Checks the time again, because a push may have begun since the row was read.
DELETE_UNUSED = Command(
    delete(repository).where(
        (_r.id == arg("id")) & (_r.machine_id == arg("machine_id")) & (_r.updated_at <= arg("before"))
    )
)

ADD_INSTALLATION: Query[int] = Query(
    insert_or_ignore(github_installation),
    scalar,
    sets=sets_of(github_installation),
)
SET_INSTALLATION = Command(
    update(github_installation)
    .where(_account)
    .values(login=arg("shown"), installation_id=arg("number"), suspended=arg("stopped"), updated_at=arg("now"))
)
RELEASE_INSTALLATIONS = Command(
    update(github_installation).where(_i.org_id == arg("org_id")).values(org_id=None, updated_at=arg("now"))
)
DELETE_INSTALLATION = Command(delete(github_installation).where(_account & (_i.installation_id == arg("number"))))
CLAIMS = Query(select(*columns(github_installation)).where(_i.org_id.is_not(None)).order_by(_i.id), Installation)
DROP_CLAIM = Command(
    update(github_installation)
    .where((_i.org_id == arg("org_id")) & (_i.installation_id == arg("number")))
    .values(org_id=None, updated_at=arg("now"))
)

_bound = (_b.org_id == arg("org_id")) & (_b.installation_id == arg("number"))
ADD_BINDING: Query[int] = Query(
    insert_or_ignore(github_binding),
    scalar,
    sets=sets_of(github_binding),
)
SET_BINDING = Command(
    update(github_binding)
    .where(_bound)
    .values(login=arg("shown"), login_key=arg("key"), proved_by=arg("prover"), user_id=arg("by"))
)
FIND_BINDING = Query(select(*columns(github_binding)).where(_bound), Binding)
BINDINGS_OF = Query(select(*columns(github_binding)).where(_b.org_id == arg("org_id")).order_by(_b.id), Binding)
BINDING_OF_ACCOUNT = Query(
    select(*columns(github_binding))
    .where((_b.org_id == arg("org_id")) & (_b.login_key == arg("login_key")))
    .order_by(_b.id.desc())
    .limit(1),
    Binding,
)
BOUND_TO = Query(select(*columns(github_binding)).where(_b.installation_id == arg("number")).order_by(_b.id), Binding)
DELETE_BINDING = Command(delete(github_binding).where(_bound))
DELETE_BINDINGS_OF = Command(delete(github_binding).where(_b.org_id == arg("org_id")))
USE_STATE: Query[int] = Query(insert_or_ignore(github_used_state), scalar, sets=("org_id", "nonce", "expires_at"))
FORGET_STATES = Command(delete(github_used_state).where(github_used_state.c.expires_at <= arg("now")))
