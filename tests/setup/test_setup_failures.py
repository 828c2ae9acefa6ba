"""A setup that cannot go on: one sentence with the next step, and the next run goes on."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from requirements.installer import failures
from requirements.installer.environment import UNFINISHED, Environment
from tests.mounts import own_mounts
from tests.platform.test_start_failures import read_only
from tests.setup.conftest import ROOT, Run, environment, sentences

NO_NETWORK = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("version", ["3.10.14", "3.15.0"])
def test_a_machine_with_another_python_is_told_which_it_has_and_which_it_needs(tmp_path: Path, version: str) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "env", "sh"):
        (programs / name).symlink_to(str(shutil.which(name)))
    write_program(programs / "python3", f'[ "$1" = --version ] && echo Python {version} && exit 0; exit 1')

    ended = subprocess.run(
        [ROOT / "requirements" / "setup", "runtime", tmp_path / "venv"], env={"PATH": str(programs)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    needs = "setup: Moorage needs Python 3.11 to 3.14, and this machine has: "
    assert sentences(ended) == [f"{needs}Python {version} at {programs}/python3."]
    assert "make up PYTHON=/path/to/python3.12" in ended.stderr
    assert not (tmp_path / "venv").exists()


def test_no_network_is_named_with_the_settings_to_check(run: Run, tmp_path: Path) -> None:
    ended = run("runtime", tmp_path / "venv", **NO_NETWORK)

    (sentence,) = sentences(ended)
    assert "the package index cannot be reached" in sentence
    assert "HTTPS_PROXY and PIP_INDEX_URL, then repeat the command" in sentence
    assert not (tmp_path / "venv" / ".runtime").exists()


def test_a_read_only_checkout_is_named_with_the_way_around_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "checkout").mkdir()

    with read_only(tmp_path / "checkout"):
        ended = run("runtime", tmp_path / "checkout" / ".venv")

    (sentence,) = sentences(ended)
    assert f"cannot write to {tmp_path}/checkout/.venv: " in sentence
    assert "make up VENV=/path/to/environment" in sentence


def test_a_second_setup_waits_for_the_first_and_does_nothing_then(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    argv = [str(ROOT / "requirements" / "setup"), "runtime", str(venv)]

    with (venv / ".setup-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        second = subprocess.Popen(argv, env=environment(tmp_path), stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        waiting = second.stdout.readline()
        (venv / ".runtime").touch()
        fcntl.flock(lock, fcntl.LOCK_UN)
    rest, _ = second.communicate(timeout=60)

    assert waiting.startswith("setup: process 4711 sets up the same folder; waiting")
    assert second.returncode == 0
    assert "installing" not in rest


def test_packages_of_an_interrupted_setup_are_discarded_and_database_software_stays(tmp_path: Path) -> None:
    for name in ("lib/python3/half", "bin", "share/moorage/engines/postgresql-16.14"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    for name in (UNFINISHED, ".runtime", ".dev", "pyvenv.cfg"):
        (tmp_path / name).touch()

    Environment(tmp_path)._discard_unfinished()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["share"]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("error: failed to write: No space left on device (os error 28)", "the disk is full: "),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "is not the locked one"),
        ("  Caused by: dns error: failed to lookup address information", "cannot be reached (Caused by: dns error"),
        ("ssl.SSLCertVerificationError: CERTIFICATE_VERIFY_FAILED", "SSL_CERT_FILE=/path/to/ca.pem"),
        ("error: failed to open: Permission denied (os error 13)", "let this user write there"),
        ("first\nsecond", "its last lines:\n  | first\n  | second\n"),
    ],
)
def test_output_of_an_installer_becomes_a_sentence_with_the_next_step(tmp_path: Path, output: str, said: str) -> None:
    sentence = failures.explain("uv", output, tmp_path / "venv")

    assert said in sentence
    assert "then repeat the command" in sentence


def test_a_password_of_the_package_index_is_not_shown(tmp_path: Path) -> None:
    sentence = failures.explain("uv", "tcp connect error for https://ada:hunter2@mirror.test/simple", tmp_path)

    assert "hunter2" not in sentence


@pytest.mark.deep
def test_a_full_disk_and_a_damaged_environment_are_mended_by_the_next_run(run: Run, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()

    with own_mounts():
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", venv], check=True)
        full = run("runtime", venv)
        subprocess.run(["mount", "-o", "remount,size=2g", "tmpfs", venv], check=True)
        mended = run("runtime", venv)
        program = subprocess.run([venv / "bin" / "moorage", "--help"], capture_output=True, check=False)
        subprocess.run(["umount", "--lazy", venv], check=True)

    (sentence,) = sentences(full)
    assert "the disk is full" in sentence
    assert (mended.returncode, program.returncode) == (0, 0)
    assert "the last setup was interrupted" in mended.stdout


@pytest.mark.deep
def test_a_killed_setup_is_finished_by_the_next_one(run: Run, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    argv = [str(ROOT / "requirements" / "setup"), "runtime", str(venv)]
    first = subprocess.Popen(argv, env=environment(tmp_path / "home"), start_new_session=True)
    while not (venv / UNFINISHED).exists():
        assert first.poll() is None
        os.sched_yield()
    os.killpg(first.pid, 9)
    first.wait()

    second = run("runtime", venv)

    assert second.returncode == 0
    assert subprocess.run([venv / "bin" / "moorage", "--help"], capture_output=True, check=False).returncode == 0
