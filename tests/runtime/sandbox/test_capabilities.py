"""Detected features as root, as an unprivileged user, and with restrictions like those of other machines."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.workers.invoker_support import in_reach

from moorage.runtime.sandbox import capabilities
from moorage.runtime.sandbox.capabilities import NAMESPACES

SRC = Path(capabilities.__file__).parents[3]
TELL = """
import dataclasses, json, os, sys
from moorage.runtime.sandbox import capabilities, syscalls
{before}
report = capabilities.probe()
told = dataclasses.asdict(report) | {{"can_sandbox": report.can_sandbox, "can_connect": report.can_connect}}
print(json.dumps(told, default=sorted))
"""
NO_SYSTEM_RIGHTS = "syscalls.drop_capabilities()"
NO_USER_NAMESPACES = """
flags = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS
user = os.geteuid()
syscalls.unshare(flags)
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write(f"1000 {user} 1")
open("/proc/self/gid_map", "w").write(f"1000 {user} 1")
open("/proc/sys/user/max_user_namespaces", "w").write("0")
os.setresuid(1000, 1000, 1000)
syscalls.drop_capabilities()
"""
MASKED_PROC = (
    NO_USER_NAMESPACES.split('open("/proc/sys')[0]
    + """
syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
syscalls.mount("tmpfs", "/proc/sys", "tmpfs")
"""
)


def told(before: str = "", *, user: int | None = None) -> dict[str, Any]:
    """Return the report of another process, which runs code first."""
    other: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    clean = {"PYTHONPATH": str(in_reach(SRC)), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["/usr/bin/python3", "-c", TELL.format(before=before)]
    done = subprocess.run(words, env=clean, cwd="/", capture_output=True, text=True, **other)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_this_machine_can_give_everything() -> None:
    found = capabilities.probe()

    wanted = {name: True for name, value in asdict(found).items() if isinstance(value, bool)}
    assert {name: getattr(found, name) for name in wanted} == wanted
    assert found.namespaces == set(NAMESPACES)
    assert found.cgroups in ("v1", "v2")
    assert (found.can_sandbox, found.can_connect, found.missing) == (True, True, ())


def test_trying_changes_nothing_of_this_process() -> None:
    def state() -> list[str]:
        links = [os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns"))]
        status = Path("/proc/self/status").read_text()
        kept = [line for line in status.splitlines() if line.startswith(("Uid", "Cap", "NoNewPrivs", "Seccomp:"))]
        return [*links, *kept, Path("/proc/self/mountinfo").read_text(), *sorted(os.listdir("/proc/self/fd"))]

    before = state()

    capabilities.probe()

    assert state() == before


def test_an_ordinary_user_gets_a_sandbox_without_users_and_groups_of_its_own() -> None:
    found = told(user=12345)

    assert (found["can_sandbox"], found["can_connect"], found["missing"]) == (True, True, [])
    assert (found["is_root"], found["own_users"], found["cgroups"]) == (False, False, "none")


def test_root_without_the_right_to_administer_is_told_how_to_start_its_container() -> None:
    found = told(NO_SYSTEM_RIGHTS)

    assert found["can_sandbox"] is False
    assert found["namespaces"] == []
    assert len(found["missing"]) == 1
    assert "SYS_ADMIN" in found["missing"][0]


def test_a_user_without_user_namespaces_is_told_which_switch_to_turn() -> None:
    found = told(NO_USER_NAMESPACES)

    assert (found["can_sandbox"], found["can_connect"], found["user_namespaces"]) == (False, False, False)
    assert found["missing"] == ["no user namespaces are allowed: sysctl -w user.max_user_namespaces=15000"]


def test_a_container_whose_proc_is_masked_is_told_from_one_without_namespaces() -> None:
    found = told(MASKED_PROC)

    assert (found["proc"], found["can_sandbox"]) == (False, False)
    assert "systempaths=unconfined" in found["missing"][0]


@pytest.mark.parametrize(
    ("sysctl", "value", "fix"),
    [
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces="),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/other", "1", "run Moorage as root"),
    ],
)
def test_the_fix_names_the_switch_that_is_off(tmp_path: Path, sysctl: str, value: str, fix: str) -> None:
    (tmp_path / sysctl).parent.mkdir(parents=True)
    (tmp_path / sysctl).write_text(value + "\n")

    assert fix in capabilities.user_namespace_fix(tmp_path)
