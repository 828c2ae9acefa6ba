"""Low-priority processes: results, concurrency, and recovery from killed processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.runtime.sandbox import heavy_tasks

from moorage.runtime.sandbox import heavy as heavy_module
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.heavy import HeavyWork, Refused

pytestmark = pytest.mark.anyio

TASKS = heavy_tasks.__name__


@pytest.fixture(scope="module", autouse=True)
def forked_heavy_processes() -> None:
    """Start real processes."""


@pytest.fixture(autouse=True)
def tasks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))


@pytest.fixture
async def heavy() -> AsyncIterator[HeavyWork]:
    made = HeavyWork(processes=2)
    yield made
    made.close()


async def test_results_refusals_and_errors_come_back(heavy: HeavyWork) -> None:
    told = await heavy.run(1, f"{TASKS}:describe")
    with pytest.raises(Refused, match="no, thank you"):
        await heavy.run(1, f"{TASKS}:refuse", "no, thank you")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        await heavy.run(1, f"{TASKS}:crash")

    assert told["pid"] != os.getpid()
    assert told["nice"] == min(19, os.nice(0) + 10)
    assert told["secrets"] == []


async def test_a_process_is_used_again_and_a_killed_one_is_replaced(heavy: HeavyWork) -> None:
    first = await heavy.run(1, f"{TASKS}:describe")
    again = await heavy.run(2, f"{TASKS}:describe")
    os.kill(first["pid"], signal.SIGKILL)
    after = await heavy.run(1, f"{TASKS}:describe")

    assert again["pid"] == first["pid"]
    assert after["pid"] != first["pid"]


@pytest.mark.boundary("tenant-to-tenant", "Large uploads of one organization do not hold up those of others.")
async def test_an_organization_has_one_at_a_time_and_others_do_not_wait_for_it(
    heavy: HeavyWork, tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    long = [asyncio.create_task(heavy.run(1, f"{TASKS}:wait_for", str(gate))) for _ in range(3)]
    await asyncio.sleep(0)

    await heavy.run(2, f"{TASKS}:describe")
    were_done = [task.done() for task in long]
    gate.touch()
    await asyncio.gather(*long)

    assert were_done == [False] * 3


@pytest.mark.boundary("tenant-to-tenant", "Scans of many uploads get only CPU time that no other organization uses.")
async def test_an_organization_that_uses_much_cpu_time_gets_the_idle_class(
    heavy: HeavyWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heavy_module, "MAX_CREDIT_S", 0.2)
    first = await heavy.run(1, f"{TASKS}:burn", "0.3")
    second = await heavy.run(1, f"{TASKS}:describe")
    other = await heavy.run(2, f"{TASKS}:describe")

    assert [each["is idle class"] for each in (first, second, other)] == [False, True, False]
    assert other["pid"] == first["pid"]


async def test_work_without_credits_never_gets_the_idle_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy_module, "MAX_CREDIT_S", 0.2)
    packing = HeavyWork(has_credits=False)

    await packing.run(1, f"{TASKS}:burn", "0.3")
    after = await packing.run(1, f"{TASKS}:describe")
    packing.close()

    assert after["is idle class"] is False


async def test_a_process_in_the_platform_cgroup_joins_its_idle_group(tmp_path: Path) -> None:
    bases = [tree.folder for tree in files.own_hierarchies() if "cpu" in tree.controllers and not tree.is_v2]
    name = f"moorage-t{os.getpid()}-"
    folder = Path(bases[0] if bases else tmp_path, f"{name}platform")
    folder.mkdir()
    code = f"import os; open({str(folder / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n" if bases else ""
    code += (
        "import sys; from moorage.runtime.sandbox import heavy_child; from tests.runtime.sandbox import heavy_tasks\n"
        "heavy_child.lower_priority(in_idle_class=True); print(heavy_tasks.describe()['is idle class'])\n"
        "print(open('/proc/self/cgroup').read())"
    )
    try:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
        printed = (await process.communicate())[0].decode()
    finally:
        for path in (folder.with_name(f"{name}behind") / "heavy", folder.with_name(f"{name}behind"), folder):
            if path.exists():
                path.rmdir()

    assert printed.startswith("True\n")
    assert (f"/{name}behind/heavy" in printed) is bool(bases)


async def test_work_that_is_cancelled_ends_its_process(heavy: HeavyWork, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    task = asyncio.create_task(heavy.run(1, f"{TASKS}:wait_for", str(tmp_path / "never"), str(note)))
    while not note.exists() or not note.read_text():
        await asyncio.sleep(0.02)
    pid = int(note.read_text())

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def test_a_process_exits_in_the_middle_of_its_work_when_the_control_process_was_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    argv = [sys.executable, "-P", "-m", "moorage.runtime.sandbox.heavy_child"]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(json.dumps([f"{TASKS}:wait_for", str(tmp_path / "never"), str(note)]).encode() + b"\n")
    child.stdin.flush()
    while not note.exists():
        time.sleep(0.02)

    child.stdin.close()

    assert child.wait(20) == 0


async def test_idle_processes_end() -> None:
    heavy = HeavyWork(idle_s=0.05)
    pid = (await heavy.run(1, f"{TASKS}:describe"))["pid"]

    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
