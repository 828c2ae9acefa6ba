"""Lock files that name registries which do not exist any more."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import write_files

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout
from moorage.runtime.builds.node import registries
from moorage.runtime.workers.runtimes import installed, resolve

DEAD = f"{'closed' * 11}.example"  # Its label is too long for a question to a name server.
REGISTRY = "http://127.0.0.1:4873"


def mended(folder: Path, files: dict[str, Any], **env: str) -> str:
    """Run the step in a folder, beside an npm that has one registry; returns its output."""
    bin_folder = write_files(folder / "bin", {"npm": f"#!/bin/sh\necho {REGISTRY}/\n"})
    (bin_folder / "npm").chmod(0o755)
    work = write_files(folder / "work", files)
    node = str(installed()[resolve("nodejs") or ""].executable)
    layout = Layout(base="/", cache="/", tmp="/", bin="/", node=node, python="", pip="")
    step = registries.repair(Folder(work, ""), layout)
    assert step is not None
    variables = {"PATH": f"{bin_folder}:{os.defpath}", **env}
    return subprocess.run(step.argv, cwd=work, env=variables, text=True, capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("left/-/left-1.0.0.tgz", "left/-/left-1.0.0.tgz"),
        ("left/download/left-1.0.0.tgz?cache=0&sync=1#a1b2", "left/-/left-1.0.0.tgz#a1b2"),
        ("@dock/left/-/left-1.0.0.tgz", "@dock/left/-/left-1.0.0.tgz"),
        ("@dock%2fleft/download/@dock/left-1.0.0.tgz", "@dock/left/-/left-1.0.0.tgz"),
        ("api/npm/all/@dock/left/-/left-1.0.0.tgz", "@dock/left/-/left-1.0.0.tgz"),
    ],
)
def test_an_archive_of_a_missing_registry_comes_from_the_configured_one(
    tmp_path: Path, path: str, expected: str
) -> None:
    lock = f'left@1:\n  version "1.0.0"\n  resolved "https://{DEAD}/{path}"\n'

    output = mended(tmp_path, {"yarn.lock": lock})

    assert (tmp_path / "work/yarn.lock").read_text() == lock.replace(f"https://{DEAD}/{path}", f"{REGISTRY}/{expected}")
    assert f"the registry {DEAD} does not exist any more" in output


def test_addresses_of_other_hosts_and_other_files_stay(tmp_path: Path) -> None:
    lock = (
        '{"a": {"resolved": "http://localhost:4873/a/-/a-1.tgz"},\n'
        f' "b": {{"resolved": "https://{DEAD}/b/-/b-1.tgz"}}, "c": {{"resolved": "git+ssh://git@{DEAD}/c.git"}}}}\n'
    )
    settings = f"registry=https://{DEAD}/\nfund=false\n"

    mended(tmp_path, {"package-lock.json": lock, ".npmrc": settings})

    mended_lock = lock.replace(f"https://{DEAD}/b/", f"{REGISTRY}/b/")
    assert (tmp_path / "work/package-lock.json").read_text() == mended_lock
    assert (tmp_path / "work/.npmrc").read_text() == "fund=false\n"


def test_behind_a_proxy_nothing_is_replaced(tmp_path: Path) -> None:
    settings = f"registry=https://{DEAD}/\n"

    output = mended(tmp_path, {".npmrc": settings}, https_proxy="http://127.0.0.1:1")

    assert (output, (tmp_path / "work/.npmrc").read_text()) == ("", settings)


def test_without_an_address_there_is_no_step(tmp_path: Path) -> None:
    folder = Folder(write_files(tmp_path, {"package-lock.json": "{}"}), "")

    assert registries.repair(folder, Layout(base="", cache="", tmp="", bin="", node="", python="", pip="")) is None
