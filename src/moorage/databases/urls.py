"""The addresses of databases: with the password for who may see it, with stars for everybody else."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from moorage.databases.tables import Database
from moorage.settings import Settings

HERE = "127.0.0.1"
STARS = "****"
SCHEMES = {"postgresql": "postgresql", "mysql": "mysql"}


@dataclass(frozen=True, slots=True)
class Urls:
    public: str | None
    private: str | None


def public_host(settings: Settings) -> str:
    """Return the name or address under which public databases are found."""
    if settings.database_host:
        return settings.database_host
    return settings.domain if settings.is_production else HERE


def host_of(settings: Settings, found: Database) -> str:
    return public_host(settings) if found.visibility == "public" else HERE


def urls_of(settings: Settings, found: Database, password: str | None = None) -> Urls:
    """Return where a database is found, masked unless a password is given; nowhere before it first ran."""
    if found.running_since is None:
        return Urls(None, None)
    is_public = found.visibility == "public"
    return Urls(make(found, public_host(settings), password) if is_public else None, make(found, HERE, password))


def make(found: Database, host: str, password: str | None) -> str:
    secret = STARS if password is None else quote(password, safe="")
    user = quote(found.username, safe="")
    return f"{SCHEMES[found.engine]}://{user}:{secret}@{host}:{found.port}/{quote(found.db_name, safe='')}"
