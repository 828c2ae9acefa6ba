"""Python apps that need DATABASE_URL and get the address of a SQLite file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import make_app_request, write_files

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.ports import Plan

MANAGE = "import django\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n"
SQLITE = (("DATABASE_URL", "sqlite:///db.sqlite3"),)


def plan_of(folder: Path, files: dict[str, Any], **changed: Any) -> Plan:
    write_files(folder, files)
    request = make_app_request(folder, **changed)
    return detect.make_plan(request, detect.open_base(request))


def django(settings: str, package: str = "dj-database-url") -> dict[str, Any]:
    files = {"manage.py": MANAGE, "shop/wsgi.py": "", "shop/settings.py": settings}
    return {**files, "requirements.txt": f"django\n{package}\n"}


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ("DATABASES = {'default': dj_database_url.config()}", SQLITE),
        ("DATABASES = {'default': dj_database_url.parse(os.environ['DATABASE_URL'])}", SQLITE),
        ("if os.getenv('DATABASE_URL') is None:\n    raise Exception('DATABASE_URL is missing')", SQLITE),
        ("DATABASES = {'default': env.db()}", SQLITE),
        ("DATABASES = {'default': dj_database_url.config(default='postgres://db/shop')}", ()),
        ("DATABASES = {'default': dj_database_url.config(ssl_require=True)}", ()),
        ("if 'DATABASE_URL' in os.environ:\n    DATABASES = {'default': dj_database_url.config()}", ()),
        ("INSTALLED_APPS = ['django.contrib.postgres']\nDATABASES = {'default': env.db()}", ()),
    ],
)
def test_django_gets_a_file(tmp_path: Path, settings: str, values: tuple[tuple[str, str], ...]) -> None:
    assert plan_of(tmp_path, django(settings)).values == values


def test_django_without_a_library_for_addresses_gets_none(tmp_path: Path) -> None:
    assert plan_of(tmp_path, django("url = os.environ['DATABASE_URL']", "psycopg2")).values == ()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("app.config['SQLALCHEMY_DATABASE_URI'] = os.environ['DATABASE_URL']", SQLITE),
        ("    SQLALCHEMY_DATABASE_URI = os.environ.get('DATABASE_URL')", SQLITE),
        ("engine = create_engine(os.getenv('DATABASE_URL'))", SQLITE),
        ("SQLALCHEMY_DATABASE_URI = os.environ.get('DATABASE_URL') or 'sqlite:///app.db'", ()),
        ("SQLALCHEMY_DATABASE_URI = os.environ.get('DATABASE_URL', 'sqlite:///app.db')", ()),
        ("from sqlalchemy.dialects.postgresql import JSONB\nengine = create_engine(os.getenv('DATABASE_URL'))", ()),
    ],
)
def test_sqlalchemy_gets_a_file(tmp_path: Path, text: str, values: tuple[tuple[str, str], ...]) -> None:
    app = f"from flask import Flask\n{text}\napp = Flask(__name__)\n"

    plan = plan_of(tmp_path, {"requirements.txt": "flask\nflask-sqlalchemy\n", "app.py": app})

    assert plan.values == values
    assert any("moorage databases create" in note for note in plan.notes) == bool(values)


def test_a_driver_that_reads_no_sqlite_gets_none(tmp_path: Path) -> None:
    text = "from fastapi import FastAPI\nengine = create_engine(os.getenv('DATABASE_URL'))\napp = FastAPI()\n"

    plan = plan_of(
        tmp_path, {"app.py": text, "requirements.txt": "fastapi\nsqlalchemy\ndatabases[postgresql]\nasyncpg"}
    )

    assert plan.values == ()


def test_an_address_of_the_user_counts(tmp_path: Path) -> None:
    files = django("DATABASES = {'default': dj_database_url.config()}")

    plan = plan_of(tmp_path, files, env={"DATABASE_URL": "postgres://tides@db/shop"})

    assert (plan.values, [note for note in plan.notes if "SQLite" in note]) == ((), [])


def test_tables_of_flask_migrate_are_made_in_the_file_only(tmp_path: Path) -> None:
    app = "from flask import Flask\napp = Flask(__name__)\nSQLALCHEMY_DATABASE_URI = os.environ['DATABASE_URL']\n"
    files = {"requirements.txt": "flask\nflask-sqlalchemy\nflask-migrate\n", "app.py": app, "migrations/env.py": ""}

    plan = plan_of(tmp_path, files)

    assert plan.start.startswith(
        'test "${DATABASE_URL#sqlite}" != "$DATABASE_URL" && FLASK_APP=app:app python -m flask db upgrade; '
    )


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("os.environ.get('SHOP_DB')", (("SHOP_DB", "sqlite:///db.sqlite3"),)),
        ("os.environ.get('SHOP_DB') or 'sqlite:///shop.db'", ()),
        ("os.environ.get('SHOP_DB', 'sqlite:///shop.db')", ()),
    ],
)
def test_flask_gets_a_file_in_a_variable_of_its_own(
    tmp_path: Path, setting: str, values: tuple[tuple[str, str], ...]
) -> None:
    code = f"from flask_sqlalchemy import SQLAlchemy\napp = Flask('x')\nSQLALCHEMY_DATABASE_URI = {setting}\n"
    files = {"requirements.txt": "flask\nflask-sqlalchemy\n", "app.py": code}

    assert plan_of(tmp_path, files).values == values
