"""Connection URLs of databases, with the password or with it masked."""

from __future__ import annotations

from urllib.parse import quote

from moorage.core.kit.records import dataclass
from moorage.products.databases.tables import Database
from moorage.settings import Settings

STARS = "****"
# URL parameters for TLS, which the proxy requires.
TLS_PARAMETERS = {"postgresql": "sslmode=require", "mysql": "ssl-mode=REQUIRED"}
SCHEMES = {"postgresql": "postgresql", "mysql": "mysql"}


@dataclass(frozen=True, slots=True)
class Urls:
    public: str | None
    private: str | None


def public_host(settings: Settings, database: Database) -> str:
    """Return the host name or address of a public database."""
    if settings.database_host:
        return settings.database_host
    return settings.domain if settings.is_production else database.address.host


def is_public(settings: Settings, database: Database) -> bool:
    """Tell whether other machines can connect to a database, through the TLS proxy."""
    return database.visibility == "public" and settings.is_production


def host_of(settings: Settings, database: Database) -> str:
    return public_host(settings, database) if database.visibility == "public" else database.address.host


def urls_of(settings: Settings, database: Database, password: str | None = None) -> Urls:
    """Return the URLs of a database, masked without a password; None until it ran."""
    if database.running_since is None:
        return Urls(None, None)
    private = make(database, database.address.host, password)
    if database.visibility != "public":
        return Urls(None, private)
    public = make(database, public_host(settings, database), password)
    return Urls(f"{public}?{TLS_PARAMETERS[database.engine]}" if is_public(settings, database) else public, private)


def make(database: Database, host: str, password: str | None) -> str:
    secret = STARS if password is None else quote(password, safe="")
    user = quote(database.username, safe="")
    return f"{SCHEMES[database.engine]}://{user}:{secret}@{host}:{database.port}/{quote(database.db_name, safe='')}"
