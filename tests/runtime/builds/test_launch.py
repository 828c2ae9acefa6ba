"""Environment and mounts of an app."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from tests.runtime.builds.build_support import Log, make_app_request, write_files

from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.launch import Launch, launch
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.builds.toolchain import tools
from moorage.runtime.workers.runtimes import installed, resolve
from moorage.settings import Settings

PYTHON = installed()[resolve("python") or ""]


def launched(
    settings: Settings, release: Path, start: str = "node x.js", *, base: str = "", is_boxed: bool = True, **env: str
) -> Launch:
    plan = Plan("container", "nodejs", start=start, base=base)
    return launch(settings, plan, env, is_sandboxed=is_boxed, release=release, memory_mb=512)


def test_an_app_is_told_what_it_needs_and_nothing_of_the_platform(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORAGE_MASTER_KEY", "k3y-of-the-platform")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)

    made = launched(settings, tmp_path, base="apps/web", NAME="x", PORT="1", HOST="h")

    assert made.argv == ["/bin/sh", "-c", "exec node x.js"]
    path = made.env.pop("PATH").split(":")
    assert path[:3] == ["/work/apps/web/node_modules/.bin", "/work/apps/web/.venv/bin", "/opt/moorage/bin"]
    assert made.env == {
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "NODE_ENV": "production",
        "NODE_OPTIONS": "--max-old-space-size=384",
        "NEXT_TELEMETRY_DISABLED": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "npm_config_update_notifier": "false",
        "NAME": "x",
    }


@pytest.mark.parametrize(
    ("plan", "env", "migrates"),
    [
        ({}, {}, False),
        ({}, {"MOORAGE_CREATED_DATABASE": "postgresql"}, True),
        ({"uses_sqlite": True}, {}, True),
        ({"uses_sqlite": True}, {"DATABASE_URL": "sqlite:///app.db"}, True),
        ({"uses_sqlite": True}, {"DATABASE_URL": "postgresql://elsewhere/shop"}, False),
    ],
)
def test_tables_of_a_new_database_are_created_before_the_start(
    settings: Settings, tmp_path: Path, plan: dict[str, bool], env: dict[str, str], migrates: bool
) -> None:
    made = Plan("container", "python", start="gunicorn app:app", migrate="flask db upgrade", **plan)  # type: ignore[arg-type]

    started = launch(settings, made, env, is_sandboxed=True, release=tmp_path, memory_mb=512)

    assert started.argv[2].startswith("flask db upgrade; ") == migrates


def test_a_server_of_angular_is_told_the_hosts_and_headers_of_the_gateway(settings: Settings, tmp_path: Path) -> None:
    write_files(tmp_path, {"package.json": {"dependencies": {"@angular/ssr": "^20.3.0"}}})

    made = launched(settings.model_copy(update={"apps_domain": "apps.example"}), tmp_path)

    assert made.env["NG_ALLOWED_HOSTS"] == "*,*.apps.example"
    assert made.env["NG_TRUST_PROXY_HEADERS"] == "x-forwarded-for,x-forwarded-host,x-forwarded-proto"


@pytest.mark.parametrize(("package", "trusts"), [("next-auth", True), ("@auth/sveltekit", True), ("express", False)])
def test_libraries_for_logins_trust_the_host_that_the_gateway_passes(
    settings: Settings, tmp_path: Path, package: str, trusts: bool
) -> None:
    write_files(tmp_path, {"package.json": {"dependencies": {package: "^5.0.0"}}})

    made = launched(settings, tmp_path)

    assert made.env.get("AUTH_TRUST_HOST") == ("true" if trusts else None)


def test_what_the_user_sets_wins(settings: Settings, tmp_path: Path) -> None:
    made = launched(settings, tmp_path, NODE_ENV="development", NODE_OPTIONS="--no-deprecation", PATH="/data/bin")

    assert (made.env["NODE_ENV"], made.env["NODE_OPTIONS"]) == ("development", "--no-deprecation")
    assert "/data/bin" in made.env["PATH"].split(":")
    assert made.env["PATH"].startswith("/work/node_modules/.bin:")


def test_certificates_that_the_operator_trusts_are_trusted(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "own.crt"
    file.write_text("x")
    trusting = settings.model_copy(update={"extra_ca": str(file)})

    boxed, free = launched(trusting, tmp_path), launched(trusting, tmp_path, is_boxed=False)

    inside = boxed.env["NODE_EXTRA_CA_CERTS"]
    assert boxed.binds[inside] == str(file)
    assert (free.env["SSL_CERT_FILE"], free.binds) == (str(file), {})


def test_the_programs_that_apps_share_are_written_once(settings: Settings, tmp_path: Path) -> None:
    made: list[Launch] = []
    threads = [threading.Thread(target=lambda: made.append(launched(settings, tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    (folder,) = settings.folder("engines").iterdir()
    assert {each.binds[tools.BIN] for each in made} == {str(folder)}
    assert len(made) == 8
    assert sorted(path.name for path in folder.iterdir()) == ["bun", "npm", "npx", "pnpm", "python", "python3", "yarn"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())} == {0o755}


def test_a_project_s_own_version_of_its_manager_is_the_one_that_is_called(settings: Settings, tmp_path: Path) -> None:
    write_files(tmp_path, {"package.json": {"packageManager": "pnpm@9.1.2"}})

    made = launched(settings, tmp_path)

    assert made.env["MOORAGE_PNPM"] == "pnpm@9.1.2"
    assert '--package="${MOORAGE_PNPM:-pnpm@10}"' in Path(made.binds[tools.BIN], "pnpm").read_text()


def test_a_package_json_of_the_build_s_own_making_harms_nobody(settings: Settings, tmp_path: Path) -> None:
    secret = write_files(tmp_path / "secret", {"package.json": {"scripts": {"start": "cat secret"}}})
    release = write_files(tmp_path / "release", {"package.json": "["})
    broken = launched(settings, release, "npm start")
    (release / "package.json").unlink()
    (release / "package.json").symlink_to(secret / "package.json")

    linked = launched(settings, release, "npm start")

    assert broken.argv == linked.argv == ["/bin/sh", "-c", "exec npm start"]


def test_a_virtual_environment_finds_its_python_where_it_was(settings: Settings, tmp_path: Path) -> None:
    version = PYTHON.name.removeprefix("python:")
    write_files(tmp_path, {".venv/pyvenv.cfg": f"home = /gone/python-{version}.0/bin\nversion = {version}.0\n"})

    made = launched(settings, tmp_path, "python main.py")

    assert made.env["VIRTUAL_ENV"] == "/work/.venv"
    assert made.env["PYTHON_VERSION"] == version
    assert made.binds[f"/gone/python-{version}.0"] == str(PYTHON.executable.parents[1])


@pytest.mark.parametrize(
    "home",
    [
        *("/usr/bin", "/bin", "/gone/../bin", "/proc/self/bin", "relative/bin", "/gone/sbin"),
        *("/lib/ssl/private/x/bin", "/lib64/x/bin", "/etc/x/bin", "/sbin/x/bin"),  # links there may lead out
    ],
)
def test_a_virtual_environment_has_no_say_in_where_the_system_is(settings: Settings, tmp_path: Path, home: str) -> None:
    version = PYTHON.name.removeprefix("python:")
    usual = launched(settings, tmp_path).binds
    write_files(tmp_path, {".venv/pyvenv.cfg": f"home = {home}\nversion = {version}.0\n"})

    assert launched(settings, tmp_path).binds == usual


def test_a_release_whose_python_is_gone_is_told_so(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    write_files(tmp_path, {".venv/pyvenv.cfg": "home = /usr/bin\nversion = 3.8.10\n"})

    with pytest.raises(BuildFailed, match=r"built with Python 3\.8, which is not installed here any more"):
        launched(settings, tmp_path)


@pytest.mark.anyio
async def test_without_a_sandbox_an_app_runs_where_it_was_moved_to(settings: Settings, tmp_path: Path) -> None:
    backend = (
        "import zipfile\n"
        "def build_wheel(folder, config_settings=None, metadata_directory=None):\n"
        "    info = 'made-1.0.dist-info/'\n"
        "    with zipfile.ZipFile(f'{folder}/made-1.0-py3-none-any.whl', 'w') as wheel:\n"
        "        wheel.writestr('made.py', 'import sys\\ndef main():\\n    print(sys.prefix, *sys.argv[1:])')\n"
        "        wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: made\\nVersion: 1.0\\n')\n"
        "        wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
        "        wheel.writestr(info + 'entry_points.txt', '[console_scripts]\\nmade = made:main\\n')\n"
        "        wheel.writestr(info + 'RECORD', '')\n"
        "    return 'made-1.0-py3-none-any.whl'\n"
    )
    project = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    files = {"pyproject.toml": f"{project}[project]\nname = 'made'\nversion = '1.0'\n", "backend.py": backend}
    source = write_files(tmp_path / "source", files)
    request = make_app_request(source, start_cmd="made 'it is' $NAME")

    built = await Builder(settings, is_sandboxed=False).build(request, Log())

    release = tmp_path / ("moved-" + "x" * 120)
    shutil.move(built.folder, release)
    made = launch(settings, built.plan, {"NAME": "here"}, is_sandboxed=False, release=release, memory_mb=512)
    done = subprocess.run(made.argv, env=made.env, cwd="/", capture_output=True, text=True, check=True)
    assert built.plan.install == "pip install ."
    assert done.stdout == f"{release}/.venv it is here\n"
    assert os.listdir(settings.folder("engines"))


MANAGE = "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\nfrom django.core import management\n"
GUARDED = {"manage.py": MANAGE, "shop/wsgi.py": MANAGE, "shop/settings.py": "ALLOWED_HOSTS = ['localhost']\nDEBUG = 1"}


def django_launched(settings: Settings, release: Path, *, is_boxed: bool = True, **env: str) -> Launch:
    plan = Plan("container", "python", "Django", start="gunicorn shop.wsgi")
    return launch(settings, plan, env, is_sandboxed=is_boxed, release=release, memory_mb=512)


def test_a_django_app_accepts_the_hosts_of_the_gateway_and_keeps_its_other_settings(
    settings: Settings, tmp_path: Path
) -> None:
    write_files(tmp_path, GUARDED)

    boxed = django_launched(settings, tmp_path, PYTHONPATH="lib")
    free = django_launched(settings, tmp_path, is_boxed=False)

    assert boxed.env["PYTHONPATH"] == "/opt/moorage/django:lib"
    assert Path(boxed.binds["/opt/moorage/django"], f"{boxed.env['DJANGO_SETTINGS_MODULE']}.py").is_file()
    code = f"import {free.env['DJANGO_SETTINGS_MODULE']} as made; print(made.ALLOWED_HOSTS, made.DEBUG)"
    told = subprocess.run([PYTHON.executable, "-c", code], env=free.env, cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout == "['localhost', '*'] 1\n"


def test_settings_of_a_django_app_may_read_those_that_are_set_already(settings: Settings, tmp_path: Path) -> None:
    files = {
        "shop/settings.py": "from shop import paths\nHOME = '/srv'\nFILE = paths.join('tides')\nlater = 1\n",
        "shop/paths.py": (
            "import moorage_settings as made\n"
            "def join(name): return made.HOME, 'HOME' in dir(made), hasattr(made, 'FILE'), hasattr(made, 'later')\n"
        ),
    }
    write_files(tmp_path, {**GUARDED, **files})

    made = django_launched(settings, tmp_path, is_boxed=False)

    code = "import moorage_settings; print(moorage_settings.FILE)"
    told = subprocess.run([PYTHON.executable, "-c", code], env=made.env, cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout == "('/srv', True, False, False)\n", told.stderr


STATIC = {
    "shop/settings.py": (
        "ALLOWED_HOSTS = ['*']\nINSTALLED_APPS = ['django.contrib.staticfiles']\n"
        "MIDDLEWARE = ['django.middleware.common.CommonMiddleware']\nSTATIC_URL = 'static/'\n"
        "STATIC_ROOT = 'collected'\n"
    ),
    "collected/site.css": "",
    # The parts of Django that the middleware calls.
    "django/conf.py": "from shop import settings",
    "django/contrib/staticfiles/finders.py": "def find(name): return '/apps/' + name if name == 'admin.css' else None",
    "django/http.py": "class Http404(Exception): pass",
    "django/views/static.py": "def serve(request, path, document_root): return document_root + '/' + path",
}
VISIT = """
import moorage_settings, moorage_static
class Request: method = "GET"
served = moorage_static.serve_static_files(lambda request: "the app")
print(moorage_settings.MIDDLEWARE)
for Request.path_info in ("/static/site.css", "/static/admin.css", "/static/none.css", "/static/../shop/wsgi.py", "/"):
    print(served(Request))
