"""Python apps that do not start without DATABASE_URL, and that run with SQLite too.

The libraries that read the variable take the kind of database from it. Until the project has a database, the app gets
the address of a SQLite file, so that its first push is live.
"""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.python_apps import databases_url, django_folder, django_settings_texts
from moorage.runtime.builds.detection.reading import Folder

NAME = "DATABASE_URL"
SQLITE = "sqlite:///db.sqlite3"
_READ = (
    rf"(?:\benviron(?:\.get)?\s*[\[(]|\bgetenv\(|\bconfig\(|\benv(?:\.str)?\()\s*['\"]{NAME}['\"]\s*[\])](?!\s*or\b)"
)
# Settings that stop, or have no database, without the variable.
_DJANGO = re.compile(
    rf"\benviron\s*\[\s*['\"]{NAME}['\"]|\benv\.(?:db|db_url|dj_db_url)\(\s*(?:['\"]{NAME}['\"]\s*)?\)"
    rf"|\b(?:config|env(?:\.str)?)\(\s*['\"]{NAME}['\"]\s*(?:,\s*cast\s*=\s*[\w.]+\s*)?\)|\b{NAME}\b[^\n]{{0,300}}\n\s*raise\b"
)
_CONFIGURED = re.compile(r"\bdj_database_url\.(?:config\((?![^)]{0,1000}default)|parse\()")
_SQLALCHEMY = re.compile(
    rf"SQLALCHEMY_DATABASE_(?:URI|URL)['\"\]]*\s*=\s*(?:\(\s*)?(?:os\.)?{_READ}|create_engine\(\s*(?:\w+\s*=\s*)?(?:os\.)?{_READ}"
    rf"|^[ \t]*(?:DATABASE_URL|database_url|db_url|uri)\s*=\s*(?:os\.)?{_READ}",
    re.MULTILINE,
)
# The app uses another database in particular, or checks for the variable itself.
_OTHER = re.compile(
    rf"ssl_require|['\"]{NAME}['\"] (?:not )?in \w|django\.contrib\.(?:gis|postgres)|dialects\.(?:postgresql|mysql)"
    r"|create_async_engine|postgresql\+|mysql\+|asyncpg|sslmode|isolation_level|pool_size|max_overflow"
)
_ASYNC = {"asyncpg", "databases"}  # They read SQLite only with another package.


def other_names(folder: Folder) -> list[str]:
    """Return the variables, other than DATABASE_URL, that an app of Flask-SQLAlchemy has the address in."""
    texts = folder.python_files.values()
    if any(_OTHER.search(text) for text in texts):
        return []
    return [name for name in dict.fromkeys(map(databases_url, texts)) if name]


def needs_url(folder: Folder) -> bool:
    """Return whether an app needs DATABASE_URL, and may have a SQLite file there."""
    texts = folder.python_files.values()
    packages = set(folder.python_packages)
    if not _ASYNC.isdisjoint(packages) and "aiosqlite" not in packages:
        return False
    if any(_OTHER.search(text) for text in texts):
        return False
    place = django_folder(folder)
    if place is None:
        has_library = not {"sqlalchemy", "flask-sqlalchemy", "sqlmodel"}.isdisjoint(folder.python_packages)
        return has_library and any(_SQLALCHEMY.search(text) for text in texts)
    if {"dj-database-url", "django-environ", "environs"}.isdisjoint(folder.python_packages):
        return False
    settings = "\n".join(django_settings_texts(folder, place))
    is_only = _CONFIGURED.search(settings) is not None and "sqlite" not in settings
    return is_only or _DJANGO.search(settings) is not None
