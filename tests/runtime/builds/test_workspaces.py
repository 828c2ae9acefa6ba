"""Workspaces: their roots, the order of their packages, and the files that a release keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import make_request, write_files

from moorage.runtime.builds.collect import collect
from moorage.runtime.builds.detection import detect, managers
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.workspaces import Workspace, find_workspace, patterns_of
from moorage.runtime.builds.node import prune
from moorage.runtime.builds.ports import BuildFailed, Plan

WEB = {"name": "web", "scripts": {"start": "node ."}, "dependencies": {"@acme/ui": "*"}}
UI = {"name": "@acme/ui", "scripts": {"build": "tsc"}, "dependencies": {"@acme/text": "*"}}
TEXT = {"name": "@acme/text", "scripts": {"build": "tsc"}}
ROOT = {"workspaces": ["apps/*", "packages/*"]}
PACKAGES = {"packages/ui/package.json": UI, "packages/text/package.json": TEXT, "packages/other/package.json": {}}


def plan_of(folder: Path, files: dict[str, Any], **changed: Any) -> Plan:
    request = make_request(write_files(folder, files), wanted="auto", **changed)
    return detect.make_plan(request, detect.open_base(request))


def test_a_build_with_more_commands_builds_the_needed_packages_too(tmp_path: Path) -> None:
    scripts = {"build": "node ace build", "start": "node bin/server.js"}
    web = {"name": "web", "scripts": scripts, "dependencies": {"@adonisjs/core": "6"}}
    root = {"package.json": {**ROOT, "devDependencies": {"turbo": "2"}}, "turbo.json": {"tasks": {"build": {}}}}
    files = {**root, "apps/web/package.json": web, "apps/web/.env.example": "A=1", "apps/web/bin/server.ts": "x"}

    plan = plan_of(tmp_path, files)

    assert plan.build == "turbo run build --filter=web... && cp .env.example build/.env"


def test_the_pages_of_a_workspace_whose_root_lists_the_bundler_are_deployed(tmp_path: Path) -> None:
    root = {"package.json": {**ROOT, "devDependencies": {"vite": "7"}}}
    web = {"name": "web", "scripts": {"build": "vite build --mode production"}}
    mock = {"name": "backend-mock", "scripts": {"start": "nitro dev", "build": "nitro build"}}
    apps = {"apps/web/package.json": web, "apps/web/index.html": "x", "apps/backend-mock/package.json": mock}

    plan = plan_of(tmp_path, {**root, **apps})

    assert (plan.kind, plan.workdir, plan.output_dir) == ("static", "apps/web", "dist")


def test_a_root_that_runs_its_apps_together_for_development_is_none_itself(tmp_path: Path) -> None:
    scripts = {"start": "concurrently 'pnpm api' 'pnpm client'", "client": "pnpm --filter client dev"}
    root = {"package.json": {**ROOT, "scripts": scripts, "devDependencies": {"concurrently": "9", "vite": "7"}}}
    client = {"name": "client", "scripts": {"build": "vite build"}, "devDependencies": {"vite": "7"}}
    api = {"name": "api", "scripts": {"start": "node dist/index.js", "build": "vite build"}}

    plan = plan_of(tmp_path, {**root, "packages/client/package.json": client, "packages/api/package.json": api})

    assert (plan.kind, plan.workdir) == ("static", "packages/client")


@pytest.mark.parametrize(
    ("files", "is_found"),
    [
        ({"package.json": {"workspaces": ["apps/*"]}}, True),
        ({"package.json": {"workspaces": {"packages": ["./apps/web/"], "nohoist": []}}}, True),
        ({"package.json": {"workspaces": ["{apps,packages}/**"]}}, True),
        ({"package.json": {"workspaces": ["apps/*", "!apps/web"]}}, False),
        ({"package.json": {"workspaces": ["packages/*"]}}, False),
        ({"package.json": {"workspaces": "apps/*"}}, False),
        ({"package.json": {}, "pnpm-workspace.yaml": "packages:\n  # all\n  - 'apps/*' # of us\n"}, True),
        ({"package.json": {}, "pnpm-workspace.yaml": 'catalog:\n  a: 1\npackages: ["x", "apps/**"]\n'}, True),
        ({"package.json": {}, "pnpm-workspace.yaml": "packages:\n- apps/*\nonlyBuiltDependencies:\n- x\n"}, True),
        ({"package.json": {}, "pnpm-workspace.yaml": "onlyBuiltDependencies:\n  - apps/*\n"}, False),
        ({"package.json": "{"}, False),
    ],
)
def test_a_package_belongs_to_the_workspace_whose_patterns_match_it(
    tmp_path: Path, files: dict[str, Any], is_found: bool
) -> None:
    write_files(tmp_path, {**files, "apps/web/package.json": WEB})

    found = find_workspace(Folder(tmp_path, "apps/web"))

    assert (found is not None and found[0].root.base == "" and found[1] == "apps/web") is is_found


def test_the_nearest_root_counts_and_none_outside_of_the_repository(tmp_path: Path) -> None:
    outer = {"package.json": {"workspaces": ["**"]}, "repo/front/apps/web/package.json": WEB}
    write_files(tmp_path, {**outer, "repo/front/package.json": ROOT, "repo/package.json": {"workspaces": ["front/**"]}})
    (tmp_path / "repo" / "front" / "alone").mkdir()

    inner = find_workspace(Folder(tmp_path / "repo", "front/apps/web"))
    beyond = find_workspace(Folder(tmp_path / "repo" / "front" / "apps", "web"))

    assert inner is not None
    assert (inner[0].root.base, inner[1]) == ("front", "apps/web")
    assert beyond is None
    assert find_workspace(Folder(tmp_path / "repo", "front/alone")) is None


def test_dependencies_come_before_the_packages_that_need_them_also_in_a_cycle(tmp_path: Path) -> None:
    local = {"name": "local", "devDependencies": {"short": "workspace:@acme/ui@^1", "w": "file:../../apps/web"}}
    web = {**WEB, "dependencies": {"local": "link:../../packages/local", "express": "*"}}
    packages = {**PACKAGES, "packages/local/package.json": local, "packages/node_modules/x/package.json": {"name": "x"}}
    write_files(tmp_path, {"package.json": ROOT, "apps/web/package.json": web, **packages})

    workspace = Workspace(Folder(tmp_path, ""))

    assert workspace.dependencies("packages/ui") == ["packages/text"]
    assert workspace.dependencies("apps/web") == ["packages/text", "packages/ui", "packages/local", "apps/web"]
    assert "packages/node_modules/x" not in workspace.packages


def test_an_app_of_a_workspace_is_installed_at_the_root_and_started_in_its_folder(tmp_path: Path) -> None:
    files = {"mono/package.json": ROOT, "mono/yarn.lock": "", "mono/apps/web/package.json": WEB}
    packages = {f"mono/{name}": content for name, content in PACKAGES.items()}

    plan = plan_of(tmp_path, {**files, **packages}, base_dir="mono/apps/web")

    assert (plan.kind, plan.start, plan.base, plan.workdir) == ("container", "npm start", "mono", "apps/web")
    assert plan.install == "yarn install --frozen-lockfile"
    assert plan.packages == ("mono/packages/text", "mono/packages/ui")
    assert "build:    mono/packages/text, mono/packages/ui first" in detect.describe(plan)
    assert managers.node_manager(Folder(tmp_path, "mono/apps/web")).name == "yarn"


def test_turbo_and_nx_build_the_dependencies_where_they_are_set_up_for_it(tmp_path: Path) -> None:
    web = {**WEB, "scripts": {"start": "node .", "build": "x"}}
    files = {"apps/web/package.json": web, **PACKAGES}
    turbo = {
        "package.json": {**ROOT, "devDependencies": {"turbo": "2"}},
        "turbo.json": '{/* c */ "tasks": {"build": {},},}',
    }
    target = {"targetDefaults": {"build": {"dependsOn": ["^build"]}}}
    nx = {"package.json": {**ROOT, "devDependencies": {"nx": "21"}}, "nx.json": target}

    by_turbo = plan_of(tmp_path / "turbo", {**files, **turbo}, base_dir="apps/web")
    without_task = plan_of(tmp_path / "task", {**files, **turbo, "turbo.json": {"tasks": {}}}, base_dir="apps/web")
    by_nx = plan_of(tmp_path / "nx", {**files, **nx}, base_dir="apps/web")
    by_user = plan_of(tmp_path / "user", {**files, **turbo}, base_dir="apps/web", build_cmd="make", start_cmd="node .")

    assert (by_turbo.build, by_turbo.packages) == ("turbo run build --filter=web...", ())
    assert (without_task.build, len(without_task.packages)) == ("npm run build", 2)
    assert by_nx.build == "nx run-many -t build -p web"
    assert (by_user.build, by_user.packages, by_user.workdir) == ("make", (), "apps/web")


def test_without_a_base_folder_the_only_app_is_deployed(tmp_path: Path) -> None:
    root = {"workspaces": ["apps/*", "packages/*"], "scripts": {"build": "turbo build", "start": "turbo start"}}
    library = {"name": "lib", "main": "dist/x.js", "scripts": {"build": "vite build"}, "devDependencies": {"vite": "7"}}
    packages = {**PACKAGES, "packages/lib/package.json": library}

    plan = plan_of(tmp_path, {"package.json": root, "apps/web/package.json": WEB, **packages})

    assert (plan.start, plan.workdir) == ("npm start", "apps/web")
    assert "the only app is in apps/web, which is deployed; baseDir chooses another folder" in plan.notes


def test_without_a_base_folder_the_app_beside_its_documentation_is_deployed(tmp_path: Path) -> None:
    docs = {"scripts": {"build": "vite build"}, "devDependencies": {"vite": "7"}}
    files = {"package.json": ROOT, "apps/web/package.json": WEB, "apps/docs/package.json": docs, **PACKAGES}

    plan = plan_of(tmp_path, files)

    assert plan.workdir == "apps/web"
    note = (
        "the main app of the workspace is in apps/web (others: apps/docs), which is deployed; baseDir chooses another"
    )
    assert f"{note} folder" in plan.notes


def test_without_a_base_folder_several_apps_are_listed(tmp_path: Path) -> None:
    site = {"scripts": {"build": "vite build"}, "devDependencies": {"vite": "7"}}
    files = {"package.json": ROOT, "apps/web/package.json": WEB, "apps/site/package.json": site, **PACKAGES}

    with pytest.raises(BuildFailed) as failure:
        plan_of(tmp_path, files)

    expected = "this workspace has several apps, apps/site, apps/web: set baseDir to the one that is deployed"
    assert str(failure.value) == expected


def test_of_a_library_with_examples_the_documentation_is_deployed(tmp_path: Path) -> None:
    site = {"scripts": {"build": "vite build"}, "devDependencies": {"vite": "7"}}
    root = {"workspaces": ["docs", "packages/*", "examples/*"]}
    places = ("docs", "examples/plain", "examples/large")
    files = {"package.json": root, **{f"{place}/package.json": site for place in places}, **PACKAGES}

    plan = plan_of(tmp_path, files)

    assert (plan.kind, plan.workdir) == ("static", "docs")


def test_the_package_that_the_root_starts_in_production_is_deployed(tmp_path: Path) -> None:
    site = {"name": "ui", "scripts": {"build": "vite build"}, "devDependencies": {"vite": "7"}}
    server = {"name": "harbor", "scripts": {"prod": "node server.js"}, "dependencies": {"express": "5"}}
    root = {"workspaces": ["ui", "src"], "scripts": {"prod": "pnpm --filter harbor run prod"}}
    files = {"package.json": root, "ui/package.json": site, "src/package.json": server}

    plan = plan_of(tmp_path, files)

    assert (plan.workdir, plan.start) == ("src", "npm run prod")


@pytest.mark.parametrize(
    ("start", "place"),
    [
        ("yarn --cwd ./site start", "site"),
        ("pnpm --filter=@acme/shop dev", "shop"),
        ("npm start -w site && npm start -w @acme/shop", ""),
        ("npm run build -w site && node server.js", ""),
    ],
)
def test_the_package_that_the_start_of_a_root_names_is_deployed(tmp_path: Path, start: str, place: str) -> None:
    root = {"workspaces": ["site", "shop"], "scripts": {"start": start}}
    vite = {"scripts": {"build": "vite build", "start": "vite"}, "devDependencies": {"vite": "7"}}
    files = {"site/package.json": {"name": "site", **vite}, "shop/package.json": {"name": "@acme/shop", **vite}}

    plan = plan_of(tmp_path, {"package.json": root, **files})

    assert plan.workdir == place


def test_an_example_without_a_manifest_is_installed_where_its_parent_has_one(tmp_path: Path) -> None:
    server = "require('koa'); app.listen(3000)"
    files = {"package.json": {"dependencies": {"koa": "3"}}, "examples/hello/app.js": server}

    plan = plan_of(tmp_path, files, base_dir="examples/hello")

    assert (plan.install, plan.start, plan.base, plan.workdir) == ("npm install", "node app.js", "", "examples/hello")


@pytest.mark.parametrize(
    "root",
    [
        {"scripts": {"start": "node server.js"}},
        {"dependencies": {"express": "5"}, "scripts": {"start": "turbo start"}},
        {"scripts": {"build": "vite build"}, "devDependencies": {"vite": "7"}},
    ],
)
def test_a_root_that_is_an_app_itself_is_deployed_with_all_its_packages(tmp_path: Path, root: dict[str, Any]) -> None:
    files = {"package.json": {**ROOT, **root}, "apps/web/package.json": WEB, **PACKAGES}

    plan = plan_of(tmp_path, files)

    assert (plan.base, plan.workdir) == ("", "")


def test_a_release_keeps_the_needed_packages_and_each_link_becomes_one_copy(tmp_path: Path) -> None:
    write_files(
        tmp_path, {"package.json": ROOT, "apps/web/package.json": WEB, "apps/docs/package.json": {}, **PACKAGES}
    )
    write_files(tmp_path, {"packages/text/package.json": {**TEXT, "dependencies": {"@acme/ui": "*"}}})
    for holder, name, package in (
        ("", "web", "apps/web"),
        ("", "docs", "apps/docs"),
        ("apps/web", "@acme/ui", "packages/ui"),
        ("packages/ui", "@acme/text", "packages/text"),
        ("packages/text", "@acme/ui", "packages/ui"),
    ):
        link = tmp_path / holder / "node_modules" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(tmp_path / package)

    prune.prune(Folder(tmp_path, ""), "apps/web")
    collect(tmp_path, "container", root=tmp_path)

    kept = sorted(path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.glob("**/package.json"))
    modules = ["node_modules/@acme/text", "node_modules/@acme/ui"]
    assert kept == [".", "apps/web", *modules, "packages/text", "packages/ui"]
    assert not (tmp_path / "apps" / "docs").exists()
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_pruning_follows_no_link_out_of_the_workspace(tmp_path: Path) -> None:
    outside = write_files(tmp_path / "outside", {"package.json": {"name": "docs"}, "node_modules/web": "x"})
    root = write_files(tmp_path / "repo", {"package.json": ROOT, "apps/web/package.json": WEB})
    (root / "apps" / "docs").symlink_to(outside)
    (root / "node_modules").symlink_to(outside / "node_modules")

    prune.prune(Folder(root, ""), "apps/web")

    assert (outside / "package.json").is_file()
    assert (outside / "node_modules" / "web").is_file()


@pytest.mark.parametrize("pattern", ["*a" * 60 + "/**/x", "{" * 5000, "{a,b}" * 50, "/**" * 200 + "/x"])
def test_patterns_of_a_hostile_repository_are_matched_in_bounded_time(tmp_path: Path, pattern: str) -> None:
    write_files(tmp_path, {"package.json": {"workspaces": [pattern] * 3}, f"{'a' * 200}/package.json": {}})

    found = find_workspace(Folder(tmp_path, "a" * 200))

    assert found is None
    assert len(patterns_of(Folder(tmp_path, ""))) == 3
