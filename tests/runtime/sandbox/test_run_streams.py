"""A run with streamed output: separate streams, limits with their reasons, writable folders, termination."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.workers.invoker_support import (
    MODE_PARAMS,
    MODES,
    give,
    parent_of,
    path_of,
    pids,
    python_of,
    until,
    user_of,
)

from moorage.runtime.sandbox.cgroups.files import Hierarchy
from moorage.runtime.sandbox.runs import cgroups as run_groups
from moorage.runtime.sandbox.runs import main as sandbox
from moorage.runtime.sandbox.runs.main import Job

UID = 191_999
# Runs a job as the platform does, as the current user, and prints its output and result as they come.
DRIVER = """
import asyncio, json, sys
from moorage.runtime.sandbox.runs import main as run

def tell(*said):
    print(json.dumps(said), flush=True)

job = run.Job(**json.loads(sys.stdin.readline()))
done = asyncio.run(run.run(job, lambda stream, data: tell(stream, data.decode())))
tell("done", done.code, done.why)
"""


@dataclass
class Runner:
    """Starts jobs as one user of this machine."""

    mode: str
    folder: Path

    def job(self, script: str, **changed: Any) -> Job:
        given: dict[str, Any] = {"work": str(self.folder / "work"), "timeout_s": 60.0, "network": False}
        given |= {"env": {"PATH": "/usr/bin:/bin"}, "uid": UID if self.mode == "root" else 0}
        return Job(argv=["/bin/sh", "-c", script], **{**given, **changed})

    def start(self, job: Job) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [python_of(self.mode), "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **path_of(self.mode)},
            text=True,
            cwd="/",
            **user_of(self.mode),
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(asdict(job)) + "\n")
        process.stdin.flush()
        return process

    def told(self, script: str, **changed: Any) -> list[list[Any]]:
        with self.start(self.job(script, **changed)) as process:
            out, _ = process.communicate(timeout=90)
        return [json.loads(line) for line in out.splitlines()]

    def made(self, name: str, mode: int = 0o755) -> Path:
        """Create a writable folder beside the work folder."""
        path = self.folder / name
        path.mkdir(mode=mode)
        self.own(path)
        return path

    def own(self, path: Path) -> None:
        give(path, self.mode)
        if self.mode == "root":
            os.chown(path, UID, UID)


@pytest.fixture(params=MODE_PARAMS)
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    with tempfile.TemporaryDirectory(prefix="streams-") as folder:
        Path(folder).chmod(0o755)
        give(Path(folder), request.param)
        made = Runner(request.param, Path(folder))
        made.made("work")
        yield made


@pytest.fixture
def own_runner() -> Iterator[Runner]:
    """Run as the user of the tests, for behaviour that is the same for all users."""
    with tempfile.TemporaryDirectory(prefix="streams-") as folder:
        made = Runner(MODES[0], Path(folder))
        made.made("work")
        yield made


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def running(text: str) -> list[int]:
    return [pid for pid in pids() if text in command_of(pid)]


def left_behind(runner: int) -> list[str]:
    """Return the cgroups and folders of a runner."""
    groups = [where for where, names, _ in os.walk("/sys/fs/cgroup") if f"moorage-run-run-{runner}" in names]
    trees = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith(f"moorage-run-{runner}-")]
    return groups + trees


def test_output_is_told_while_the_program_runs_and_by_stream(runner: Runner) -> None:
    go_on = runner.folder / "work" / "go-on"

    with runner.start(
        runner.job("echo one; while [ ! -e go-on ]; do sleep 0.02; done; echo two >&2; exit 3")
    ) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        go_on.touch()
        rest = [json.loads(line) for line in process.stdout]

    assert first == ["stdout", "one\n"]
    assert rest == [["stderr", "two\n"], ["done", 3, None]]


def test_a_code_that_stands_for_a_reason_may_be_the_program_s_own(own_runner: Runner) -> None:
    codes = (sandbox.NO_SANDBOX, sandbox.TIMED_OUT, sandbox.OUT_OF_MEMORY)

    ends = [own_runner.told(f"exit {code}")[-1] for code in codes]

    assert ends == [["done", code, None] for code in codes]


def test_a_program_that_cannot_be_started_is_told_with_the_reason(own_runner: Runner) -> None:
    with own_runner.start(own_runner.job("true", cwd="not/there")) as process:
        assert process.stdout is not None
        told = [json.loads(line) for line in process.stdout]

    assert told[-1] == ["done", sandbox.NO_SANDBOX, "no sandbox"]
    assert "No such file" in told[0][1]


def test_running_out_of_memory_is_told_with_the_limit(runner: Runner) -> None:
    hog = "import time; held = [bytearray(b'x' * 2**20) for _ in range(140)]; print('kept', flush=True); time.sleep(60)"
    python = Path(python_of(runner.mode)).resolve()
    prefix = str(python.parents[1])

    told = runner.told(f'{python} -c "{hog}"', memory_mb=120, binds={} if prefix == "/usr" else {prefix: prefix})

    assert told[-1] == ["done", sandbox.OUT_OF_MEMORY, "it ran out of memory (120 MB)"]


def test_all_that_is_written_counts_against_the_disk(runner: Runner) -> None:
    cache = runner.made("cache")
    fill = "head -c 15000000 /dev/zero > /work/a; head -c 15000000 /dev/zero > /cache/b; sleep 60"

    told = runner.told(fill, disk_mb=20, writable={"/cache": str(cache)})

    assert told == [["done", sandbox.TOO_MUCH_DISK, "it wrote too much to the disk (20 MB)"]]


@pytest.mark.boundary("tenant-to-tenant", "Deleted files that a build or a command holds open count against its disk.")
def test_deleted_files_that_are_still_open_count_as_well(runner: Runner) -> None:
    fill = "exec 3> /work/a; rm /work/a; head -c 30000000 /dev/zero >&3; sleep 60"

    told = runner.told(fill, disk_mb=20)

    assert told == [["done", sandbox.TOO_MUCH_DISK, "it wrote too much to the disk (20 MB)"]]


def test_many_empty_files_count_as_well(own_runner: Runner) -> None:
    script = "i=0; while [ $i -lt 1200 ]; do i=$((i+1)); : > f$i; done; sleep 60"

    told = own_runner.told(script, disk_mb=4, timeout_s=50)

    assert told[-1][1] == sandbox.TOO_MUCH_DISK


def test_a_disk_with_too_little_room_ends_the_program(own_runner: Runner) -> None:
    told = own_runner.told("sleep 60", reserve_mb=1 << 40)

    assert told == [["done", sandbox.NO_ROOM, "the disk of this machine is nearly full"]]


def test_a_writable_folder_and_a_tmp_on_disk_are_there_and_stay(runner: Runner) -> None:
    cache, tmp = runner.made("cache"), runner.made("tmp", 0o700)
    script = "echo a > /cache/kept; echo b > /tmp/note; mkdir sub; pwd; touch /opt/x /cache/../x"

    told = runner.told(script, writable={"/cache": str(cache), "/tmp": str(tmp)})

    assert told[0] == ["stdout", "/work\n"]
    assert told[-1][1] == 1
    assert ((cache / "kept").read_text(), (tmp / "note").read_text()) == ("a\n", "b\n")
    assert sorted(path.name for path in runner.folder.iterdir()) == ["cache", "tmp", "work"]


def test_it_starts_in_the_folder_it_is_told_and_finds_programs_by_its_path(own_runner: Runner) -> None:
    folder = own_runner.folder / "work" / "sub"
    folder.mkdir()
    job = own_runner.job("", cwd="sub")
    with own_runner.start(Job(**{**asdict(job), "argv": ["pwd"]})) as process:
        assert process.stdout is not None
        told = [json.loads(line) for line in process.stdout]

    assert told == [["stdout", "/work/sub\n"], ["done", 0, None]]


def test_it_gives_way_to_others(own_runner: Runner) -> None:
    told = own_runner.told("cat /proc/self/cgroup; nice", weight=50)

    said = "".join(text for _, text in told[:-1])
    is_limited = any(line.split(":")[1] == "cpu" and "moorage-run-run-" in line for line in said.splitlines()[:-1])
    assert is_limited or said.splitlines()[-1] == "10"


def test_a_caller_that_is_killed_takes_everything_along(runner: Runner) -> None:
    caller = runner.start(runner.job("(sleep 8642.5 & ); echo begun; sleep 8642.5", network=True))
    with caller:
        assert caller.stdout is not None
        assert caller.stdout.readline()
        (running_it,) = [pid for pid in pids() if parent_of(pid) == caller.pid]

        caller.send_signal(signal.SIGKILL)
        caller.wait(30)

    until(lambda: not running("8642.5"), "the program's end")
    until(lambda: not command_of(running_it), "the runner's end")

    def is_empty() -> bool:
        # The next sweep removes a cgroup in which a process was still exiting.
        run_groups.sweep()
        return not [path for path in left_behind(running_it) if path.startswith("/")]

    assert [path for path in left_behind(running_it) if not path.startswith("/")] == []
    until(is_empty, "the groups' removal")


def test_a_run_removes_the_groups_that_killed_ones_left(own_runner: Runner) -> None:
    process = own_runner.start(own_runner.job("echo begun; sleep 60"))
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        (killed,) = [pid for pid in pids() if parent_of(pid) == process.pid]
        os.kill(killed, signal.SIGKILL)
        told = json.loads(process.stdout.readline())

    def is_swept() -> bool:
        own_runner.told("true")
        return not [path for path in left_behind(killed) if path.startswith("/")]

    assert told == ["done", sandbox.NO_SANDBOX, "its sandbox was ended from outside"]
    until(is_swept, "the groups' removal")
    for name in left_behind(killed):  # Its folder would be removed after a day.
        Path(tempfile.gettempdir(), name).rmdir()


def test_a_version_2_group_that_nobody_has_emptied_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    tree = Hierarchy(str(tmp_path), str(tmp_path), frozenset({"cpu", "memory", "pids"}), is_v2=True)

    found = run_groups.open_v2(tree)

    assert found is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cgroup.controllers",
        "cgroup.procs",
        "cgroup.subtree_control",
    ]
    assert (tmp_path / "cgroup.subtree_control").read_text() == ""


# Without a sandbox.


def test_without_a_sandbox_it_runs_as_we_are_and_leaves_nothing_running(runner: Runner) -> None:
    script = "setsid sleep 7531.5 & pwd; env; echo >&2 done; exit 4"

    told = runner.told(script, is_boxed=False, env={"PATH": "/usr/bin:/bin", "A": "b"})

    said = "".join(text for stream, text in told[:-1] if stream == "stdout")
    assert said.splitlines()[0] == str(runner.folder / "work")
    assert {line.partition("=")[0] for line in said.splitlines()[1:]} <= {"PATH", "A", "PWD", "OLDPWD", "SHLVL", "_"}
    assert told[-1] == ["done", 4, None]
    assert running("7531.5") == []


def test_without_a_sandbox_time_and_output_are_bounded(own_runner: Runner) -> None:
    late = own_runner.told("setsid sleep 7532.5 & sleep 7532.5", is_boxed=False, timeout_s=0.5)
    loud = own_runner.told("while :; do echo 0123456789; done", is_boxed=False, output_bytes=10_000)

    assert late == [["done", sandbox.TIMED_OUT, "it took too long"]]
    assert loud[-1] == ["done", sandbox.TOO_MUCH_OUTPUT, "it printed too much"]
    assert running("7532.5") == []


@pytest.mark.anyio
async def test_a_cancelled_caller_ends_a_program_without_a_sandbox_too(tmp_path: Path) -> None:
    job = Job(["/bin/sh", "-c", "setsid sleep 7533.5 & sleep 7533.5"], str(tmp_path), is_boxed=False)
    caller = asyncio.create_task(sandbox.run(job))
    while len(running("7533.5")) < 3:
        await asyncio.sleep(0.02)

    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert running("7533.5") == []
