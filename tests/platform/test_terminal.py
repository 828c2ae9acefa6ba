"""Lines of `moorage up`: a slow start, a failed one, the addresses, and Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.platform import terminal
from moorage.platform.terminal import Startup

READY = "import os, time; os.write(int(os.environ['MOORAGE_READY_FD']), b'{}ready\\n'); time.sleep(60)"
URL = "http://localhost:8080"


def plan_of(data: Path, program: str, **fields: Any) -> dict[str, Any]:
    child = {"name": "control", "argv": [sys.executable, "-c", program], "env": {}, "says_ready": True}
    about = {"api_url": URL, "metrics_port": 0, "data": str(data), "warnings": []}
    return {**about, "children": [child], **fields}


@contextlib.contextmanager
def supervised(plan: dict[str, Any], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the real supervisor with a plan."""
    (folder / "plan.json").write_text(json.dumps(plan))
    argv = [sys.executable, "-m", "moorage.platform.supervisor", str(folder / "plan.json")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until_ready(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if line.startswith("ready:"):
            break
    return lines


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("logs", "run/shims/app-1", "run/databases/1"):
        (tmp_path / "data" / name).mkdir(parents=True)
    return tmp_path / "data"


def test_the_commands_to_paste_are_short_and_the_last_lines(data: Path, tmp_path: Path) -> None:
    program = READY.format(f"token_file {data}/demo-token\\n")
    own = f"{sys.prefix}/bin/moorage"
    program_name = "moorage" if shutil.which("moorage") == own else own

    with supervised(plan_of(data, program), tmp_path) as process:
        lines = read_until_ready(process)

    assert lines == [
        f"open:  {URL}/",
        f"docs:  {URL}/docs",
        f"cli:   {program_name} login --demo",
        "try:   export TOKEN=$(cat data/demo-token)",
        f'       curl -H "Authorization: Bearer $TOKEN" {URL}/v1/me',
        f"ready: {URL}",
    ]


def test_ctrl_c_says_what_stops_and_what_keeps_running(data: Path, tmp_path: Path) -> None:
    (data / "run" / "shims" / "app-1" / "shim.sock").touch()
    (data / "run" / "databases" / "1" / "shim.sock").touch()

    with supervised(plan_of(data, READY.format("")), tmp_path) as process:
        read_until_ready(process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)

    assert process.returncode == 0
    assert "stopping API, gateway, functions and builds; 1 app replica and 1 database server keep running" in errors


def test_warnings_about_sandboxes_come_before_the_addresses(data: Path, tmp_path: Path) -> None:
    plan = plan_of(data, READY.format(""), warnings=["functions: limits: no groups; run Moorage as root"])

    with supervised(plan, tmp_path) as process:
        read_until_ready(process)
        process.terminate()
        _, errors = process.communicate(timeout=30)

    assert "moorage: warning: functions: limits: no groups; run Moorage as root" in errors


def test_a_failed_start_shows_the_last_lines_of_the_log_and_the_next_step(data: Path, tmp_path: Path) -> None:
    program = (
        f"open({str(data / 'logs' / 'control.log')!r}, 'a').write('cannot reach the moon\\n'); raise SystemExit(3)"
    )
    (data / "logs" / "control.log").write_text("of an earlier start\n" * 50)

    with supervised(plan_of(data, program), tmp_path) as process:
        _, errors = process.communicate(timeout=30)

    assert process.returncode == 3
    assert "control could not start (exit code 3); its last log lines:" in errors
    assert "  | cannot reach the moon\n" in errors
    assert "next: moorage doctor" in errors
    assert errors.count("of an earlier start") == terminal.SHOWN_LINES - 1


def test_an_old_log_is_no_reason_of_a_failed_start(data: Path) -> None:
    log = data / "logs" / "control.log"
    log.write_text("of an earlier start\n")
    os.utime(log, (1, 1))

    assert terminal.last_lines(log, since=time.time()) == []


@contextlib.contextmanager
def child(program: str) -> Iterator[dict[str, int]]:
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield {"control": process.pid}
    finally:
        process.kill()
        process.wait()


def first_problem(startup: Startup, late: dict[str, int]) -> str:
    while (problem := startup.problem(late)) is None:
        time.sleep(0.01)
    return problem


def test_a_child_that_computes_is_waited_for_until_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    with child("while True: pass") as late:
        problem = first_problem(Startup(interval_s=0.1, stuck_s=1.0, limit_s=2.0), late)

    assert problem == "not ready after 2 s: control"
    assert "starting: control (1 s)" in capsys.readouterr().err


def test_a_child_that_does_nothing_is_stuck() -> None:
    with child("import time; time.sleep(60)") as late:
        problem = first_problem(Startup(interval_s=0.1, stuck_s=1.0, limit_s=60.0), late)

    assert problem == "control made no progress for 1 s"


@pytest.mark.parametrize(("path", "shown"), [("a/b", "a/b"), ("my data/b", "'my data/b'")])
def test_a_path_is_relative_and_quoted_for_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, shown: str
) -> None:
    monkeypatch.chdir(tmp_path)

    assert terminal.shortest(tmp_path / path) == shown
