"""The doctor on this very machine, and on machines that lack something."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.command import argv, environment, free_port, moorage

from moorage.platform import doctor
from moorage.platform.doctor import State
from moorage.settings import Settings

NAMES = {
    *("settings", "system", "python", "sqlite", "git", "caddy", "node", "bwrap", "sandbox", "cgroups", "outbound"),
    *("disk", "memory", "ports", "data folder", "clock", "locale", "open files", "mode"),
}
KEYS = {"master_key": bytes(range(32)).hex(), "session_secret": bytes(range(32, 64)).hex()}


def settings_for(data: Path, **given: Any) -> Settings:
    return Settings(_env_file=None, data=data, **given)  # type: ignore[call-arg]


def by_name(output: str) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in json.loads(output)["checks"]}


def test_every_check_is_made_and_the_data_folder_is_not(tmp_path: Path) -> None:
    ports = {f"{name.upper()}": str(free_port()) for name in doctor.PORTS}

    found = moorage("doctor", "--json", "--data", tmp_path / "new", **ports)

    checks = by_name(found.stdout)
    assert set(checks) == NAMES
    assert {checks[name]["state"] for name in ("python", "sqlite", "caddy", "bwrap", "sandbox", "ports")} == {"ok"}
    assert json.loads(found.stdout)["ok"] == (found.returncode == 0)
    assert found.returncode == int(any(check["state"] == "fail" for check in checks.values()))
    assert not (tmp_path / "new").exists()


def test_groups_that_were_made_to_try_are_taken_away_again() -> None:
    own = Path("/proc/self/cgroup").read_text()
    groups = doctor.find_cgroups(Path("/proc/self/mountinfo").read_text(), own)

    doctor.check_cgroups(groups)

    assert not [path for group in groups for path in group.folder.glob(f"moorage-doctor-{os.getpid()}")]


def test_the_text_has_a_line_for_each_check_and_every_gap_has_a_fix(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        found = moorage("doctor", "--data", tmp_path, API_PORT=port, GATEWAY_PORT=str(free_port()))

    lines = found.stdout.splitlines()
    assert found.returncode == 1
    at = next(index for index, line in enumerate(lines) if line.startswith("fail  ports"))
    assert port in lines[at]
    assert lines[at + 1].strip().startswith("fix: ")
    assert "MOORAGE_API_PORT" in lines[at + 1]
    starts = {line[6:].partition("  ")[0].strip() for line in lines if line.startswith(("ok ", "warn", "fail"))}
    assert starts == NAMES


def test_settings_that_cannot_be_used_are_named_and_the_machine_is_still_checked(tmp_path: Path) -> None:
    found = moorage("doctor", "--json", "--data", tmp_path, MODE="production", WORKERS="many")

    checks = by_name(found.stdout)
    assert found.returncode == 1
    assert set(checks) == NAMES
    assert checks["settings"]["state"] == "fail"
    assert "MOORAGE_WORKERS" in checks["settings"]["found"]


def test_production_without_keys_says_how_to_make_them(tmp_path: Path) -> None:
    found = moorage("doctor", "--json", "--data", tmp_path, MODE="production")

    assert found.returncode == 1
    assert "MOORAGE_MASTER_KEY" in by_name(found.stdout)["settings"]["found"]
    assert "moorage keys generate" in by_name(found.stdout)["settings"]["found"]


def test_a_machine_without_user_namespaces_fails_with_the_reason_and_the_switch(tmp_path: Path) -> None:
    sandbox = [str(doctor.find_bwrap()), "--unshare-user", "--disable-userns", "--dev-bind", "/", "/"]
    sandbox += ["--proc", "/proc", "--uid", "1000", "--gid", "1000", "--"]

    words = [*sandbox, *argv("doctor", "--json", "--data", tmp_path)]
    found = subprocess.run(words, capture_output=True, text=True, env=environment())

    checks = by_name(found.stdout)
    assert found.returncode == 1
    assert checks["sandbox"]["state"] == "fail"
    assert "namespace" in checks["sandbox"]["found"]
    assert "user.max_user_namespaces" in checks["sandbox"]["fix"]


def test_a_missing_sandbox_is_only_a_warning_where_docker_runs_the_code(tmp_path: Path) -> None:
    assert doctor._needed(settings_for(tmp_path)) is State.FAIL
    assert doctor._needed(settings_for(tmp_path, engine="docker")) is State.WARN


@pytest.mark.parametrize(
    ("sysctl", "value", "fix"),
    [
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces="),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/other", "1", "--security-opt seccomp=unconfined"),
    ],
)
def test_the_fix_names_the_switch_that_is_off(tmp_path: Path, sysctl: str, value: str, fix: str) -> None:
    (tmp_path / sysctl).parent.mkdir(parents=True)
    (tmp_path / sysctl).write_text(value + "\n")

    found = doctor.namespace_fix("setting up uid map: Permission denied", Path("/usr/bin/bwrap"), tmp_path)

    assert fix in found


def test_a_masked_proc_is_told_from_missing_namespaces(tmp_path: Path) -> None:
    found = doctor.namespace_fix("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", Path(), tmp_path)

    assert "systempaths=unconfined" in found


@pytest.mark.parametrize(
    ("version", "state"),
    [((3, 10, 14), "fail"), ((3, 11, 0), "ok"), ((3, 14, 2), "ok"), ((3, 15, 0), "warn")],
)
def test_python_is_judged_by_what_is_tested(version: tuple[int, ...], state: str) -> None:
    assert doctor.check_python(version).state == state


@pytest.mark.parametrize(("version", "state"), [((3, 34, 1), "fail"), ((3, 35, 0), "ok")])
def test_sqlite_has_to_know_returning(version: tuple[int, ...], state: str) -> None:
    assert doctor.check_sqlite(version).state == state


@pytest.mark.parametrize(("free_mb", "state"), [(999, "fail"), (1500, "warn"), (2500, "ok")])
def test_disk_space_is_judged_against_the_reserve(tmp_path: Path, free_mb: int, state: str) -> None:
    assert doctor.check_disk(settings_for(tmp_path, disk_reserve_mb=1000), free_mb).state == state


@pytest.mark.parametrize(("available", "state"), [(400_000, "warn"), (4_000_000, "ok")])
def test_little_memory_is_a_warning(available: int, state: str) -> None:
    assert doctor.check_memory(f"MemTotal: 8000000 kB\nMemAvailable: {available} kB\n").state == state


@pytest.mark.parametrize(
    ("limits", "state"),
    [((256, 256), "fail"), ((1024, 1_048_576), "warn"), ((4096, 4096), "ok"), ((-1, -1), "ok")],
)
def test_open_files_have_to_be_many(limits: tuple[int, int], state: str) -> None:
    assert doctor.check_files(limits).state == state


def test_ports_in_use_are_fine_while_the_platform_itself_runs(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = settings_for(tmp_path, api_port=taken.getsockname()[1], gateway_port=free_port())
        stopped = doctor.check_ports(settings, running=False)
        running = doctor.check_ports(settings, running=True)

    assert (stopped.state, running.state) == (State.FAIL, State.OK)


def test_one_port_for_two_servers_is_refused_even_while_it_is_free(tmp_path: Path) -> None:
    found = doctor.check_ports(settings_for(tmp_path, api_port=8090, edge_port=8090), running=False)

    assert found.state is State.FAIL
    assert "twice" in found.found


def test_an_address_of_another_machine_is_named(tmp_path: Path) -> None:
    problem = doctor.port_problem(settings_for(tmp_path, host="192.0.2.1"), "api_port", free_port())

    assert problem is not None
    assert "MOORAGE_HOST" in problem[1]


def test_the_data_folder_has_to_be_a_folder_that_is_ours(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)

    states = {
        name: doctor.check_data(settings_for(tmp_path / name)).state
        for name in ("new", "file/below", "open", "x" * 100)
    }

    assert states == {"new": "ok", "file/below": "fail", "open": "warn", "x" * 100: "fail"}


def test_somebody_elses_data_folder_is_refused(tmp_path: Path) -> None:
    mine = doctor.check_data(settings_for(tmp_path), user=os.geteuid())
    theirs = doctor.check_data(settings_for(tmp_path), user=os.geteuid() + 1)

    assert (mine.state, theirs.state) == (State.OK, State.FAIL)
    assert "chown" in (theirs.fix or "")


def test_a_clock_in_the_past_is_refused_and_one_before_the_store_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/moorage.db").touch()
    written = (tmp_path / "store/moorage.db").stat().st_mtime

    states = [doctor.check_clock(settings_for(tmp_path), now).state for now in (0, written - 3600, written)]

    assert states == [State.FAIL, State.WARN, State.OK]


V1 = "35 33 0:{0} / {1}/{2} rw,relatime - cgroup cgroup rw,{2}\n"
V2 = "43 33 0:40 / {0} rw,relatime - cgroup2 cgroup2 rw\n"


def v2_group(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text("cpu memory pids\n")
    (folder / "cgroup.subtree_control").write_text("")
    return folder


def test_version_1_groups_are_found_by_controller_and_tried(tmp_path: Path) -> None:
    (tmp_path / "memory/mine").mkdir(parents=True)
    (tmp_path / "pids").mkdir()
    mountinfo = "".join(V1.format(number, tmp_path, name) for number, name in enumerate(("memory", "cpu", "pids")))

    groups = doctor.find_cgroups(mountinfo, "4:memory:/mine\n3:cpu:/\n2:pids:/of/the/host\n")
    found = doctor.check_cgroups(groups)

    assert [group.folder for group in groups] == [tmp_path / "memory/mine", tmp_path / "cpu", tmp_path / "pids"]
    assert found.state is State.WARN
    assert found.found == "v1; writable: memory, pids; not writable: cpu"
    assert not list((tmp_path / "memory/mine").iterdir())


def test_a_version_2_group_is_enough_if_it_may_hand_on_its_controllers(tmp_path: Path) -> None:
    mine = v2_group(tmp_path / "system.slice/moorage.service")

    groups = doctor.find_cgroups(V2.format(tmp_path), "0::/system.slice/moorage.service\n")
    whole = doctor.check_cgroups(groups)
    (mine / "cgroup.subtree_control").unlink()
    fixed = doctor.check_cgroups(groups)

    assert (whole.state, whole.found) == (State.OK, "v2; writable: memory, cpu, pids")
    assert fixed.state is State.WARN
    assert "Delegate=yes" in (fixed.fix or "")


def test_both_versions_at_once_are_called_hybrid(tmp_path: Path) -> None:
    v2_group(tmp_path / "unified")
    mountinfo = V1.format(1, tmp_path, "memory") + V2.format(tmp_path / "unified")

    found = doctor.check_cgroups(doctor.find_cgroups(mountinfo, "4:memory:/\n0::/\n"))

    assert found.found.startswith("hybrid")


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({}, "ok"),
        ({"host": "0.0.0.0"}, "warn"),
        ({"mode": "production", **KEYS, "base_url": "https://m.example"}, "ok"),
        ({"mode": "production", **KEYS}, "warn"),
        (
            {"mode": "production", "base_url": "https://m.example", **KEYS, "session_secret": KEYS["master_key"]},
            "warn",
        ),
    ],
)
def test_settings_that_are_unsafe_together_are_warned_of(tmp_path: Path, given: dict[str, str], state: str) -> None:
    assert doctor.check_mode(settings_for(tmp_path, **given)).state == state


def test_a_program_that_is_there_but_does_not_run_counts_as_missing(tmp_path: Path) -> None:
    broken = tmp_path / "git"
    broken.write_bytes(b"\x7fELF of another machine")
    broken.chmod(0o755)

    found = doctor._program("git", str(broken), State.FAIL, "install it")

    assert (found.state, found.fix) == (State.FAIL, "install it")
    assert "cannot be run" in found.found