"""


def test_a_django_app_without_whitenoise_serves_its_static_files(settings: Settings, tmp_path: Path) -> None:
    write_files(tmp_path, {**GUARDED, **STATIC})

    made = django_launched(settings, tmp_path, is_boxed=False)

    told = subprocess.run([PYTHON.executable, "-c", VISIT], env=made.env, cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout.splitlines() == [
        "['moorage_static.serve_static_files', 'django.middleware.common.CommonMiddleware']",
        *("collected/site.css", "/apps/admin.css", "the app", "the app", "the app"),
    ], told.stderr


@pytest.mark.parametrize(
    ("code", "is_collected", "values"),
    [
        ("STORAGES = {'staticfiles': {'BACKEND': 'whitenoise.storage.CompressedManifestStaticFilesStorage'}}", False,
         [True, "{'staticfiles': {'BACKEND': 'django.contrib.staticfiles.storage.StaticFilesStorage'}}", None]),
        ("STATICFILES_STORAGE = 'whitenoise.storage.CompressedManifestStaticFilesStorage'", False,
         [True, None, "django.contrib.staticfiles.storage.StaticFilesStorage"]),
        ("STATICFILES_STORAGE = 'whitenoise.storage.CompressedManifestStaticFilesStorage'", True,
         [None, None, "moorage_storage.StaticFiles"]),
        ("STORAGES = {'staticfiles': {'BACKEND': 'whitenoise.storage.CompressedManifestStaticFilesStorage', "
         "'OPTIONS': {}}}", True,
         [None, "{'staticfiles': {'BACKEND': 'moorage_storage.StaticFiles', 'OPTIONS': {}}}", None]),
    ],
    ids=["storages", "storage", "collected", "collected storages"],
)  # fmt: skip
def test_a_django_app_does_without_the_list_that_collectstatic_did_not_write(
    settings: Settings, tmp_path: Path, code: str, is_collected: bool, values: list[object]
) -> None:
    files = {"collected/staticfiles.json": "{}"} if is_collected else {}
    write_files(tmp_path, {**GUARDED, **files, "shop/settings.py": f"STATIC_ROOT = 'collected'\n{code}\n"})

    made = django_launched(settings, tmp_path, is_boxed=False)

    names = ("WHITENOISE_USE_FINDERS", "STORAGES", "STATICFILES_STORAGE")
    code = f"import moorage_settings as made; print(*(getattr(made, name, None) for name in {names}), sep='\\n')"
    told = subprocess.run([PYTHON.executable, "-c", code], env=made.env, cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout.splitlines() == [str(value) for value in values], told.stderr


STORAGE = {
    "collected/staticfiles.json": "{}",
    "shop/settings.py": (
        "STATIC_ROOT = 'collected'\nSTATICFILES_STORAGE = 'whitenoise.storage.CompressedManifestStaticFilesStorage'\n"
    ),
    # The parts of Django and WhiteNoise that the storage calls.
    "django/conf.py": "import moorage_settings as settings",
    "whitenoise/storage.py": (
        "class CompressedManifestStaticFilesStorage:\n"
        "    def stored_name(self, name):\n"
        "        if name == 'site.css': return 'site.4f2.css'\n"
        "        raise ValueError('Missing staticfiles manifest entry')\n"
    ),
}
NAMES = """
import moorage_storage
print(*map(moorage_storage.StaticFiles().stored_name, ("site.css", "bundle.js")))
"""


def test_a_page_of_a_django_app_may_name_a_static_file_that_was_not_built(settings: Settings, tmp_path: Path) -> None:
    write_files(tmp_path, {**GUARDED, **STORAGE})

    made = django_launched(settings, tmp_path, is_boxed=False)

    told = subprocess.run([PYTHON.executable, "-c", NAMES], env=made.env, cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout == "site.4f2.css bundle.js\n", told.stderr


@pytest.mark.parametrize(("code", "own"), [("", False), ("LOGGING = {'version': 1}", True)])
def test_a_django_app_without_a_log_prints_why_a_request_failed(
    settings: Settings, tmp_path: Path, code: str, own: bool
) -> None:
    write_files(tmp_path, {**GUARDED, "shop/settings.py": f"ALLOWED_HOSTS = ['*']\n{code}\n"})

    made = django_launched(settings, tmp_path, is_boxed=False)

    code = "import moorage_settings as made; print('django.request' in made.LOGGING.get('loggers', ()))"
    told = subprocess.run([PYTHON.executable, "-c", code], env=made.env, cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout == f"{not own}\n", told.stderr


def test_a_linked_database_takes_the_place_of_a_local_one_in_django_settings(
    settings: Settings, tmp_path: Path
) -> None:
    local = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "shop",
        "USER": "me",
        "PASSWORD": "1",
        "HOST": "localhost",
    }
    other = {**local, "HOST": "db.example"}
    code = f"ALLOWED_HOSTS = ['*']\nDATABASES = { {'default': local, 'other': other} }\n"
    write_files(tmp_path, {**GUARDED, "shop/settings.py": code})

    made = django_launched(settings, tmp_path, is_boxed=False, DATABASE_URL="postgresql://u:p%40ss@127.0.0.1:5433/d1")

    code = "import json, moorage_settings; print(json.dumps(moorage_settings.DATABASES))"
    told = subprocess.run([PYTHON.executable, "-c", code], env=made.env, cwd=tmp_path, capture_output=True, text=True)
    linked = {"NAME": "d1", "USER": "u", "PASSWORD": "p@ss", "HOST": "127.0.0.1", "PORT": "5433"}
    assert json.loads(told.stdout) == {"default": {**local, **linked}, "other": other}


def test_settings_of_manage_py_stand_for_an_empty_package_of_settings(settings: Settings, tmp_path: Path) -> None:
    local = {"shop/settings/__init__.py": "", "shop/settings/local.py": "ALLOWED_HOSTS = ['localhost']\n"}
    files = {"manage.py": MANAGE.replace("shop.settings", "shop.settings.local"), "shop/wsgi.py": MANAGE}
    write_files(tmp_path, {**files, **local})

    made = django_launched(settings, tmp_path)

    assert made.env["MOORAGE_DJANGO_SETTINGS"] == "shop.settings.local"


@pytest.mark.parametrize(
    ("files", "env"),
    [
        ({"shop/wsgi.py": MANAGE.replace("shop.settings", "shop.live")}, {}),
        ({"requirements.txt": "django-configurations"}, {}),
        ({}, {"DJANGO_SETTINGS_MODULE": "shop.other"}),
    ],
    ids=["server with other settings", "settings in classes", "chosen by a variable"],
)
def test_other_django_apps_start_with_their_own_settings(
    settings: Settings, tmp_path: Path, files: dict[str, str], env: dict[str, str]
) -> None:
    write_files(tmp_path, {**GUARDED, **files})

    made = django_launched(settings, tmp_path, is_boxed=True, **env)

    assert made.env.get("DJANGO_SETTINGS_MODULE") == env.get("DJANGO_SETTINGS_MODULE")
    assert "PYTHONPATH" not in made.env
    assert "/opt/moorage/django" not in made.binds
