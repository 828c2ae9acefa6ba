"""Tests in several processes: groups, reports, output, and processes that end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = """
import os
import pytest

@pytest.fixture(scope="session", autouse=True)
def mark():
    with open("started", "a") as file:
        print(os.getpid(), file=file)
    yield
    with open("ended", "a") as file:
        print(os.getpid(), file=file)

def note(name):
    with open("tests", "a") as file:
        print(name, os.getpid(), file=file)
"""


def run(folder: Path, modules: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(SHARED)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = group\n")
    for name, text in modules.items():
        marked = (
            f"import os\nimport pytest\nfrom conftest import note\npytestmark = pytest.mark.group('{name}')\n{text}"
        )
        (folder / f"test_{name}.py").write_text(marked)
    command = [sys.executable, "-m", "pytest", "-p", "tests.parallel", "--processes", "2", *options]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_each_group_runs_in_one_process_and_fixtures_are_torn_down(tmp_path: Path) -> None:
    modules = {name: "".join(f"def test_{n}(): note('{name}')\n" for n in range(5)) for name in ("a", "b", "c")}

    done = run(tmp_path, modules)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "15 passed" in done.stdout
    assert len(lines(tmp_path / "tests")) == 15
    assert len(set(lines(tmp_path / "tests"))) == 3, "a group has one process"
    assert sorted(lines(tmp_path / "started")) == sorted(lines(tmp_path / "ended"))


def test_a_failure_is_shown_with_what_its_test_printed(tmp_path: Path) -> None:
    modules = {
        "a": "def test_one():\n    print('printed by one')\n    assert 1 == 2\n",
        "b": "def test_two():\n    print('printed by two')\n",
    }

    done = run(tmp_path, modules)

    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "assert 1 == 2" in done.stdout
    assert "printed by one" in done.stdout
    assert "printed by two" not in done.stdout
    assert "test_a.py::test_one" in (tmp_path / ".pytest_cache/v/cache/lastfailed").read_text()


def test_a_process_that_is_killed_fails_its_test_and_another_runs_the_rest(tmp_path: Path) -> None:
    modules = {
        "a": "def test_1(): note('a')\ndef test_2(): os.kill(os.getpid(), 9)\ndef test_3(): note('a')\n",
        "b": "def test_4(): note('b')\n",
    }

    done = run(tmp_path, modules)

    assert done.returncode == 1
    assert "1 failed, 3 passed" in done.stdout
    assert "the process of the test ended with -9" in done.stdout
    assert len(set(lines(tmp_path / "tests"))) == 3, "the rest of group a has a new process"


def test_a_run_stops_at_the_first_failure_when_asked(tmp_path: Path) -> None:
    slow = "import time\n" + "".join(f"def test_{n}(): time.sleep(0.1)\n" for n in range(50))

    done = run(tmp_path, {"a": "def test_fails(): assert False\n", "b": slow}, "-x")

    assert done.returncode == 1
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is None or int(passed[1]) < 50
    assert sorted(lines(tmp_path / "started")) == sorted(lines(tmp_path / "ended"))


def test_an_error_of_collection_runs_no_test(tmp_path: Path) -> None:
    done = run(tmp_path, {"a": "def test_one(): note('a')\n", "b": "import nothing_of_that_name\n"})

    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "nothing_of_that_name" in done.stdout
    assert not (tmp_path / "tests").exists()
