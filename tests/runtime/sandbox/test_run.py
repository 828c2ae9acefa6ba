"""One program in a sandbox: its result, its limits, and its access to the host."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.sandbox.sandbox_support import outside_address, serving
from tests.runtime.workers.invoker_support import (
    MODE_PARAMS,
    ancestors_of,
    give,
    parent_of,
    path_of,
    pids,
    python_of,
    until,
    user_of,
)

from moorage.runtime.sandbox.runs import main as sandbox
from moorage.runtime.sandbox.runs.main import NO_SANDBOX, TIMED_OUT, TOO_MUCH_OUTPUT, Job

BUILD_UID = 190_000
PRELUDE = """
import errno, json, os, socket, subprocess, sys, time
def attempt(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, "timed out")
    return "done"
def write(path):
    with open(path, "w") as file:
        file.write("x")
"""


@dataclass
class Builder:
    """Runs jobs as one user of this machine."""

    mode: str
    work: Path

    def job(self, argv: list[str], **changed: Any) -> Job:
        given: dict[str, Any] = {"work": str(self.work), "timeout_s": 60.0, "network": False, "binds": self._binds()}
        return Job(argv=argv, **{**given, "uid": BUILD_UID if self.mode == "root" else 0, **changed})

    def run(self, argv: list[str], **changed: Any) -> sandbox.Finished:
        return self.finish(self.job(argv, **changed))

    def python(self, code: str, **changed: Any) -> sandbox.Finished:
        return self.run([self.interpreter, "-c", PRELUDE + textwrap.dedent(code)], **changed)

    def told(self, code: str, **changed: Any) -> Any:
        """Run Python code that prints JSON; return it."""
        done = self.python(code, **changed)
        assert done.code == 0, done
        return json.loads(done.output)

    def finish(self, job: Job) -> sandbox.Finished:
        """Run a job to its end, and check that it left nothing on the host."""
        with self.started(job) as process:
            output, _ = process.communicate(timeout=120)
        assert groups_of(process.pid) == []
        assert list((self.work.parent / "tmp").iterdir()) == []
        assert "moorage-run" not in Path("/proc/self/mountinfo").read_text()
        return sandbox.Finished(process.returncode, output.decode())

    def started(self, job: Job) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [python_of(self.mode), "-m", "moorage.runtime.sandbox.runs.main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                "PATH": os.environ["PATH"],
                "SECRET": "of the platform",
                "TMPDIR": str(self.work.parent / "tmp"),
                **path_of(self.mode),
            },
            cwd="/",
            **user_of(self.mode),
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(asdict(job)).encode())
        process.stdin.close()
        process.stdin = None
        return process

    @property
    def interpreter(self) -> str:
        return str(Path(python_of(self.mode)).resolve())

    def _binds(self) -> dict[str, str]:
        prefix = str(Path(self.interpreter).parent.parent)
        return {} if prefix in ("/usr", "/") else {prefix: prefix}


@pytest.fixture(params=MODE_PARAMS)
def builder(request: pytest.FixtureRequest) -> Iterator[Builder]:
    with tempfile.TemporaryDirectory(prefix="work-") as folder:
        work = Path(folder, "work")
        work.mkdir()
        Path(folder, "tmp").mkdir()
        Path(folder).chmod(0o755)
        give(Path(folder), request.param)
        if request.param == "root":
            os.chown(work, BUILD_UID, BUILD_UID)
        yield Builder(request.param, work)


def groups_of(runner: int) -> list[str]:
    name = f"moorage-run-run-{runner}"
    return [f"{where}/{name}" for where, names, _ in os.walk("/sys/fs/cgroup") if name in names]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def running(text: str) -> list[int]:
    """Return the processes that have a text in their command line."""
    return [pid for pid in pids() if text in command_of(pid)]


# Results.


def test_the_exit_code_and_both_streams_come_back_in_order(builder: Builder) -> None:
    done = builder.run(["/bin/sh", "-c", "echo one; echo two >&2; echo three; exit 3"])

    assert (done.code, done.output, done.why) == (3, "one\ntwo\nthree\n", None)


def test_a_program_that_a_signal_ends_has_a_code_that_says_so(builder: Builder) -> None:
    done = builder.run(["/bin/sh", "-c", "(kill -SEGV $$) & wait; sh -c 'kill -SEGV $$'; echo $?"])

    assert done.output.strip().endswith("139")


def test_a_program_that_is_not_there_is_told(builder: Builder) -> None:
    done = builder.run(["/usr/bin/not-there"])

    assert done.code == NO_SANDBOX
    assert "No such file" in done.output
    assert done.why == "no sandbox"


def test_a_work_folder_that_is_not_there_is_told(builder: Builder) -> None:
    done = builder.run(["/bin/true"], work="/not/there")

    assert done.code == NO_SANDBOX


def test_only_the_given_environment_is_there(builder: Builder) -> None:
    env = builder.told("print(json.dumps(dict(os.environ)))", env={"A": "b", "LANG": "C.UTF-8"})

    assert env == {"A": "b", "LANG": "C.UTF-8"} | ({"LC_CTYPE": env["LC_CTYPE"]} if "LC_CTYPE" in env else {})


# Limits.


def test_a_program_finds_its_own_user(builder: Builder) -> None:
    code = "import pwd; user = pwd.getpwuid(os.getuid()); print(json.dumps([user.pw_name, user.pw_dir]))"

    name, home = builder.told(code)

    assert name == ("build" if builder.mode == "root" else "root")
    assert home == "/tmp"


def test_a_program_that_takes_too_long_is_ended_with_its_children(builder: Builder) -> None:
    code = "print('begun', flush=True)\nsubprocess.Popen(['sleep', '1234.5'], start_new_session=True)\ntime.sleep(600)"

    done = builder.python(code, timeout_s=1.5)

    assert (done.code, done.output, done.why) == (TIMED_OUT, "begun\n", "it took too long")
    until(lambda: not running("1234.5"), "the child's end")


@pytest.mark.boundary("code-to-host", "A build that clears its parent death signal still ends at its limits.")
def test_a_program_that_clears_its_parent_death_signal_is_ended_all_the_same(builder: Builder) -> None:
    # The number distinguishes this program from that of the same test in another process.
    code = f"""
    import ctypes
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG of {os.getpid()}
    print(os.getpid(), flush=True)
    time.sleep(600)
    """

    done = builder.python(code, timeout_s=1.0)

    assert (done.code, done.output) == (TIMED_OUT, "1\n")
    assert not running(f"PR_SET_PDEATHSIG of {os.getpid()}\n")


def test_a_background_process_does_not_outlive_the_program(builder: Builder) -> None:
    done = builder.run(["/bin/sh", "-c", "sleep 4321.5 & echo done"])

    assert (done.code, done.output) == (0, "done\n")
    until(lambda: not running("4321.5"), "its end")


def test_a_program_that_prints_too_much_is_ended(builder: Builder) -> None:
    done = builder.run(
        ["/bin/sh", "-c", "while :; do echo 0123456789012345678901234567890; done"], output_bytes=100_000
    )

    assert (done.code, done.why) == (TOO_MUCH_OUTPUT, "it printed too much")
    assert 30_000 < len(done.output) <= 100_000


def test_memory_is_bounded(builder: Builder) -> None:
    done = builder.python("held = b'x' * (400 * 2**20); print(len(held))", memory_mb=200)

    assert done.code != 0
    assert "419430400" not in done.output


def test_processes_are_bounded(builder: Builder) -> None:
    code = """
    started = 0
    try:
        while started < 500:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            started += 1
        print(json.dumps([started, "no end"]))
    except OSError as error:
        print(json.dumps([started, errno.errorcode[error.errno]]))
    """

    started, why = builder.told(code, pids=50)

    assert why == "EAGAIN"
    assert started < 150


def test_files_and_the_private_disk_are_bounded(builder: Builder) -> None:
    code = """
    def fill(path, mb):
        with open(path, "wb", buffering=0) as file:
            for _ in range(mb):
                file.write(bytes(2**20))
    answers = [attempt(fill, "/work/large", 12), attempt(fill, "/tmp/one", 8), attempt(fill, "/tmp/two", 9)]
    os.unlink("/work/large")
    print(json.dumps(answers))
    """

    assert builder.told(code, file_mb=10, tmp_mb=16) == ["EFBIG", "done", "ENOSPC"]


# Access to the host.


def test_the_work_folder_can_be_written_to_and_nothing_else(builder: Builder) -> None:
    folders = ["/work", "/tmp", "/", "/usr", "/etc", "/dev", "/code", "/run", "/opt", "/proc/sys/kernel"]

    answers = builder.told(f"print(json.dumps([attempt(write, folder + '/x') for folder in {folders}]))")

    assert answers[:2] == ["done", "done"]
    assert set(answers[2:]) <= {"EROFS", "EACCES", "ENOENT"}
    assert (builder.work / "x").read_text() == "x"


def test_what_is_bound_is_there_and_cannot_be_changed(builder: Builder) -> None:
    (builder.work.parent / "library").mkdir()
    (builder.work.parent / "library" / "file").write_text("text")
    give(builder.work.parent / "library", builder.mode)
    job = builder.job(
        [builder.interpreter, "-c", PRELUDE + "print(open('/opt/lib/file').read(), attempt(write, '/opt/lib/file'))"]
    )
    job.binds["/opt/lib"] = str(builder.work.parent / "library")

    assert builder.finish(job).output == "text EROFS\n"


def test_nothing_of_the_host_can_be_read(builder: Builder) -> None:
    (builder.work.parent / "beside").write_text("secret")
    paths = [
        "/etc/shadow",
        str(builder.work.parent / "beside"),
        f"/proc/{os.getpid()}/environ",
        "/root/.ssh",
        "/sys/kernel",
    ]

    code = f"""
    def read(path):
        open(path).read()
    processes = [name for name in os.listdir("/proc") if name.isdigit()]
    print(json.dumps([[attempt(read, path) for path in {paths}], processes]))
    """
    answers, processes = builder.told(code)

    assert set(answers) <= {"ENOENT", "EACCES", "EISDIR"}
    assert processes == ["1"]


def test_no_rights_are_left_and_signals_reach_nobody(builder: Builder) -> None:
    code = """
    status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    kills = [attempt(os.kill, -1, 9), attempt(os.kill, 0, 0)]
    told = [status[name] for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")]
    print(json.dumps([*told, kills, os.getpgrp()]))
    """

    effective, bounding, no_new, seccomp, kills, group = builder.told(code)

    assert (effective, bounding, no_new, seccomp) == ("0" * 16, "0" * 16, "1", "2")
    assert kills == ["ESRCH", "done"]
    assert group == 1


def test_a_signal_to_its_own_group_ends_only_the_program(builder: Builder) -> None:
    done = builder.python("print('before', flush=True); os.kill(0, 9); print('after')")

    assert (done.code, done.output) == (0, "before\nafter\n")


def test_it_runs_as_the_user_it_was_given_where_we_are_root(builder: Builder) -> None:
    seen = builder.told("print(json.dumps([os.getuid(), os.getgid(), os.getgroups()]))")

    if builder.mode == "root":
        assert seen == [BUILD_UID, BUILD_UID, []]
        (builder.work / "x").touch()
        assert builder.told("print(json.dumps(attempt(write, '/work/x')))") == "EACCES"
    else:
        assert seen[0] == seen[1] == 0  # of a user namespace that maps only this user


# The network.


def test_without_a_network_nothing_is_reached(builder: Builder) -> None:
    address = outside_address()
    with serving(address) as site:
        code = f"print(json.dumps(attempt(socket.create_connection, ({address!r}, {site.port}), 5)))"

        answers = [builder.told(code, network=False, allow=[address]), builder.told(code, network=True)]
        allowed = builder.told(code, network=True, allow=[address])

    assert answers[0] in {"ENETUNREACH", "EACCES", "ENOSYS"}
    assert (answers[1], allowed) == ("EACCES", "done")
    assert len(site.visits) == 1


def test_the_host_s_loopback_is_never_reached(builder: Builder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]

        answer = builder.told(
            f"print(json.dumps(attempt(socket.create_connection, ('127.0.0.1', {port}), 5)))",
            network=True,
            allow=["0.0.0.0/0"],
        )

        assert answer == "ECONNREFUSED"
        with pytest.raises(TimeoutError):
            server.accept()


# Termination.


@pytest.mark.anyio
async def test_a_caller_that_is_cancelled_ends_the_program_and_leaves_nothing(tmp_path: Path) -> None:
    job = Job(argv=["/bin/sleep", "9876.5"], work=str(tmp_path), network=False)
    caller = asyncio.create_task(sandbox.run(job))
    while not running("9876.5"):
        await asyncio.sleep(0.02)
    runner = next(pid for pid in ancestors_of(running("9876.5")[0]) if parent_of(pid) == os.getpid())
    mounts = Path(f"/proc/{runner}/mountinfo").read_text().split()
    tree = next(Path(word) for word in mounts if word.rpartition("/")[2].startswith("moorage-run-"))
    stood = tree.is_dir()

    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    until(lambda: not running("9876.5"), "the program's end")
    assert stood
    assert not tree.exists()
    assert groups_of(runner) == []


@pytest.mark.anyio
async def test_several_programs_run_side_by_side(tmp_path: Path) -> None:
    jobs = [Job(argv=["/bin/sh", "-c", f"sleep 0.2; echo {n}"], work=str(tmp_path), network=False) for n in range(4)]

    done = await asyncio.gather(*map(sandbox.run, jobs))

    assert [(each.code, each.output) for each in done] == [(0, f"{n}\n") for n in range(4)]


def test_nothing_outlives_a_runner_that_is_killed(builder: Builder) -> None:
    with builder.started(builder.job(["/bin/sh", "-c", "echo begun; sleep 5678.5"], network=True)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        children = [pid for pid in pids() if parent_of(pid) == process.pid]

        process.send_signal(signal.SIGKILL)
        process.wait(30)

    assert len(children) == 2
    until(lambda: not running("5678.5"), "the program's end")
    until(lambda: not any(command_of(pid) for pid in children), "the supervisor's end")
    for group in groups_of(process.pid):
        until(lambda path=Path(group): is_removed(path), "an empty group")  # type: ignore[misc]


def is_removed(group: Path) -> bool:
    """Remove the leftovers of a killed runner."""
    try:
        group.rmdir()
    except OSError:
        return not group.exists()
    return True
