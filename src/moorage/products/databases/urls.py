"""The addresses of databases: with the password for who may see it, with stars for everybody else."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from moorage.products.databases.tables import Database
from moorage.settings import Settings

HERE = "127.0.0.1"
STARS = "****"
# How clients are told to use TLS, which the proxy requires.
TLS_PARAMETERS = {"postgresql": "sslmode=require", "mysql": "ssl-mode=REQUIRED"}
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


def is_public(settings: Settings, found: Database) -> bool:
    """Tell whether other machines can connect to a database: through the proxy, with TLS only."""
    return found.visibility == "public" and settings.is_production


def host_of(settings: Settings, found: Database) -> str:
    return public_host(settings) if found.visibility == "public" else HERE


def urls_of(settings: Settings, found: Database, password: str | None = None) -> Urls:
    """Return where a database is found, masked unless a password is given; nowhere before it first ran."""
    if found.running_since is None:
        return Urls(None, None)
    private = make(found, HERE, password)
    if found.visibility != "public":
        return Urls(None, private)
    public = make(found, public_host(settings), password)
    return Urls(f"{public}?{TLS_PARAMETERS[found.engine]}" if is_public(settings, found) else public, private)


def make(found: Database, host: str, password: str | None) -> str:
    secret = STARS if password is None else quote(password, safe="")
    user = quote(found.username, safe="")
    return f"{SCHEMES[found.engine]}://{user}:{secret}@{host}:{found.port}/{quote(found.db_name, safe='')}"
