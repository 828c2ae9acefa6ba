"""Apps that need a PostgreSQL or MySQL: signs of it, variables with parts of the address, and migrations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import make_app_request, write_files

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.ports import Plan

SERVER = "const { Pool } = require('pg'); const pool = new Pool(); require('http').createServer().listen(80);"


def plan_of(folder: Path, files: dict[str, Any]) -> Plan:
    write_files(folder, files)
    request = make_app_request(folder)
    return detect.make_plan(request, detect.open_base(request))


def node(*packages: str, **scripts: str) -> dict[str, Any]:
    dependencies = dict.fromkeys(packages, "*")
    package = {"scripts": {"start": "node server.js", **scripts}, "dependencies": dependencies}
    return {"package.json": json.dumps(package), "server.js": SERVER}


def flask(*packages: str, code: str = "") -> dict[str, Any]:
    return {
        "requirements.txt": "\n".join(("flask", *packages)),
        "app.py": f"import os\nfrom flask import Flask\napp = Flask(__name__)\n{code}\n",
    }


COMPOSE = "services:\n  app:\n    build: .\n  db:\n    image: {}\n"


@pytest.mark.parametrize(
    ("files", "needed"),
    [
        ({**node("pg"), "app.json": '{"addons": ["heroku-postgresql:essential-0"]}'}, "postgresql"),
        ({**node("mysql2"), "app.json": '{"addons": [{"plan": "jawsdb:kitefin"}]}'}, "mysql"),
        ({**flask("psycopg2-binary"), "render.yaml": "databases:\n  - name: db\n"}, "postgresql"),
        ({**node("pg"), "docker-compose.yml": COMPOSE.format("docker.io/library/postgres:16-alpine")}, "postgresql"),
        ({**node("mysql2"), "compose.yaml": COMPOSE.format("mariadb:11")}, "mysql"),
        ({**node("pg"), ".do/app.yaml": "databases:\n- engine: PG\n  name: db\n"}, "postgresql"),
        ({**flask("pymysql"), ".env.example": "DB=mysql+pymysql://root@localhost/shop\n"}, "mysql"),
        ({**flask("asyncpg"), ".env.example": "POSTGRES_HOST=localhost\n"}, "postgresql"),
        ({**flask("psycopg2-binary"), ".env": "DBHOST=localhost\n"}, "postgresql"),
        # A driver of another engine, a fallback to SQLite, and no sign of a server.
        ({**node("mysql2"), "docker-compose.yml": COMPOSE.format("postgres:16")}, ""),
        ({**node("pg", "better-sqlite3"), "docker-compose.yml": COMPOSE.format("postgres:16")}, ""),
        ({**flask("psycopg2", code="URL = 'sqlite:///a.db'"), "docker-compose.yml": COMPOSE.format("postgres")}, ""),
        (node("pg"), ""),
        ({**node("pg"), "docker-compose.yml": COMPOSE.format("postgres-exporter:1")}, ""),
    ],
)
def test_a_repository_declares_the_server_that_it_needs(tmp_path: Path, files: dict[str, Any], needed: str) -> None:
    plan = plan_of(tmp_path, files)

    assert (plan.database if plan.needs_database else "") == needed


@pytest.mark.parametrize(("text", "is_own"), [("[[databases]]\nname = 'a'\n", True), ("[project]\n", False)])
def test_a_database_of_moorage_toml_is_left_to_its_client(tmp_path: Path, text: str, is_own: bool) -> None:
    files = {**node("pg"), "docker-compose.yml": COMPOSE.format("postgres"), "moorage.toml": text}

    assert plan_of(tmp_path, files).has_own_database == is_own


def test_variables_of_examples_and_of_the_code_get_parts(tmp_path: Path) -> None:
    code = "host = os.environ['DB_HOST']\nname = os.getenv('MYSQL_DATABASE')\nkey = os.environ['API_HOST']"
    files = {
        **flask("psycopg2-binary", code=code),
        ".env.example": "database_hostname=localhost\nPOSTGRES_USER=postgres\nDB_TYPE=postgres\nMONGO_DB_NAME=x\n"
        "ASYNC_URL=postgresql+asyncpg://app:app@localhost:5432/app?schema=public\nMAIL_HOST=localhost\n",
    }

    assert dict(plan_of(tmp_path, files).parts) == {
        "database_hostname": "{host}",
        "POSTGRES_USER": "{user}",
        "DB_TYPE": "postgres",
        "ASYNC_URL": "postgresql+asyncpg://{user}:{password}@{host}:{port}/{name}?schema=public",
        "DB_HOST": "{host}",
    }


def test_a_url_of_the_example_keeps_its_driver_only(tmp_path: Path) -> None:
    plain = plan_of(tmp_path / "plain", {**node("pg"), ".env.example": "DATABASE_URL=postgres://a:b@localhost/c\n"})
    driver = plan_of(
        tmp_path / "driver", {**flask("asyncpg"), ".env.example": "DATABASE_URL=postgresql+asyncpg://a:b@localhost/c\n"}
    )

    assert plain.parts == ()
    assert dict(driver.parts) == {"DATABASE_URL": "postgresql+asyncpg://{user}:{password}@{host}:{port}/{name}"}


def test_a_url_has_the_driver_of_the_default_in_the_code(tmp_path: Path) -> None:
    code = "url = os.getenv('DATABASE_URL', 'postgresql+psycopg://a:b@localhost/c')"

    plan = plan_of(tmp_path, flask("psycopg", code=code))

    assert dict(plan.parts) == {"DATABASE_URL": "postgresql+psycopg://{user}:{password}@{host}:{port}/{name}"}


@pytest.mark.parametrize(
    ("files", "is_file"),
    [
        ({"Procfile": "web: gunicorn app:app\n"}, True),
        ({}, False),  # The detected start has the command.
        ({"Procfile": "web: flask db upgrade && gunicorn app:app\n"}, False),
        ({"Procfile": "web: gunicorn app:app\n", "app.py": "from flask import Flask\napp = Flask('a')\n"}, False),
    ],
)
def test_tables_of_a_sqlite_file_are_created_before_a_start_of_the_procfile(
    tmp_path: Path, files: dict[str, Any], is_file: bool
) -> None:
    code = "url = os.environ.get('DATABASE_URL') or 'sqlite:///app.db'"
    plan = plan_of(tmp_path, {**flask("flask-migrate", code=code), "migrations/env.py": "", **files})

    assert (plan.uses_sqlite, plan.needs_database) == (is_file, False)
    assert not is_file or plan.migrate == "FLASK_APP=app:app python -m flask db upgrade"


def test_tables_without_migrations_are_created_before_a_start_of_the_procfile(tmp_path: Path) -> None:
    code = "import flask_sqlalchemy\nurl = os.environ.get('DATABASE_URL') or 'sqlite:///app.db'"
    plan = plan_of(tmp_path, {**flask(code=code), "Procfile": "web: gunicorn 'app:create_app()'\n"})

    assert plan.uses_sqlite
    assert plan.migrate.startswith("python -c \"import importlib; app = getattr(importlib.import_module('app'), 'cre")


def test_migrations_that_a_repository_leaves_out_are_written_first(tmp_path: Path) -> None:
    model = "from django.db import models\nclass Berth(models.Model):\n    pass\n"
    files = {
        "requirements.txt": "django\n",
        "manage.py": "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n",
        "shop/settings.py": "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3'}}\n",
        "shop/wsgi.py": "",
        "apps/berths/models.py": model,
        "crews/models.py": model,
        "crews/migrations/0001_initial.py": "",
        "tides/models.py": "from django.db import models\n",
    }

    plan = plan_of(tmp_path, files)

    assert plan.start.startswith(
        "{ python manage.py makemigrations --noinput berths; python manage.py migrate --noinput; }; gunicorn shop.wsgi "
    )


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({**node("pg"), "Procfile": "web: node server.js\nrelease: node migrate.js\n"}, "node migrate.js"),
        (node("pg", **{"db:migrate": "node migrate.js"}), "npm run db:migrate"),
        ({**node("pg", "knex"), "knexfile.js": "module.exports = {}"}, "knex migrate:latest"),
        ({**node("pg", "sequelize", "sequelize-cli"), ".sequelizerc": ""}, "sequelize-cli db:migrate"),
        (
            {
                **node("prisma", "@prisma/client"),
                "prisma/schema.prisma": 'datasource db {\n  provider = "postgresql"\n}\n',
                "prisma/migrations/1/migration.sql": "",
            },
            "prisma migrate deploy",
        ),
        ({**flask("psycopg2-binary", "alembic"), "alembic.ini": "[alembic]"}, "PYTHONPATH=. alembic upgrade head"),
        (
            {**flask("psycopg2-binary", "flask-migrate"), "migrations/env.py": ""},
            "FLASK_APP=app:app python -m flask db upgrade",
        ),
        (
            {
                "package.json": {
                    "scripts": {"start": "node ."},
                    "dependencies": {"prisma": "6"},
                    "prisma": {"schema": "./src/db/main.prisma"},
                },
                "src/db/main.prisma": 'datasource db {\n  provider = "postgresql"\n}\n',
                "index.js": "",
            },
            "prisma db push --skip-generate",
        ),
        (
            {
                **node("prisma"),
                "prisma.config.ts": 'defineConfig({ schema: path.join("db", "models") })',
                "db/models/user.prisma": "",
                "db/models/base.prisma": 'datasource db {\n  provider = "mysql"\n}\n',
                "db/models/migrations/1/migration.sql": "",
            },
            "prisma migrate deploy",
        ),
        (
            {**node("prisma"), "src/prisma/schema.prisma": 'datasource db {\n  provider = "postgresql"\n}\n'},
            "prisma db push --skip-generate --schema src/prisma/schema.prisma",
        ),
        (
            {**node("pg", "sequelize", "sequelize-cli"), "config/config.json": "{}", "migrations/1-user.js": ""},
            "sequelize-cli db:migrate",
        ),
        (
            {
                "manage.py": "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n",
                "shop/settings.py": "DATABASES = {'default': {'ENGINE': 'django.db.backends.postgresql'}}\n",
                "shop/wsgi.py": "",
                "requirements.txt": "django\npsycopg2-binary\n",
            },
            "(cd . && python manage.py migrate --noinput)",
        ),
        (node("pg"), ""),
        (node("express", migrate="node migrate.js"), ""),
    ],
)
def test_tables_of_a_new_database_are_created_as_the_repository_does_it(
    tmp_path: Path, files: dict[str, Any], command: str
) -> None:
    assert plan_of(tmp_path, files).migrate == command


@pytest.mark.parametrize(
    ("scripts", "migrates"),
    [
        ({"build": "prisma migrate deploy && next build"}, True),
        (
            {"build": "run-s db:migrate build:next", "db:migrate": "drizzle-kit migrate", "build:next": "next build"},
            True,
        ),
        ({"build": "next build", "prebuild": "npm run tables", "tables": "knex migrate:latest"}, True),
        ({"build": "tsx lib/db/migrate && next build"}, True),
        ({"build": "next build", "db:migrate": "drizzle-kit migrate"}, False),
        ({"build": "npm run build"}, False),
    ],
)
def test_a_build_that_changes_tables_is_recognised(tmp_path: Path, scripts: dict[str, str], migrates: bool) -> None:
    package = {"scripts": {"start": "node .", **scripts}, "dependencies": {"pg": "^8.0.0"}}
    write_files(tmp_path, {"package.json": package, "index.js": ""})
    request = make_app_request(tmp_path, build_cmd="npm run build")

    plan = detect.make_plan(request, detect.open_base(request))

    assert plan.migrates_in_build == migrates
