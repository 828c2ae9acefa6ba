"""Settings of Django and Flask that a variable, a comment or a call names."""

from __future__ import annotations

from pathlib import Path

from tests.runtime.builds.build_support import make_request, write_files

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.ports import Plan

POSTGRESQL = (
    "# DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3'}}\n"
    "DATABASES = {'default': {'ENGINE': 'django.db.backends.postgresql', 'HOST': os.environ['DBHOST']}}\n"
)
CHOICE = (
    "name = 'shop.production' if 'HOST_OF_AZURE' in os.environ else 'shop.settings'\n"
    "os.environ.setdefault('DJANGO_SETTINGS_MODULE', name)\n"
)


def plan_of(folder: Path, files: dict[str, str]) -> Plan:
    request = make_request(write_files(folder, files), wanted="auto")
    return detect.make_plan(request, detect.open_base(request))


def test_settings_of_django_that_a_variable_names_are_read(tmp_path: Path) -> None:
    files = {"requirements.txt": "django", "manage.py": f"import django\n{CHOICE}", "shop/wsgi.py": CHOICE}
    settings = {"shop/settings.py": "ALLOWED_HOSTS = []", "shop/production.py": "ALLOWED_HOSTS = ['shop.example']"}

    plan = plan_of(tmp_path, {**files, **settings})

    assert "ALLOWED_HOSTS of the settings is extended by the hosts of this project" in plan.notes


def test_a_database_of_a_comment_does_not_count(tmp_path: Path) -> None:
    manage = "import django\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')"
    files = {"requirements.txt": "django\npsycopg2-binary", "manage.py": manage, "shop/wsgi.py": ""}

    plan = plan_of(tmp_path, {**files, "shop/settings.py": POSTGRESQL})

    assert (plan.database, plan.needs_database, plan.uses_sqlite) == ("postgresql", True, False)
    assert plan.start.startswith("gunicorn shop.wsgi")


def test_a_factory_of_flask_has_the_arguments_of_its_settings(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "flask\nflask-sqlalchemy\npsycopg2-binary",
        ".flaskenv": "FLASK_APP=\"shop:create_app('shop.settings')\"\n",
        "shop/__init__.py": "from flask_sqlalchemy import SQLAlchemy\ndef create_app(name):\n    return Flask(name)\n",
        "shop/settings.py": "URI = 'sqlite:///shop.db'",
    }

    plan = plan_of(tmp_path, files)

    tables, _, server = plan.start.partition("esac; ")
    assert server.startswith("gunicorn 'shop:create_app(\"shop.settings\")' --bind")
    assert "getattr(importlib.import_module('shop'), 'create_app'); app = app('shop.settings'); " in tables
    assert "app = app('shop.settings'); " in plan.migrate
