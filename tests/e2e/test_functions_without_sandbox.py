"""Machines that cannot sandbox, and operators who switch it off: said at the start, and of every function."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.functions_support import ECHO, LANGUAGES, new_name, started
from tests.platform.running import clean_environment

pytestmark = pytest.mark.group("functions")

# Takes from itself, and all it starts, the namespaces that a sandbox is made of; then decides as `moorage up` does.
WITHOUT_NAMESPACES = """
import os, sys
from pathlib import Path
from moorage.runtime.sandbox import syscalls
uid, gid = os.getuid(), os.getgid()
syscalls.unshare(syscalls.CLONE_NEWUSER)
Path("/proc/self/setgroups").write_text("deny")
Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
for kind in ("user", "mnt", "pid", "net"):
    Path(f"/proc/sys/user/max_{kind}_namespaces").write_text("0")
from moorage.platform import plan
from moorage.settings import BadSettings, load
try:
    print(plan.with_sandbox(load()).sandbox)
except BadSettings as error:
    print(error)
"""


def decide(**settings: str) -> subprocess.CompletedProcess[str]:
    env = {**clean_environment(), **{f"MOORAGE_{name.upper()}": value for name, value in settings.items()}}
    argv = [sys.executable, "-c", WITHOUT_NAMESPACES]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=True)


def test_production_refuses_a_machine_that_cannot_sandbox_and_says_why_and_what_to_do() -> None:
    keys = {"master_key": os.urandom(32).hex(), "session_secret": os.urandom(32).hex()}

    said = decide(mode="production", **keys).stdout

    assert said.startswith("MOORAGE_SANDBOX: users' code cannot be sandboxed on this machine: ")
    assert "namespace" in said
    assert "MOORAGE_SANDBOX=off on purpose" in said


def test_development_warns_and_goes_on_without_one() -> None:
    decided = decide()

    assert decided.stdout == "off\n"
    assert "warning: functions run without a sandbox, because this machine has none" in decided.stderr


@pytest.mark.deep
def test_without_a_sandbox_functions_run_and_the_start_and_each_of_them_say_so(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data, sandbox="off") as platform:
        names = {language: new_name("bare") for language in LANGUAGES}
        for language, name in names.items():
            platform.create(name, language, ECHO[language])
        details = [platform.api("GET", f"/v1/functions/{name}") for name in names.values()]
        answers = [platform.fetch(name, "?a=1") for name in names.values()]

    assert all(detail["sandbox"].startswith("off: ") for detail in details)
    assert [(answer.status, answer.json["a"]) for answer in answers] == [(200, "1"), (200, "1")]
    assert "warning: functions run without a sandbox (MOORAGE_SANDBOX=off)" in (tmp_path / "data.log").read_text()
