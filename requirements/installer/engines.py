"""Database software and the console: in the foreground for tests, in the background while the platform starts."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from requirements.installer.environment import Environment
from requirements.installer.failures import SHOWN_LINES
from requirements.installer.packages import ROOT
from requirements.installer.progress import LINE_INTERVAL_S, Finished, Step, Steps


@dataclass(frozen=True)
class Part:
    """What the platform can start without, and is made in the background at the first start."""

    target: str  # of make; {venv} is the environment
    title: str
    log: str
    lock: Path  # in the environment; locked while the part is made


PARTS = {
    "console": Part(
        "src/moorage/console/static/index.html", "the console", "console.log", Path("share/moorage/.console")
    ),
    # The platform's catalog of database software reads this lock.
    "engines": Part("{venv}/.engines", "database software", "databases.log", Path("share/moorage/engines/.preparing")),
}
STOP_TIMEOUT_S = 5.0
SUPERVISOR = b"moorage.platform.supervisor"  # in the command line of `moorage up` once it starts its processes


def install(venv: Path) -> None:
    """Install all database software. A failure is no failure of the setup: it is repeated by the next one."""
    with Steps(1).step("fetching database software") as step:
        system: list[Finished] = []
        packages = threading.Thread(target=lambda: system.append(_install_system_packages(step)))
        packages.start()
        fetched = _install_software(venv, step)
        packages.join()
        if fetched.code == 0 and system[0].output.startswith("setup: installing"):
            fetched = _install_software(venv, step)  # Now with the software of the system's packages.
    for line in [*system[0].output.splitlines(), *_notes(fetched)]:
        print(line, flush=True)
    if fetched.code == 0:
        (venv / ".engines").touch()
    else:
        print("setup: missing software is fetched when a database needs it, and by the next make setup", flush=True)


def _install_system_packages(step: Step) -> Finished:
    return step.run([str(ROOT / "requirements" / "system")], env=os.environ, cwd=ROOT)


def _install_software(venv: Path, step: Step) -> Finished:
    return step.run([str(venv / "bin" / "moorage"), "engines", "install", "--shared"], env=os.environ, cwd=ROOT)


def _notes(done: Finished) -> list[str]:
    lines = done.output.splitlines()
    return [line for line in lines if line.startswith("moorage: ")] or (lines[-SHOWN_LINES:] if done.code else [])


def start_platform(venv: Path, arguments: list[str]) -> None:
    """Become `moorage up`; make missing parts in the background meanwhile."""
    if not (venv / "bin" / "python").exists():  # The system's Python was replaced.
        Environment(venv).ensure("runtime")
    missing = [name for name in PARTS if _is_missing(venv, name)] if _is_missing(venv, *PARTS) else []
    for name in missing:
        argv = [sys.executable, "-B", "-E", "-s", "-m", "requirements.installer", "background", str(venv)]
        argv += [str(os.getpid()), name]
        subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True).wait()
    if missing:
        titles = " and ".join(PARTS[name].title for name in missing)
        logs = ", ".join(_short(venv / PARTS[name].log) for name in missing)
        print(f"setup: {titles}: made in the background, see {logs}", flush=True)
    _show_progress(os.getpid())
    program = str(venv / "bin" / "moorage")
    os.execv(program, [program, "up", *arguments])


def _show_progress(pid: int) -> None:
    """Print lines from another process until this one has become the supervisor, which prints its own."""
    print("setup: starting Moorage", flush=True)
    if (child := os.fork()) != 0:
        os.waitpid(child, 0)
        return
    if os.fork() == 0:  # of init, so that the supervisor has no child of which it does not know
        started_at = time.monotonic()
        while not _has_started(pid, LINE_INTERVAL_S):
            print(f"setup: starting Moorage: {time.monotonic() - started_at:.0f} s", flush=True)
    os._exit(0)


def _has_started(pid: int, wait_s: float) -> bool:
    """Wait; tell whether a process is the supervisor, or has ended."""
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        try:
            if SUPERVISOR in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def _is_missing(venv: Path, *names: str) -> bool:
    asked = [*_make(venv, *names), "--question"]
    return subprocess.run(asked, env=_make_environment(), cwd=ROOT, capture_output=True, check=False).returncode != 0


def run_in_background(venv: Path, platform_pid: int, name: str) -> None:
    """Make a part in a process of its own, as long as the platform runs."""
    part = PARTS[name]
    platform = os.pidfd_open(platform_pid)
    if os.fork():
        return
    (venv / part.lock).parent.mkdir(parents=True, exist_ok=True)
    with (venv / part.lock).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        started_at = time.monotonic()
        with (venv / part.log).open("w") as log:
            argv, env = ["nice", *_make(venv, name)], _make_environment()
            process = subprocess.Popen(argv, env=env, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
            is_stopped = _wait(process, platform)
        if not is_stopped:
            _report(venv, name, time.monotonic() - started_at)


def _report(venv: Path, name: str, took_s: float) -> None:
    part = PARTS[name]
    if _is_missing(venv, name):
        print(f"setup: {part.title}: not complete, see {_short(venv / part.log)}", flush=True)
        return
    print(f"setup: {part.title}: ready, after {took_s:.0f} s", flush=True)
    for line in (venv / part.log).read_text().splitlines():
        if line.startswith(("setup: without ", "moorage: ")):
            print(line, flush=True)


def _wait(process: subprocess.Popen[bytes], platform: int) -> bool:
    """Wait for a process; end it with the platform. Return whether it was ended."""
    ended = os.pidfd_open(process.pid)
    readable, _, _ = select.select([ended, platform], [], [])
    if ended in readable:
        process.wait()
        return False
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    return True


def _make(venv: Path, *names: str) -> list[str]:
    # Relative to the checkout, because make cannot name a path with spaces.
    folder = venv.relative_to(ROOT) if venv.is_relative_to(ROOT) else venv
    return ["make", "--silent", f"VENV={folder}", *(PARTS[name].target.format(venv=folder) for name in names)]


def _make_environment() -> dict[str, str]:
    """Return the environment without the job server and options of the make that runs this."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
