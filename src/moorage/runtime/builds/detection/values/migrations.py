"""Command that creates the tables of an empty database, as the repository does it elsewhere."""

from __future__ import annotations

import re
import shlex

from moorage.runtime.builds.detection import managers
from moorage.runtime.builds.detection.python_apps import create_all, django_folder, django_migrate
from moorage.runtime.builds.detection.reading import Folder, without_comments
from moorage.runtime.builds.detection.values import prisma

_RELEASE = re.compile(r"^release[ \t]*:[ \t]*(\S.*)$", re.MULTILINE)
_BEFORE = re.compile(r"^[^\S\n]*preDeployCommand:\s{0,100}['\"]?([^'\"\n]+)['\"]?[^\S\n]{0,100}$", re.MULTILINE)
_SERVED = re.compile(
    r"\b(?:gunicorn|uvicorn)\s{1,20}(?:-[\w-]{1,60}[ =]\S{1,300}\s{1,20}){0,20}'?([\w.]+(?::\w+(?:\([^)']{0,200}\))?)?)"
)
_FILE = re.compile(r"django\.db\.backends\.sqlite3|['\"]sqlite:///")
_WORD = re.compile(r"[\w:.-]+")
_MIGRATES = re.compile(
    r"\bprisma\s+(?:migrate\s+deploy|db\s+push)|\bdrizzle-kit\s+(?:migrate|push)|\bknex\s+migrate|\bpayload\s+migrate\b"
    r"|\bsequelize(?:-cli)?\s+db:migrate|\bmigration:run\b|\bnode-pg-migrate\b|\bkysely(?:-ctl)?\s+migrate"
    r"|\b(?:tsx|ts-node|node|bun)\s+[^\s;&|]*\bmigrat[^;&|]*"
    r"|\bmanage\.py\s+migrate\b|\bflask\s[^;&|]{0,300}\bdb\s+upgrade\b|\balembic\s+upgrade\b"
)
_SCRIPTS = (
    *("db:migrate", "migrate:deploy", "db:deploy", "migrate", "migrate:up", "migrate:latest", "migration:run"),
    *("migrations:run", "typeorm:migrate", "db:push"),
)


def command(folder: Folder, start: str) -> str:
    """Return the command, for a shell; "" where none is known."""
    match = _RELEASE.search(folder.find_text("Procfile") or "") or _BEFORE.search(folder.find_text("render.yaml") or "")
    if match:
        return match[1].strip()
    return _of_python(folder, start) or (_of_node(folder) if folder.package is not None else "")


def runs_in(folder: Folder, command: str) -> bool:
    """Return whether a build command changes the tables of a database, itself or by scripts that it runs."""
    scripts = folder.scripts if folder.package is not None else {}
    texts, names = [command], {""}
    while texts:
        text = texts.pop()
        if _MIGRATES.search(text):
            return True
        new_names = {name for name in _WORD.findall(text) if name in scripts} - names
        names |= new_names
        texts += [scripts.get(f"{part}{name}", "") for name in new_names for part in ("pre", "", "post")]
    return False


def uses_sqlite(folder: Folder, start: str) -> bool:
    """Return whether an app with migrations has a SQLite file by default, and its start creates no tables."""
    makes_tables = any(word in start for word in ("migrate", "db upgrade", "init-db", "create_all"))
    if makes_tables or not _of_python(folder, start):
        return False
    return any(_FILE.search(without_comments(text)) for text in folder.python_files.values())


def _of_python(folder: Folder, start: str) -> str:
    packages = folder.python_packages
    place = django_folder(folder)
    if place is not None:
        return f"(cd {shlex.quote(place or '.')} && {django_migrate(folder, place)})"
    served = _SERVED.search(start)
    if "flask-migrate" in packages and folder.has("migrations/env.py"):
        # Flask before 2.2 has no option --app.
        app = f"FLASK_APP={shlex.quote(served[1])} " if served and not folder.has(".flaskenv") else ""
        # Old versions do not search the current folder for the app, but `python -m` does.
        return f"{app}python -m flask db upgrade"
    if "alembic" in packages and folder.has("alembic.ini"):
        return "PYTHONPATH=. alembic upgrade head"  # Its settings import the app from the current folder.
    return create_all(folder, served[1]) if served and "gunicorn" in start else ""


def _of_node(folder: Folder) -> str:
    packages, manager = folder.node_packages, managers.node_manager(folder).name
    if command := prisma.migrate(folder):
        return command
    if script := next((name for name in _SCRIPTS if folder.scripts.get(name, "").strip()), ""):
        return f"{manager} run {script}"
    if "knex" in packages and folder.glob("knexfile.*"):
        return "knex migrate:latest"
    is_default = folder.has("config/config.json", "config/config.js") and folder.has_folder("migrations")
    is_sequelize = "sequelize-cli" in packages and (is_default or folder.has(".sequelizerc"))
    return "sequelize-cli db:migrate" if is_sequelize else ""
