"""Request and response models of the database routes."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Literal

import msgspec
from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from moorage.accounts.plans.schemas import TierKey
from moorage.core.http.models import Input, Output, optional
from moorage.core.http.waiting import WaitedStatus
from moorage.core.kit.clock import to_wire
from moorage.products.databases import urls
from moorage.products.databases.service import RESERVED_DATABASES, NewDatabase
from moorage.products.databases.tables import Database
from moorage.runtime.database_servers.ports import ADMIN, READER, REPLICATOR, Extension
from moorage.runtime.database_servers.software.releases import VERSIONS
from moorage.settings import Settings

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
# Names that the servers use themselves.
RESERVED_USERS = frozenset((ADMIN, READER, REPLICATOR, "postgres", "root", "mysql", "mariadb.sys", "public", "none"))


def _printable(text: str) -> str:
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in text):
        raise ValueError("must not contain control characters")
    return text


def _username(name: str) -> str:
    if name.lower() in RESERVED_USERS or name.lower().startswith("pg_"):
        raise ValueError("is reserved for the server itself")
    if len(name.encode()) > 63:
        raise ValueError("should have at most 63 bytes")
    return _printable(name)


def _database_name(name: str) -> str:
    if name.lower() in RESERVED_DATABASES:
        raise ValueError("is reserved for the server itself")
    if name != name.strip() or len(name.encode()) > 63:
        raise ValueError("should have at most 63 bytes, and no spaces at its ends")
    return _printable(name)


def _check_mysql_name(name: str) -> None:
    """Raise ValueError for a name that MySQL or MariaDB refuses, or takes for another name."""
    if max(name) > "\uffff":
        raise ValueError("must not contain characters above U+FFFF")
    if name.endswith(" "):
        raise ValueError("must not end with a space")
    # The server reads `#mysql50#x` as the name of a folder, so that `#mysql50#mysql` is its own database.
    if name.lower().startswith("#mysql50#"):
        raise ValueError("is reserved for the server itself")


class CreateDatabaseInput(Input):
    name: Annotated[str, Field(min_length=1, max_length=63, pattern=NAME)]
    type: Literal["postgresql", "mysql"]
    version: Annotated[str, Field(description="PostgreSQL: `16.4.0`, `14.8.0`; MySQL: `8.4.2`, `5.7.44`.")]
    instance_type: TierKey
    visibility: Literal["public", "private"] = optional(
        description="Default: `public`; in a cluster `private`, which is all that there is."
    )
    username: Annotated[str, Field(min_length=1, max_length=63), AfterValidator(_username)] = optional()
    db_name: Annotated[str, Field(min_length=1, max_length=63), AfterValidator(_database_name)] = optional()
    password: Annotated[str, Field(min_length=8, max_length=256), AfterValidator(_printable)] = optional()
    region: Annotated[str, Field(min_length=1, max_length=64)] = "us"
    backup: Literal["enabled", "disabled"] = "disabled"
    architecture: Literal["standalone", "replicaset"] = "standalone"
    project_id: Annotated[int, Field(ge=1)] = optional(description="The project that gets its address as a secret.")

    @field_validator("version")
    @classmethod
    def _is_of_the_type(cls, version: str, info: ValidationInfo) -> str:
        known = VERSIONS.get(info.data.get("type", ""))
        if known is not None and version not in known:
            raise ValueError(f"should be {' or '.join(known)} for {info.data['type']}")
        return version

    @field_validator("username", "db_name")
    @classmethod
    def _is_storable(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is not None and info.data.get("type") == "mysql":
            _check_mysql_name(name)
        return name

    def new(self) -> NewDatabase:
        fields = (
            "name", "type", "version", "instance_type", "visibility", "username", "db_name", "password", "region",
            "architecture", "project_id",
        )  # fmt: skip
        return NewDatabase(**{name: getattr(self, name) for name in fields}, backup=self.backup == "enabled")


class ChangeTierInput(Input):
    instance_type: TierKey
    expected_current_tier: str = optional(description="Refuses the change where the tier is another one by now.")
    confirm_downgrade_to_free: bool = False


class ServerDetails(Output, frozen=True):
    cpu: float
    memory: float
    disk: int

    @classmethod
    def of(cls, database: Database) -> ServerDetails:
        return cls(database.tier.cpu, database.tier.memory, database.tier.disk)


class ConnectionDetails(Output, frozen=True):
    host: str | None
    port: int | None
    username: str
    database: str
    password_available: bool


class DatabaseListItem(Output, frozen=True):
    id: int
    name: str | None
    type: str
    version: str | None
    status: str | None
    visibility: str
    instance_type: str | None
    server_details: ServerDetails
    created_at: str | None

    @classmethod
    def of(cls, database: Database) -> DatabaseListItem:
        return cls(
            id=database.id,
            name=database.name,
            type=database.engine,
            version=database.version,
            status=database.status,
            visibility=database.visibility,
            instance_type=database.instance_type,
            server_details=ServerDetails.of(database),
            created_at=to_wire(database.created_at),
        )


class DatabaseDetail(Output, frozen=True):
    id: int
    name: str | None
    type: str
    version: str | None
    engine_version: str | None
    engine_exact: bool | None
    engine_note: str | None
    status: str | None
    status_reason: str | None
    visibility: str
    instance_type: str | None
    organization_id: str
    project_id: int | None
    region: str | None
    backup: str
    backups_to_keep: int | None
    architecture: str
    server_details: ServerDetails
    disk_used_bytes: int
    public_url: str | None
    private_url: str | None
    connection_details: ConnectionDetails
    last_verified_restore: str | None
    created_at: str | None
    updated_at: str | None

    @classmethod
    def of(cls, database: Database, settings: Settings) -> DatabaseDetail:
        address = urls.urls_of(settings, database)
        has_run = database.running_since is not None
        return cls(
            id=database.id,
            name=database.name,
            type=database.engine,
            version=database.version,
            engine_version=database.engine_version,
            engine_exact=database.engine_exact,
            engine_note=database.engine_note,
            status=database.status,
            status_reason=database.status_reason,
            visibility=database.visibility,
            instance_type=database.instance_type,
            organization_id=str(database.org_id),
            project_id=database.project_id,
            region=database.region,
            backup="enabled" if database.backup else "disabled",
            backups_to_keep=database.backups_to_keep,
            architecture=database.architecture,
            server_details=ServerDetails.of(database),
            disk_used_bytes=database.disk_bytes,
            public_url=address.public,
            private_url=address.private,
            connection_details=ConnectionDetails(
                host=urls.host_of(settings, database) if has_run else None,
                port=database.port if has_run else None,
                username=database.username,
                database=database.db_name,
                password_available=has_run,
            ),
            last_verified_restore=to_wire(database.verified_at) if database.verified_at else None,
            created_at=to_wire(database.created_at),
            updated_at=to_wire(database.updated_at),
        )


class DatabaseConnectionStrings(Output, frozen=True):
    public_url: str | None
    private_url: str | None
    ca_certificate: str | None


class DatabaseCredentials(Output, frozen=True):
    password: str | None
    public_url: str | None
    private_url: str | None


class DatabaseExtension(Output, frozen=True):
    name: str
    description: str
    default_version: str | None
    installed_version: str | None
    available: bool
    reason: str | None

    @classmethod
    def of(cls, extension: Extension) -> DatabaseExtension:
        return cls(
            name=extension.name,
            description=extension.description,
            default_version=extension.default_version,
            installed_version=extension.installed_version,
            available=extension.reason is None,
            reason=extension.reason,
        )


class DatabaseExtensions(Output, frozen=True):
    items: list[DatabaseExtension]


class Deleted(Output, frozen=True, rename={"is_async": "async"}):
    is_async: bool
    status: WaitedStatus = msgspec.UNSET  # `deleting` or `deleted`


class Done(Output, frozen=True):
    ok: bool
    status: WaitedStatus = msgspec.UNSET  # of the database
