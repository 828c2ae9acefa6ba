"""Real installations from locks, in virtual environments of their own, and from the cache of a project."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.app_support import Release, release
from tests.runtime.builds.build_support import Log, make_app_request, write_files

from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.ports import BuildFailed
from moorage.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.group("apps-run")]

WHEEL = "six-1.16.0-py2.py3-none-any.whl"
HASH = "sha256:8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254"
LOCK = f"""
[[package]]
name = "six"
version = "1.16.0"
files = [{{file = "{WHEEL}", hash = "{HASH}"}}]
"""
PIPFILE_LOCK = {"_meta": {"sources": []}, "default": {"six": {"version": "==1.16.0", "hashes": [HASH]}}}
SHOW = "import six; print(six.__version__, six.__file__)"


async def said(app: Release, code: str) -> tuple[str, str]:
    (app.folder / "shown.py").write_text(code)
    return await app.run([".venv/bin/python", "shown.py"], app.launch("python shown.py"))


async def test_an_app_without_dependencies_imports_no_package_of_the_machine(tmp_path: Path) -> None:
    host = sorted(name for name in _host_packages() if name.isidentifier())

    app = await release(tmp_path, {"Pipfile": "[packages]\n", "main.py": ""})
    found = await said(app, f"import importlib.util as u\nprint([n for n in {host!r} if u.find_spec(n)])")

    assert found == ("[]\n", "")


@pytest.mark.deep
async def test_a_well_known_package_that_the_code_imports_and_no_file_lists_is_installed(tmp_path: Path) -> None:
    code = "import six, toml\ntry:\n    import MySQLdb\nexcept ImportError:\n    pass\n"

    app = await release(tmp_path, {"requirements.txt": "six==1.16.0", "main.py": code})

    assert await said(app, "import six, toml; print(six.__version__)") == ("1.16.0\n", "")


def _host_packages() -> set[str]:
    """Names of packages that the interpreter of this machine has installed for itself."""
    folders = [sysconfig.get_path("purelib"), "/usr/lib/python3/dist-packages"]
    names = {name.removesuffix(".py") for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)}
    return names - {"__pycache__", "README", "site", "sitecustomize", "usercustomize"}


@pytest.mark.deep
@pytest.mark.parametrize(
    "files",
    [
        {"Pipfile": "[packages]\nsix = '*'", "Pipfile.lock": PIPFILE_LOCK},
        {"pyproject.toml": "[project]\nname='x'\nversion='1'\ndependencies=['six']\n", "pdm.lock": LOCK},
        {"pyproject.toml": "[tool.poetry]\npackage-mode=false\n[tool.poetry.dependencies]\npython='^3.9'\nsix='^1'\n",
         "poetry.lock": LOCK},
        {"environment.yml": "dependencies:\n  - six=1.16.0\n"},
        {"requirements.txt": "-r requirements/base.txt\n", "requirements/base.txt": f"six==1.16.0 --hash={HASH}\n"},
    ],
    ids=["pipenv", "pdm", "poetry", "conda", "requirements"],
)  # fmt: skip
async def test_the_locked_version_is_installed(tmp_path: Path, files: dict[str, Any]) -> None:
    app = await release(tmp_path, {"main.py": "", **files})

    assert await said(app, SHOW) == (
        f"1.16.0 /work/.venv/lib/{_folder(app)}/site-packages/six.py\n",
        "",
    )


def _folder(app: Release) -> str:
    return next(iter((app.folder / ".venv" / "lib").iterdir())).name


@pytest.mark.deep
async def test_a_project_that_is_no_package_after_all_is_deployed_with_its_dependencies(tmp_path: Path) -> None:
    project = (
        "[build-system]\nrequires = ['hatchling']\nbuild-backend = 'hatchling.build'\n"
        "[project]\nname = 'shop'\nversion = '1'\ndependencies = ['six==1.16.0']\n"
    )

    app = await release(tmp_path, {"main.py": "", "pyproject.toml": project})

    assert (await said(app, SHOW))[0].startswith("1.16.0 ")
    assert re.search(r"pip install \. failed: .*; the app is deployed without", app.log.text("system"))


@pytest.mark.deep
async def test_uwsgi_and_psycopg2_that_cannot_be_compiled_are_replaced_together(tmp_path: Path) -> None:
    files = {
        "main.py": "",
        "requirements.txt": "uwsgi @ file:./uwsgi\npsycopg2 @ file:./psycopg2\n",
        "uwsgi/setup.py": "raise SystemExit('cannot find -lpython3')\n",
        "psycopg2/setup.py": "raise SystemExit('Error: pg_config executable not found.')\n",
    }

    app = await release(tmp_path, files)

    assert await said(app, "import psycopg2, pyuwsgi; print(psycopg2.paramstyle)") == ("pyformat\n", "")
    assert (app.folder / ".venv/bin/uwsgi").is_file()


@pytest.mark.deep
async def test_psycopg2_that_cannot_be_compiled_is_installed_with_its_library(tmp_path: Path) -> None:
    files = {
        "main.py": "",
        "requirements.txt": "six==1.16.0\npsycopg2 @ file:///work/psycopg2\n",
        "psycopg2/setup.py": "raise SystemExit('Error: pg_config executable not found.')\n",
    }

    app = await release(tmp_path, files)

    assert await said(app, "import psycopg2, six; print(psycopg2.paramstyle, six.__version__)") == (
        "pyformat 1.16.0\n",
        "",
    )


@pytest.mark.deep
async def test_a_package_that_current_build_tools_refuse_is_built_with_older_ones(tmp_path: Path) -> None:
    setup = "from setuptools import setup\nsetup(name='oldpkg', version='1', py_modules=['oldpkg'], use_2to3=True)\n"
    files = {
        "main.py": "",
        "requirements.txt": "./oldpkg\n",
        "oldpkg/setup.py": setup,
        "oldpkg/oldpkg.py": "",
    }

    app = await release(tmp_path, files)

    assert await said(app, "import oldpkg; print(oldpkg.__name__)") == ("oldpkg\n", "")
    assert "it is built with older ones" in app.log.text("system")


async def test_a_package_that_is_older_than_python_finds_the_names_that_were_removed(tmp_path: Path) -> None:
    code = (
        "from collections import Mapping\nimport asyncio\nimport gettext\nimport inspect\n"
        "ARGS = asyncio.coroutine(inspect.getargspec)(lambda a, *b: a).args\n"
        "gettext.translation('tides', codeset='utf-8', fallback=True).set_output_charset('utf-8')\n"
    )
    files = {
        "main.py": "",
        "requirements.txt": "./oldpkg\n",
        "oldpkg/setup.py": "from setuptools import setup\nsetup(name='oldpkg', version='1', py_modules=['oldpkg'])\n",
        "oldpkg/oldpkg.py": code,
    }

    app = await release(tmp_path, files)

    shown = await said(app, "import oldpkg; print(issubclass(dict, oldpkg.Mapping), oldpkg.ARGS)")
    assert shown == ("True ['a']\n", "")


@pytest.mark.deep
async def test_a_lock_is_repaired_in_several_ways(tmp_path: Path) -> None:
    """psycopg2 and MarkupSafe of 2018 cannot be compiled with this Python."""
    names = {"psycopg2": "==2.7.5", "markupsafe": "==1.0"}
    lock = {"default": {name: {"version": version} for name, version in names.items()}}

    app = await release(tmp_path, {"main.py": "", "Pipfile": "", "Pipfile.lock": lock})

    assert (await said(app, "import markupsafe, psycopg2; print(psycopg2.apilevel)")) == ("2.0\n", "")
    assert "newer ones of compiled packages are allowed" in app.log.text("system")


@pytest.mark.deep
async def test_packages_that_fit_to_python_leave_its_names_alone(tmp_path: Path) -> None:
    app = await release(tmp_path, {"main.py": "", "requirements.txt": "six==1.16.0"})

    assert await said(app, "import collections; print(hasattr(collections, 'Mapping'))") == ("False\n", "")


@pytest.mark.deep
async def test_a_lock_with_another_hash_is_refused(settings: Settings, tmp_path: Path) -> None:
    lock = {"default": {"six": {"version": "==1.16.0", "hashes": ["sha256:" + "0" * 64]}}}
    source = write_files(tmp_path, {"main.py": "", "Pipfile.lock": lock})

    with pytest.raises(BuildFailed, match=r"pip install \(Pipfile\.lock\) failed"):
        await Builder(settings, is_sandboxed=True).build(make_app_request(source), Log())


async def test_unchanged_dependencies_come_from_the_cache_of_the_project_alone(
    settings: Settings, tmp_path: Path
) -> None:
    builder = Builder(settings, is_sandboxed=True)
    logs = []
    builds = [("project-1", "# one\n"), ("project-1", "# one\n"), ("project-2", "# one\n")]
    for number, (cache, text) in enumerate(builds):
        source = write_files(tmp_path / str(number), {"main.py": f"print({number})", "requirements.txt": text})
        logs.append(Log())
        built = await builder.build(make_app_request(source, cache=cache), logs[-1])
        assert (built.folder / ".venv" / "bin" / "python").is_file()

    cached = ["dependencies: unchanged, taken from the cache" in log.system for log in logs]
    installed = ["$ pip install -r requirements.txt" in log.system for log in logs]

    assert cached == [False, True, False]
    assert installed == [True, False, True]
