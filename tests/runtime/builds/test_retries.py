"""Builds that fail in a known way and are repeated with another command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from moorage.runtime.builds import install
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout, Retry
from moorage.runtime.builds.node import sharp, warnings
from moorage.runtime.builds.ports import Plan

LAYOUT = Layout(base="/work", cache="/cache", tmp="/tmp", bin="/bin", node="node", python="python", pip="")


@pytest.mark.parametrize(
    ("retry", "output"),
    [
        (sharp.retry("astro build", LAYOUT), '[vite]: Rollup failed to resolve import "sharp" from "/work/a.js".'),
        (sharp.retry("astro build", LAYOUT), "Error: Could not find Sharp."),
        (sharp.retry("gatsby build", LAYOUT), 'Something went wrong installing the "sharp" module'),
        (sharp.retry("gatsby build", LAYOUT), "Cannot find module '../build/Release/sharp-linux-arm64v8.node'"),
        (sharp.retry("gatsby build", LAYOUT), "Cannot find module '../build/Release/sharp.node'"),
        (warnings.retry("npm run build"), "Treating warnings as errors because process.env.CI = true."),
    ],
)
def test_a_known_failure_is_recognised(retry: Retry, output: str) -> None:
    assert retry.pattern.search(output)


def test_the_command_itself_follows_the_remedy() -> None:
    assert sharp.retry("astro build", LAYOUT).argv[2].endswith(" && astro build")
    assert warnings.retry("npm run build").argv[2] == "export CI=false; npm run build"


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
        '#!/bin/sh\nmkdir -p "$3/node_modules/sharp" "$3/node_modules/@img/library"\n'
        'echo new > "$3/node_modules/sharp/package.json"\n'
    )
    npm.chmod(0o755)
    step = sharp.repair(
        Folder(tmp_path, "work"), LAYOUT.__class__(str(tmp_path / "work"), "", str(tmp), "", "", "", "")
    )

    assert step is not None
    subprocess.run(step.argv, check=True, env={"PATH": f"{programs}:/usr/bin:/bin"})
    for place in places:
        assert (place / "package.json").read_text() == "new\n"
        assert (place / "node_modules/@img/library").is_dir()
        assert not (place / "build").exists()
