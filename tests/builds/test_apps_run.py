"""Real apps, from the registries: built, packed, unpacked, and started as they will be."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from tests.builds.app_support import Release, release
from tests.builds.build_support import write_files

from moorage.builds.reading import Folder
from moorage.builds.starts import find_start

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("apps-run")]

EXPRESS = """
const app = require('express')(), bcrypt = require('bcrypt')
const { npm_lifecycle_event: event, npm_package_version: version, NODE_ENV } = process.env
const isNative = bcrypt.compareSync('x', bcrypt.hashSync('x', 4))
app.get('/', (_, answer) => answer.json({ event, version, NODE_ENV, isNative, name: process.env.NAME }))
app.listen(process.env.PORT, process.env.HOST)
"""
SETTINGS = """
from pathlib import Path
SECRET_KEY, ALLOWED_HOSTS, ROOT_URLCONF = "x", ["*"], "harbor.urls"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.admin",
                  "django.contrib.messages", "django.contrib.staticfiles"]
STATIC_URL = "static/"
STATIC_ROOT = Path(__file__).parent.parent / "collected"
"""
URLS = """
from django.http import HttpResponse
from django.urls import path
urlpatterns = [path("", lambda request: HttpResponse("from Django"))]
"""
SETUP = "import os\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'harbor.settings')\n"
MANAGE = f"import sys\n{SETUP}from django.core.management import execute_from_command_line as run\nrun(sys.argv)\n"
WSGI = f"{SETUP}from django.core.wsgi import get_wsgi_application\napplication = get_wsgi_application()\n"
FLASK = "import flask\napp = flask.Flask(__name__)\n\n@app.get('/')\ndef home():\n    return 'from Flask'\n"
FASTAPI = (
    "from fastapi import FastAPI\napp = FastAPI()\n\n@app.get('/')\ndef home() -> str:\n    return 'from FastAPI'\n"
)
PROJECT = """
[project]
name = "locked"
version = "1.0"
requires-python = ">=3.9"
dependencies = ["made"]

[tool.uv.sources]
made = { path = "made-1.0-py3-none-any.whl" }
"""
LOCK = """
version = 1
requires-python = ">=3.9"

[[package]]
name = "locked"
version = "1.0"
source = { virtual = "." }
dependencies = [{ name = "made" }]

[package.metadata]
requires-dist = [{ name = "made", path = "made-1.0-py3-none-any.whl" }]

[[package]]
name = "made"
version = "1.0"
source = { path = "made-1.0-py3-none-any.whl" }
wheels = [{ filename = "made-1.0-py3-none-any.whl", hash = "sha256:%s" }]
"""


def write_wheel(folder: Path) -> str:
    """Write a small package, and return its digest."""
    path, info = folder / "made-1.0-py3-none-any.whl", "made-1.0.dist-info"
    folder.mkdir()
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("made.py", "print('as it was locked:', __file__)")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: made\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="session")
async def express(tmp_path_factory: pytest.TempPathFactory) -> Release:
    package = {
        "name": "harbor",
        "version": "1.2.3",
        "scripts": {
            "prestart": "echo before: $npm_lifecycle_event >&2",
            "start": "npm run serve",
            "serve": "node server.js",
        },
        "dependencies": {"express": "4.21.2", "bcrypt": "6.0.0"},
        "devDependencies": {"esbuild": "0.24.2"},
    }
    return await release(tmp_path_factory.mktemp("express"), {"package.json": package, "server.js": EXPRESS})


@pytest.fixture(scope="session")
async def django(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """An app of Django, in a folder of its repository; Flask and FastAPI are in its environment too."""
    files = {
        "requirements.txt": "django==5.1.4\n-r more.txt\n",
        "more.txt": "flask==3.1.0\nfastapi==0.115.6\nuvicorn==0.34.0\n",
        "manage.py": MANAGE,
        "harbor/__init__.py": "",
        "harbor/settings.py": SETTINGS,
        "harbor/urls.py": URLS,
        "harbor/wsgi.py": WSGI,
        "wsgi.py": FLASK,
        "main.py": FASTAPI,
    }
    inside = {f"apps/site/{name}": text for name, text in files.items()}
    return await release(tmp_path_factory.mktemp("django"), inside, base_dir="./apps/site")


async def test_an_express_app_with_a_native_module_starts_by_its_scripts(express: Release) -> None:
    answer, said = await express.answer(NAME="moorage")

    assert json.loads(answer) == {
        "event": "serve",
        "version": "1.2.3",
        "NODE_ENV": "production",
        "isNative": True,
        "name": "moorage",
    }
    assert said.startswith("before: prestart\n")


async def test_programs_of_packages_and_package_managers_can_be_called_by_name(express: Release) -> None:
    asks = "esbuild --version; npm --version; npx --version; npm pkg get version; python3 -V"

    told, _ = await express.run(["/bin/sh", "-c", asks], express.launch())

    lines = told.splitlines()
    assert lines[0] == "0.24.2"
    assert lines[1] == lines[2]
    assert lines[3] == '"1.2.3"'
    assert lines[4].startswith("Python 3.")


async def test_a_django_app_is_served_by_gunicorn_with_its_static_files_collected(django: Release) -> None:
    answer, said = await django.answer()

    assert (django.plan.framework, django.plan.server, django.plan.base) == ("Django", "gunicorn", "apps/site")
    assert f"start:    {django.plan.start}" in django.log.system
    assert answer == "from Django"
    assert "Using worker: gthread" in said
    assert (django.folder / "collected" / "admin" / "css" / "base.css").is_file()


async def test_programs_of_a_virtual_environment_run_where_it_was_built(django: Release) -> None:
    told, _ = await django.run(["/bin/sh", "-c", "django-admin --version; which python"], django.launch())

    assert told.splitlines() == ["5.1.4", "/work/apps/site/.venv/bin/python"]
    assert (django.folder / ".venv/bin/django-admin").read_text().startswith("#!/work/apps/site/.venv/bin/python\n")


async def test_what_python_has_compiled_is_used_though_times_are_not_kept(django: Release) -> None:
    looks = (
        "import importlib.util as u, django, harbor.settings as s\n"
        "for m in (django, s):\n"
        "    print(int.from_bytes(open(u.cache_from_source(m.__file__), 'rb').read(8)[4:], 'little'))"
    )

    told, _ = await django.run(["/bin/sh", "-c", f'python -c "{looks}"'], django.launch())

    assert told.split() == ["1", "1"]  # A hash instead of a time, which is not checked.


@pytest.mark.parametrize(
    ("name", "text", "wanted"), [("wsgi", FLASK, "from Flask"), ("main", FASTAPI, '"from FastAPI"')]
)
async def test_flask_and_fastapi_are_served(django: Release, tmp_path: Path, name: str, text: str, wanted: str) -> None:
    write_files(tmp_path, {f"{name}.py": text, "requirements.txt": "flask\nfastapi"})
    start = find_start(Folder(tmp_path, ""), "python", "", "")

    answer, _ = await django.answer(start.command)

    assert answer == wanted


async def test_a_uv_project_gets_an_environment_that_runs(tmp_path: Path) -> None:
    digest = write_wheel(tmp_path / "source")
    files = {"pyproject.toml": PROJECT, "uv.lock": LOCK % digest, "main.py": "import made\n"}

    made = await release(tmp_path, files)

    told, _ = await made.run(made.launch().argv, made.launch())
    assert (made.plan.install, made.plan.start) == ("uv sync --frozen", "python main.py")
    assert told.startswith("as it was locked: /work/.venv/lib/python3.")
