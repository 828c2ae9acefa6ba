"""Child processes of an event loop: pipes, exit, and inherited descriptors."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from subprocess import PIPE

import pytest

from moorage.core.kit.processes import children

pytestmark = pytest.mark.anyio

ECHO = "import sys; print(sys.stdin.readline().upper(), end=''); print('so', file=sys.stderr); sys.exit(3)"


@pytest.fixture(params=["pidfd", "thread"])
def ways_to_wait(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pidfd, and without one."""
    if request.param == "thread":

        def refuse(pid: int) -> int:
            raise PermissionError

        monkeypatch.setattr(os, "pidfd_open", refuse)


@pytest.mark.usefixtures("ways_to_wait")
async def test_a_child_reads_writes_and_ends_with_its_code() -> None:
    child = await children.start([sys.executable, "-c", ECHO], env={}, stdin=PIPE, stderr=PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None

    child.stdin.write(b"hello\n")
    await child.stdin.drain()
    out, complaint = await child.stdout.read(), await child.stderr.read()
    code = await child.wait()

    assert (out, complaint, code, child.returncode) == (b"HELLO\n", b"so\n", 3, 3)


async def test_a_child_has_its_own_session_folder_and_environment(tmp_path: Path) -> None:
    code = "import os; print(os.getsid(0) == os.getpid(), os.getcwd(), sorted(os.environ))"
    child = await children.start([sys.executable, "-I", "-c", code], env={"A": "1"}, cwd=tmp_path)
    assert child.stdout is not None

    out = (await child.stdout.read()).decode()
    await child.wait()

    assert out.startswith(f"True {tmp_path} ['A'")
    assert "MOORAGE" not in out
    assert "HOME" not in out


@pytest.mark.usefixtures("ways_to_wait")
async def test_a_child_that_is_killed_says_so() -> None:
    child = await children.start([sys.executable, "-c", "import time; time.sleep(1000)"], env={})
    before = child.returncode

    child.kill()

    assert before is None
    assert await child.wait() == -9


async def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await children.start(["/nothing/here"], env={})


async def test_the_end_of_a_child_closes_its_pipes_and_no_descriptor_of_another_thread() -> None:
    is_over, errors = threading.Event(), []

    def open_and_close() -> None:
        try:
            while not is_over.is_set():
                os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            errors.append(error)

    await run_true()  # The event loop opens a few descriptors itself.
    before = len(os.listdir("/proc/self/fd"))
    threads = [threading.Thread(target=open_and_close) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        await run_true()
    is_over.set()
    for thread in threads:
        thread.join()

    assert errors == []
    assert len(os.listdir("/proc/self/fd")) == before


async def run_true() -> None:
    child = await children.start(["/bin/true"], env={}, stderr=PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    await child.stdout.read()
    await child.stderr.read()
    await child.wait()
    await asyncio.sleep(0.01)  # The loop closes the pipes in its next iteration.
