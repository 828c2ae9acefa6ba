"""Need of a database server: the engine that the dependencies name, and whether the repository declares one.

Files of other hosts and of Docker Compose declare a server; so does an example of variables with the address of one.
"""

from __future__ import annotations

import json
import re

from moorage.runtime.builds.detection import secret_names
from moorage.runtime.builds.detection.reading import Folder, without_comments
from moorage.runtime.builds.detection.values import prisma, variables

POSTGRESQL, MYSQL = "postgresql", "mysql"
ADDRESS = re.compile(r"(?P<postgresql>postgres(?:ql)?)(?:\+\w+)?://|(?P<mysql>mysql2?|mariadb)(?:\+\w+)?://")
_PYTHON = {
    POSTGRESQL: {"psycopg2", "psycopg2-binary", "psycopg", "psycopg-binary", "asyncpg", "pg8000", "aiopg"},
    MYSQL: {"mysqlclient", "pymysql", "aiomysql", "asyncmy", "mysql-connector-python", "flask-mysqldb"},
}
_NODE = {
    POSTGRESQL: {"pg", "postgres", "pg-promise", "@fastify/postgres", "slonik"},
    MYSQL: {"mysql", "mysql2", "mariadb", "promise-mysql", "@fastify/mysql"},
}
_GO = {
    POSTGRESQL: re.compile(r"github\.com/(?:lib/pq|jackc/pgx)|gorm\.io/driver/postgres"),
    MYSQL: re.compile(r"github\.com/go-sql-driver/mysql|gorm\.io/driver/mysql"),
}
_SQLITE = {"sqlite3", "better-sqlite3", "sqlite", "aiosqlite", "libsql", "@libsql/client", "sql.js"}
_PRISMA = re.compile(r"^[^\S\n]*provider\s*=\s*['\"](postgresql|mysql)['\"]", re.MULTILINE)
_IMAGE = re.compile(
    r"^[^\S\n]*image:\s*['\"]?(?:[\w.:/-]+/)?(?:(?P<postgresql>postgres|postgresql|postgis|pgvector)"
    r"|(?P<mysql>mysql|mysql-server|mariadb))(?=[:@'\"\s]|$)",
    re.MULTILINE,
)
_ADDON = re.compile(r"(?P<postgresql>heroku-postgresql)|(?P<mysql>jawsdb|cleardb)")
_RENDER = re.compile(r"^(?P<postgresql>databases:)|\b(?:fromDatabase):", re.MULTILINE)
_DIGITALOCEAN = re.compile(
    r"^[^\S\n]*(?:-[^\S\n]*)?engine:\s*['\"]?(?:(?P<postgresql>PG)|(?P<mysql>MYSQL))\b", re.MULTILINE
)
_DJANGO = re.compile(r"['\"]django\.db\.backends\.(?:(?P<postgresql>postgresql)|(?P<mysql>mysql))")
_ANY_HOST = re.compile(r"(?i)(?:^|_)(?:DB|DATABASE)_?HOST(?:NAME)?$")
_LOCAL = frozenset({"localhost", "127.0.0.1", "db", "database", "postgres", "postgresql", "mysql", "mariadb"})
_HOST = re.compile(
    r"(?i)(?:^|_)(?:(?P<postgresql>PG|POSTGRES(?:QL)?)|(?P<mysql>MYSQL|MARIADB))_?(?:HOST(?:NAME)?|SERVER)$"
)


def engine(folder: Folder) -> str:
    """Return the engine of the drivers that an app depends on; "" for none or several."""
    packages = set(folder.node_packages)
    engines = {name for name, drivers in _PYTHON.items() if not drivers.isdisjoint(folder.python_packages)}
    engines |= {name for name, drivers in _NODE.items() if not drivers.isdisjoint(packages)}
    engines |= {name for name, modules in _GO.items() if modules.search(folder.find_text("go.mod") or "")}
    engines |= set(_PRISMA.findall(prisma.text(folder)))
    if len(engines) == 2:
        engines &= {declared(folder)}
    return engines.pop() if len(engines) == 1 else ""


def needs(folder: Folder) -> bool:
    """Return whether the repository declares a server of its drivers' engine, and its code knows no SQLite."""
    name = engine(folder)
    if not name or not (declared(folder) == name or _names_host(folder)):
        return False
    if not _SQLITE.isdisjoint({*folder.node_packages, *folder.python_packages}):
        return False
    texts = (
        *map(without_comments, folder.python_files.values()),
        *(secret_names.scripts(folder) if folder.package is not None else ()),
    )
    return not any("sqlite" in text.lower() for text in texts)


def is_own(folder: Folder) -> bool:
    """Return whether the settings of this platform name a database."""
    return (
        re.search(r"^[^\S\n]*\[\[\s*databases\s*\]\]", folder.find_text("moorage.toml") or "", re.MULTILINE) is not None
    )


def declared(folder: Folder) -> str:
    """Return the engine of the database server that files of the repository name; "" without one."""
    places = [folder] if not folder.base else [folder, Folder(folder.root, "")]
    for place in places:
        for name, pattern in _FILES:
            match = pattern.search(_text(place, name))
            if match is not None:
                return _engine_of(match)
    for text in folder.python_files.values():
        if match := _DJANGO.search(text):
            return _engine_of(match)
    for name, value in variables.examples(folder).items():
        if match := ADDRESS.match(value) or _HOST.search(name):
            return _engine_of(match)
    return ""


def _names_host(folder: Folder) -> bool:
    """Return whether an example has the host of a server of any engine."""
    return any(_ANY_HOST.search(name) and value in _LOCAL for name, value in variables.examples(folder).items())


def _engine_of(match: re.Match[str]) -> str:
    return MYSQL if match.groupdict().get(MYSQL) else POSTGRESQL


def _text(folder: Folder, name: str) -> str:
    """Return the part of a file that declares services."""
    text = folder.find_text(name) or ""
    if name != "app.json" or not text:
        return text
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return json.dumps(document.get("addons", [])) if isinstance(document, dict) else ""


_FILES = (
    ("app.json", _ADDON),
    *((name, _RENDER) for name in ("render.yaml", "render.yml")),
    *((name, _DIGITALOCEAN) for name in (".do/deploy.template.yaml", ".do/app.yaml")),
    *((name, _IMAGE) for name in variables.COMPOSE),
)
