"""Real apps, from the registries: built, packed, unpacked, and started as they will be."""

from __future__ import annotations

import asyncio
import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from tests.runtime.builds.app_support import Release, release

pytestmark = [pytest.mark.anyio, pytest.mark.group("apps-run")]

EXPRESS = """
const app = require('express')(), bcrypt = require('bcrypt')
const { npm_lifecycle_event: event, npm_package_version: version, NODE_ENV } = process.env
const isNative = bcrypt.compareSync('x', bcrypt.hashSync('x', 4))
app.get('/', (_, answer) => answer.json({ event, version, NODE_ENV, isNative, name: process.env.NAME }))
app.listen(process.env.PORT, process.env.HOST)
"""
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


@pytest.fixture(scope="module")
def express(tmp_path_factory: pytest.TempPathFactory) -> Release:
    package = {
        "name": "harbor",
        "version": "1.2.3",
        "scripts": {
            "prestart": "echo before: $npm_lifecycle_event >&2",
            "start": "npm run serve",
            "serve": "node server.js",
        },
        "dependencies": {"express": "4.21.2", "bcrypt": "6.0.0"},
    }
    files = {"package.json": package, "server.js": EXPRESS}
    return asyncio.run(release(tmp_path_factory.mktemp("express"), files))


@pytest.mark.deep
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


async def test_programs_of_packages_and_package_managers_can_be_called_by_name(tmp_path: Path) -> None:
    package = {
        "version": "1.2.3", "scripts": {"start": "node server.js"}, "devDependencies": {"semver": "7.6.3"},
    }  # fmt: skip
    app = await release(tmp_path, {"package.json": package, "server.js": ""})
    asks = "semver 2.0.0; npm --version; npx --version; npm pkg get version; python3 -V"

    told, _ = await app.run(["/bin/sh", "-c", asks], app.launch())

    lines = told.splitlines()
    assert lines[0] == "2.0.0"
    assert lines[1] == lines[2]
    assert lines[3] == '"1.2.3"'
    assert lines[4].startswith("Python 3.")


@pytest.mark.deep
async def test_a_uv_project_gets_an_environment_that_runs(tmp_path: Path) -> None:
    digest = write_wheel(tmp_path / "source")
    files = {"pyproject.toml": PROJECT, "uv.lock": LOCK % digest, "main.py": "import made\n"}

    made = await release(tmp_path, files)
    told, _ = await made.run(made.launch().argv, made.launch())
    looks = (
        "import importlib.util as u, made\n"
        "print(int.from_bytes(open(u.cache_from_source(made.__file__), 'rb').read(8)[4:], 'little'))"
    )
    compiled, _ = await made.run(["/bin/sh", "-c", f'which python; python -c "{looks}"'], made.launch())

    assert (made.plan.install, made.plan.start) == ("uv sync --frozen", "python main.py")
    assert told.startswith("as it was locked: /work/.venv/lib/python3.")
    # Compiled files have an unchecked hash, because artifacts keep no modification times.
    assert compiled.split()[0] == "/work/.venv/bin/python"
    assert compiled.split()[-1] == "1"
