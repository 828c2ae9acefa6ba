"""Detected package managers and their commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import make_app_request, write_files

from moorage.runtime.builds import install
from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.detection.managers import has_own_gyp, node_manager
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout

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
        ({"bun.lock": "{}"}, "bun@1", "bun install --frozen-lockfile"),
        ({"bun.lockb": "x", "package-lock.json": "{}"}, "", "npm ci"),
        ({"package.json": {"packageManager": "bun@1.1.4"}}, "bun@1.1.4", "bun install"),
    ],
)  # fmt: skip
def test_lock_files_choose_the_manager(tmp_path: Path, files: dict[str, Any], package: str, label: str) -> None:
    write_files(tmp_path, {"package.json": {}, **files})

    found = node_manager(Folder(tmp_path, ""))

    assert (found.package, found.label) == (package, label)


@pytest.mark.parametrize(
    ("files", "runs_all"),
    [
        ({"pnpm-workspace.yaml": "overrides:\n  x: 1\n"}, True),
        ({"pnpm-workspace.yaml": "onlyBuiltDependencies:\n  - esbuild\n"}, False),
        ({"pnpm-workspace.yaml": "allowBuilds:\n  esbuild: true\n"}, False),
        ({"package.json": {"pnpm": {"onlyBuiltDependencies": ["esbuild"]}}}, False),
    ],
)
def test_pnpm_runs_the_install_scripts_that_a_project_chooses_else_all(
    tmp_path: Path, files: dict[str, Any], runs_all: bool
) -> None:
    write_files(tmp_path, {"package.json": {}, "pnpm-lock.yaml": "lockfileVersion: '9.0'", **files})

    found = node_manager(Folder(tmp_path, ""))

    assert ("--config.dangerously-allow-all-builds=true" in found.flags) == runs_all


@pytest.mark.parametrize(
    ("files", "is_own"),
    [
        ({"package.json": {"dependencies": {"sqlite3": "^5.1.7"}}}, True),
        ({"package-lock.json": '{"packages": {"node_modules/node-gyp": {"version": "8.4.1"}}}'}, True),
        ({"yarn.lock": 'sequelize@6:\n  dependencies:\n    node-gyp "8.x"\n'}, True),
        ({"yarn.lock": 'bufferutil@4:\n  dependencies:\n    node-gyp-build "^4.3.0"\n'}, False),
        ({"package.json": {"dependencies": {"better-sqlite3": "12.4.1"}}}, False),
    ],
)
def test_packages_that_bring_a_node_gyp_are_known(tmp_path: Path, files: dict[str, Any], is_own: bool) -> None:
    write_files(tmp_path, {"package.json": {}, **files})

    assert has_own_gyp(Folder(tmp_path, "")) is is_own


def test_npm_installs_where_bun_cannot(tmp_path: Path) -> None:
    write_files(tmp_path, {"package.json": {"dependencies": {"hono": "4"}}, "bun.lock": "{}", "index.ts": "x"})
    request = make_app_request(tmp_path)
    folder = detect.open_base(request)

    (step,) = install.steps(detect.make_plan(request, folder), folder, LAYOUT)

    assert step.argv == ["/bin/bun", "install", "--frozen-lockfile", "--linker=hoisted"]
    retry = step.retries[-1]
    assert retry.pattern.search("bun install v1.3.1\nerror: lockfile had changes, but lockfile is frozen\n")
    assert retry.argv[:2] == ["/bin/npm", "install"]


def test_dependencies_for_development_are_installed_whatever_the_environment_says(tmp_path: Path) -> None:
    write_files(tmp_path, {"package.json": {"scripts": {"start": "x"}}})
    request = make_app_request(tmp_path)
    folder = detect.open_base(request)

    (step,) = install.steps(detect.make_plan(request, folder), folder, LAYOUT)

    assert "--include=dev" in step.argv
    assert step.without == ("NODE_ENV",)
