"""Variables that an app reads parts of a database's address from, such as `DB_HOST` or `POSTGRES_PASSWORD`.

Each has a template: `{host}`, `{port}`, `{user}`, `{password}`, `{name}` and `{url}` stand for parts of the linked
database. A linked database fills the variables that the user did not set.
"""

from __future__ import annotations

import re

from moorage.runtime.builds.detection import secret_names
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.values import servers, variables

MAX_NAMES = 40
_ENGINES = "DB|DATABASE|POSTGRES(?:QL)?|PSQL|PG|MYSQL|MARIADB|SQL|RDS|TYPEORM|SEQUELIZE"
_WORDS = {
    "host": "HOST(?:NAME)?|SERVER|ADDR(?:ESS)?|ENDPOINT",
    "port": "PORT",
    "user": "USER(?:_?NAME)?|LOGIN",
    "password": "PASS(?:WORD|WD)?|PWD|PW",
    "name": "(?:DB_?)?NAME|DATABASE(?:_?NAME)?|DB",
    "url": "UR[LI]|CONNECTION_(?:STRING|UR[LI])|CONN_STR|DSN",
}
_NAME = re.compile(
    rf"(?:[A-Z0-9]+_)*?(?:{_ENGINES})(?:_(?:{_ENGINES}))?_?(?:"
    + "|".join(f"(?P<{part}>{words})" for part, words in _WORDS.items())
    + ")"
)
# Of other servers, of tests, and accounts of administrators.
_OTHER = re.compile(
    r"MONGO|REDIS|SQLITE|MSSQL|ORACLE|COUCH|DYNAMO|INFLUX|NEO4J|SUPABASE|FIREBASE|ELASTIC|TEST|ROOT|SHADOW|READ_?ONLY|REPLICA"
)
_OF_ENGINE = {servers.POSTGRESQL: re.compile("MYSQL|MARIADB"), servers.MYSQL: re.compile("POSTGRES|PSQL|(?:^|_)PG")}
_WORD = re.compile(r"(?<![A-Za-z0-9_])[A-Z][A-Z0-9_]{3,50}(?![A-Za-z0-9_])")
_URL = re.compile(r"(?P<scheme>(?:postgres(?:ql)?|mysql2?)(?:\+[a-z0-9_]+)?)://[^?\s]*(?P<query>\?[\w=&.,%-]{1,100})?$")
_DRIVER = re.compile(r"['\"]((?:postgresql|mysql)\+[a-z0-9_]+)://")  # without one, SQLAlchemy imports psycopg2
_KIND = re.compile(r"(?:[A-Z0-9]+_)*?(?:DB|DATABASE|TYPEORM)_?(?:TYPE|DIALECT|CLIENT|CONNECTION|DRIVER|ENGINE)")
_KINDS = {servers.POSTGRESQL: {"postgres", "postgresql", "pg"}, servers.MYSQL: {"mysql", "mysql2", "mariadb"}}


def templates(folder: Folder, engine: str) -> dict[str, str]:
    """Return the variables of an app with the parts that they stand for."""
    if not engine:
        return {}
    value_templates: dict[str, str] = {}
    for name, value in _examples(folder).items():
        if template := _of_example(name, value, engine):
            value_templates[name] = template
    if "DATABASE_URL" not in value_templates and (scheme := _driver(folder, engine)):
        value_templates["DATABASE_URL"] = f"{scheme}://{{user}}:{{password}}@{{host}}:{{port}}/{{name}}"
    texts = [*folder.python_files.values(), *(secret_names.scripts(folder) if folder.package is not None else ())]
    words = {word for text in texts for word in _WORD.findall(text)}
    for word in sorted(words):
        part = _part(word, engine)
        if part and word != "DATABASE_URL" and len(value_templates) < MAX_NAMES:
            value_templates.setdefault(word, f"{{{part}}}")
    return value_templates


def _driver(folder: Folder, engine: str) -> str:
    """Return the scheme with a driver that all addresses in the code have, such as a default; or ""."""
    texts = [text for text in folder.python_files.values() if "DATABASE_URL" in text]
    schemes = {match[1] for text in texts for match in _DRIVER.finditer(text)}
    is_engine = all(each.startswith("mysql") == (engine == servers.MYSQL) for each in schemes)
    return schemes.pop() if len(schemes) == 1 and is_engine else ""


def _examples(folder: Folder) -> dict[str, str]:
    """Return the variables of examples, of a committed `.env` and of Compose files."""
    root = Folder(folder.root, "")
    return {**variables.composed(root), **variables.composed(folder), **variables.examples(folder)}


def _of_example(name: str, value: str, engine: str) -> str:
    if _OTHER.search(name.upper()):
        return ""
    if match := _URL.match(value):
        is_engine = match["scheme"].startswith("mysql") == (engine == servers.MYSQL)
        query = match["query"] or ""
        if not is_engine or (name == "DATABASE_URL" and "+" not in match["scheme"] and not query):
            return ""
        scheme = "postgresql" if match["scheme"] == "postgres" else match["scheme"]  # as SQLAlchemy requires
        query = "" if "ssl" in query else query
        return f"{scheme}://{{user}}:{{password}}@{{host}}:{{port}}/{{name}}{query}"
    if _KIND.fullmatch(name.upper()) and value.lower() in _KINDS[engine]:
        return value.lower()
    part = _part(name.upper(), engine)
    return f"{{{part}}}" if part and name != "DATABASE_URL" else ""


def _part(name: str, engine: str) -> str:
    match = _NAME.fullmatch(name)
    if match is None or _OTHER.search(name) or _OF_ENGINE[engine].search(name):
        return ""
    return next(part for part, text in match.groupdict().items() if text)
