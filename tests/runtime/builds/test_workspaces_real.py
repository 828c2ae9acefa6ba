"""Packages of workspaces, installed, built and started for real with each package manager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.app_support import release
from tests.runtime.builds.build_support import Log, make_request, write_files

from moorage.runtime.builds.builder import Builder
from moorage.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.deep]

SERVER = """
const text = require('@acme/text'), ms = require('ms'), http = require('http')
http.createServer((_, response) => response.end(text.shout(ms(60000)))).listen(process.env.PORT)
"""
BUILD_TEXT = """
const fs = require('fs')
require('@acme/base')
fs.mkdirSync('dist', { recursive: true })
fs.writeFileSync('dist/text.js', "exports.shout = text => require('@acme/base').upper(text)")
"""
BUILD_BASE = """
const suffix = JSON.stringify(process.env.SUFFIX ?? '')
require('fs').writeFileSync('out.js', `exports.upper = text => text.toUpperCase() + ${suffix}`)
"""
NPM = {"workspaces": ["apps/*", "packages/*"]}
PNPM_PACKAGES = "packages:\n  - apps/*\n  - packages/*\ncatalog:\n  ms: 2.1.3\nonlyBuiltDependencies:\n  - esbuild\n"
NX_TASKS = {"build": {"dependsOn": ["^build"]}}
TASKS = {"build": {"dependsOn": ["^build"], "outputs": ["dist/**", "out.js"]}}


def workspace(
    root: dict[str, Any], local: str = "*", *, ms: str = "2.1.3", files: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a workspace whose app needs packages that have to be built, and that need each other."""
    text = {"main": "dist/text.js", "scripts": {"build": "node build.js"}, "dependencies": {"@acme/base": local}}
    base = {"main": "out.js", "scripts": {"build": "node build.js"}, "devDependencies": {"@acme/text": local}}
    if "devDependencies" in root:  # Turbo and nx refuse cycles.
        del base["devDependencies"]
    web = {"scripts": {"start": "node ."}, "main": "index.js", "dependencies": {"@acme/text": local, "ms": ms}}
    site = {"scripts": {"build": "node build.js"}, "dependencies": {"@acme/text": local, "ms": "2.0.0"}}
    packages: dict[str, dict[str, Any]] = {
        "apps/web": web,
        "apps/site": site,
        "packages/text": text,
        "packages/base": base,
    }
    names = {"apps/web": "web", "apps/site": "site", "packages/text": "@acme/text", "packages/base": "@acme/base"}
    manifests = {f"{path}/package.json": {"name": names[path], "version": "1.0.0", **packages[path]} for path in names}
    return {
        "package.json": {"name": "mono", "private": True, **root},
        "apps/web/index.js": SERVER,
        "apps/site/build.js": "const t = require('@acme/text'), fs = require('fs'); fs.mkdirSync('dist');"
        "fs.writeFileSync('dist/index.html', t.shout('built'))",
        "packages/text/build.js": BUILD_TEXT,
        "packages/base/build.js": BUILD_BASE,
        **manifests,
        **(files or {}),
    }


WORKSPACES = {
    "npm": workspace(NPM),
    "yarn": workspace({**NPM, "packageManager": "yarn@1.22.22"}),
    "yarn-berry": workspace({**NPM, "packageManager": "yarn@4.9.2"}, "workspace:*"),
    "pnpm": workspace(
        {"packageManager": "pnpm@10.12.1"}, "workspace:*", ms="catalog:", files={"pnpm-workspace.yaml": PNPM_PACKAGES}
    ),
    "turbo": workspace({**NPM, "devDependencies": {"turbo": "2.5.4"}}, files={"turbo.json": {"tasks": TASKS}}),
    "turbo-pnpm": workspace(
        {"packageManager": "pnpm@9.15.0", "devDependencies": {"turbo": "2.5.4"}},
        "workspace:*",
        files={"pnpm-workspace.yaml": "packages: ['apps/*', 'packages/*']\n", "turbo.json": {"tasks": TASKS}},
    ),
    "nx": workspace(
        {**NPM, "devDependencies": {"nx": "21.2.0"}},
        files={"nx.json": {"targetDefaults": NX_TASKS}},
    ),
}


@pytest.mark.parametrize("name", WORKSPACES)
async def test_an_app_of_a_workspace_answers_with_packages_that_were_built_before_it(tmp_path: Path, name: str) -> None:
    made = await release(tmp_path, WORKSPACES[name], base_dir="apps/web", env={"SUFFIX": "!"})

    answer, errors = await made.answer()

    assert answer == "1M!", errors
    assert (made.plan.base, made.plan.workdir) == ("", "apps/web")
    assert not (made.folder / "apps" / "site").exists()


@pytest.mark.parametrize("name", ["npm", "pnpm", "turbo", "nx"])
async def test_the_output_of_a_site_in_a_workspace_is_published(settings: Settings, tmp_path: Path, name: str) -> None:
    source = write_files(tmp_path / "source", WORKSPACES[name])

    built = await Builder(settings, is_sandboxed=True).build(make_request(source, base_dir="apps/site"), Log())

    assert [path.name for path in built.folder.iterdir()] == ["index.html"]
    assert (built.folder / "index.html").read_text() == "BUILT"
