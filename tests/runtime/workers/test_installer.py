"""Installs of dependencies: real pip and npm in the sandbox, with local package indexes."""

from __future__ import annotations

import os
import subprocess

import pytest
from tests.runtime.workers.installer_support import Deployment, Index, cached, node_files
from tests.runtime.workers.invoker_support import CANARY, python_of, user_of

pytestmark = pytest.mark.group("cells-installer")

# Python.


@pytest.mark.deep
def test_a_wheel_is_installed_and_can_be_imported(deployment: Deployment) -> None:
    folder, failure = deployment.install({"requirements.txt": "harbor==1.0\n"}, "python")

    code = "import harbor; print(harbor.boat)"
    printed = subprocess.run(
        [python_of(deployment.mode), "-I", "-c", f"import sys; sys.path.append({str(folder / 'packages')!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
        **user_of(deployment.mode),
    ).stdout
    assert failure is None
    assert printed == "a boat\n"
    owners = {path.stat().st_uid for path in (folder, *folder.rglob("*"))}
    assert owners == {os.stat(deployment.data).st_uid}


def test_pinned_dependencies_are_installed_once_and_then_kept(deployment: Deployment, index: Index) -> None:
    files = {"requirements.txt": "harbor==1.0  # for boats\n"}
    deployment.install(files, "python")
    before = len(index.requests)

    again, failure = deployment.install(files, "python")

    assert failure is None
    assert (again / "packages" / "harbor" / "__init__.py").read_text() == "boat = 'a boat'\n"
    assert len(index.requests) == before


@pytest.mark.deep
def test_what_is_not_pinned_is_looked_up_every_time(own_deployment: Deployment) -> None:
    files = {"requirements.txt": "harbor\n"}
    own_deployment.install(files, "python")
    before = own_deployment.asked_for("/files/harbor")

    _, failure = own_deployment.install(files, "python")

    assert failure is None
    assert own_deployment.asked_for("/files/harbor") == before + 1


def test_a_failed_install_shows_the_end_of_what_was_said_and_keeps_nothing(own_deployment: Deployment) -> None:
    files = {"requirements.txt": "not-there==1.0\n"}

    _, failure = own_deployment.install(files, "python")

    assert failure is not None
    assert "No matching distribution found for not-there==1.0" in failure
    assert "/work/" not in failure
    assert not (own_deployment.data / "build-cache").exists()


def test_sources_are_refused_and_never_run(own_deployment: Deployment) -> None:
    _, failure = own_deployment.install({"requirements.txt": "sources==1.0\n"}, "python")

    assert failure is not None
    assert "No matching distribution found" in failure
    assert "it ran" not in failure


def test_an_install_that_never_ends_is_cut_off(own_deployment: Deployment) -> None:
    folder, failure = own_deployment.install({"requirements.txt": "stalled==1.0\n"}, "python", timeout_s=1.0)

    assert failure is not None
    assert failure.endswith("(it took too long)")
    assert folder.stat().st_uid == own_deployment.data.stat().st_uid


def test_requirements_cannot_read_the_host_s_files(own_deployment: Deployment) -> None:
    (own_deployment.data / "secret.txt").write_text("harbor-secret==1.0\n")
    secret = str(own_deployment.data / "secret.txt")

    failures = [
        own_deployment.install({"requirements.txt": line}, "python")[1]
        for line in (f"-r {secret}\n", "-r /etc/shadow\n")
    ]

    assert None not in failures
    assert "harbor-secret==1.0" not in str(failures)


# Node.


def test_npm_installs_what_the_lock_file_says_once(deployment: Deployment, index: Index) -> None:
    folder, failure = deployment.install(node_files(index), "nodejs")
    before = len(index.requests)
    again, second = deployment.install(node_files(index), "nodejs")

    assert (failure, second) == (None, None)
    for each in (folder, again):
        assert (each / "node_modules" / "harbor" / "index.js").read_text() == "module.exports = 'a boat'\n"
    assert before > 0
    assert len(index.requests) == before


@pytest.mark.deep
def test_npm_without_a_lock_file_takes_what_fits(own_deployment: Deployment, index: Index) -> None:
    folder, failure = own_deployment.install({"package.json": {"dependencies": {"harbor": "^1.0.0"}}}, "nodejs")

    assert failure is None
    assert (folder / "node_modules" / "harbor" / "index.js").is_file()


@pytest.mark.deep
def test_a_failed_npm_says_why(own_deployment: Deployment) -> None:
    _, failure = own_deployment.install({"package.json": {"dependencies": {"not-there": "1.0.0"}}}, "nodejs")

    assert failure is not None
    assert "E404" in failure


@pytest.mark.deep
def test_a_script_that_prints_endlessly_is_cut_off_and_its_output_is_cut(
    own_deployment: Deployment, index: Index
) -> None:
    scripts = {"preinstall": "node -e 'for(;;)console.log(\"x\".repeat(1000000))'"}

    _, failure = own_deployment.install(node_files(index, scripts=scripts), "nodejs", timeout_s=4.0)

    assert failure is not None
    assert 0 < len(failure) < 4000


def test_install_scripts_run_inside_the_sandbox(deployment: Deployment, index: Index) -> None:
    look = f"cat /etc/shadow; cat /proc/1/environ; ls -a /proc; ls {deployment.data}; exit 7"

    folder, failure = deployment.install(node_files(index, scripts={"postinstall": look}), "nodejs")

    assert failure is not None
    assert "root:" not in failure
    assert CANARY not in failure
    assert "MOORAGE" not in failure
    assert "No such file or directory" in failure
    assert folder.is_dir()


@pytest.mark.deep
def test_pipes_and_locked_folders_that_a_script_leaves_are_no_failure_of_ours(
    deployment: Deployment, index: Index
) -> None:
    leave = "mkfifo node_modules/pipe; mkdir node_modules/shut; chmod 000 node_modules/shut"

    folder, failure = deployment.install(node_files(index, scripts={"postinstall": leave}), "nodejs")

    assert failure is None
    assert (folder / "node_modules" / "harbor" / "index.js").is_file()
    assert cached(deployment) == []
    (folder / "node_modules" / "shut").chmod(0o755)
