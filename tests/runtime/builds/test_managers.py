"""Detected package managers and their commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import make_app_request, write_files

from moorage.runtime.builds import install
from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.detection.managers import node_manager
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout, Step

LAYOUT = Layout("/work", "/cache", "/tmp", "/bin", "/node", "/python3", "/pip")


@pytest.mark.parametrize(
    ("files", "package", "label"),
    [
        ({}, "", "npm install"),
        ({"package-lock.json": "{}"}, "", "npm ci"),
        ({"npm-shrinkwrap.json": "{}", "yarn.lock": ""}, "", "npm ci"),
        ({"pnpm-lock.yaml": "lockfileVersion: '9.0'"}, "pnpm@10", "pnpm install --frozen-lockfile"),
        ({"pnpm-lock.yaml": "lockfileVersion: '6.0'"}, "pnpm@8", "pnpm install --frozen-lockfile"),
        ({"pnpm-lock.yaml": "lockfileVersion: 5.4"}, "pnpm@7", "pnpm install --frozen-lockfile"),
        ({"yarn.lock": "# yarn lockfile v1"}, "yarn@1", "yarn install --frozen-lockfile"),
        ({"yarn.lock": "__metadata:\n  version: 8"}, "@yarnpkg/cli-dist@4", "yarn install --immutable"),
        ({"package.json": {"packageManager": "pnpm@9.1.2+sha1.a"}}, "pnpm@9.1.2", "pnpm install --no-frozen-lockfile"),
        ({"package.json": {"packageManager": "yarn@4.2.0"}}, "@yarnpkg/cli-dist@4.2.0", "yarn install --no-immutable"),
        ({"package.json": {"packageManager": "pnpm@$(id)"}}, "", "npm install"),
    ],
)  # fmt: skip
def test_lock_files_choose_the_manager(tmp_path: Path, files: dict[str, Any], package: str, label: str) -> None:
    write_files(tmp_path, {"package.json": {}, **files})

    found = node_manager(Folder(tmp_path, ""))

    assert (found.package, found.label) == (package, label)


def python_steps(source: Path, files: dict[str, Any]) -> list[Step]:
    request = make_app_request(write_files(source, {"main.py": "", **files}))
    folder = detect.open_base(request)
    return install.steps(detect.make_plan(request, folder), folder, LAYOUT)


@pytest.mark.parametrize(
    ("files", "asked"),
    [
        ({"requirements.txt": "a"}, ["-r", "requirements.txt"]),
        ({"requirements.txt": "fastapi", "main.py": "app = FastAPI()"}, ["-r", "requirements.txt", "uvicorn"]),
        ({"pyproject.toml": "[build-system]\nrequires=[]"}, ["."]),
        ({"pyproject.toml": "[project]\ndependencies=['a>1', '--index-url=http://x']"}, ["a>1"]),
    ],
)
def test_pip_fills_an_environment_of_the_app_s_own(tmp_path: Path, files: dict[str, Any], asked: list[str]) -> None:
    make, fill = python_steps(tmp_path, files)

    assert make.argv[:3] == ["/python3", "-m", "venv"]
    assert fill.argv[:4] == [".venv/bin/python", "-m", "pip", "install"]
    assert fill.argv[-len(asked) :] == asked
    assert [word for word in fill.argv[4 : -len(asked)] if not word.startswith("--")] == []


def test_uv_is_fetched_for_its_lock_file(tmp_path: Path) -> None:
    lock = '[[package]]\nname = "fastapi"\n'
    files = {"pyproject.toml": "[project]\nname='x'", "uv.lock": lock, "main.py": "app = FastAPI()"}

    steps = python_steps(tmp_path, files)

    assert [step.what for step in steps] == [
        "python -m venv",
        "pip install uv",
        "uv sync --frozen",
        "pip install uvicorn",
    ]
    assert steps[2].argv[:3] == ["/tmp/uv/bin/uv", "sync", "--frozen"]


def test_an_app_that_names_nothing_installs_nothing(tmp_path: Path) -> None:
    assert python_steps(tmp_path, {}) == []


def test_dependencies_for_development_are_installed_whatever_the_environment_says(tmp_path: Path) -> None:
    write_files(tmp_path, {"package.json": {"scripts": {"start": "x"}}})
    request = make_app_request(tmp_path)
    folder = detect.open_base(request)

    (step,) = install.steps(detect.make_plan(request, folder), folder, LAYOUT)

    assert "--include=dev" in step.argv
    assert step.without == ("NODE_ENV",)
