"""Crashes of writer and recorder at any line lose and double no record."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.products.functions.spool_writer import (
    activation,
    invocations,
    log,
    make_function,
    make_recorder,
    minutes,
    record,
    spool_files,
    texts,
    write,
    writing,
)

from moorage.core.db.store import Database
from moorage.products.functions.logs import log_files, log_text
from moorage.products.functions.records import changes, recorder, spool, storing
from moorage.runtime.edge.spool import LATE

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
TRACED = {module.__file__ for module in (changes, log_files, log_text, recorder, spool, storing)}


class Crash(BaseException):
    """An exception that no product code catches."""


class CrashAt:
    """Raises at the n-th executed line of the recorder."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.is_over = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> CrashAt | None:
        if frame.f_code.co_filename not in TRACED or self.is_over:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise Crash(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return self


async def record_until_crash(db: Database, folder: Path, line: int) -> bool:
    """Run a new recorder until it crashes at a line; return whether it did."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    trace, before, crashing = CrashAt(line), sys.gettrace(), make_recorder(db, folder)
    tasks = asyncio.all_tasks()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        await crashing.catch_up()
    except Crash:
        return True
    finally:
        trace.is_over = True
        sys.settrace(before)
        threading.settrace(before)
        # A crash ends the tasks of a process and releases its locks.
        for left in (orphans := asyncio.all_tasks() - tasks):
            left.cancel()
        await asyncio.gather(*orphans, return_exceptions=True)
        crashing.close()
    return trace.left <= 0


@pytest.mark.deep
async def test_a_crash_at_any_line_of_the_recorder_loses_and_doubles_nothing(db: Database, tmp_path: Path) -> None:
    line, crashes = 0, 0
    while True:
        # The lines are the same on every database, so the second one runs only some of them.
        line += 1 if db.dialect == "sqlite" else 5
        folder = tmp_path / str(line)
        function_id = await make_function(db, name=f"f{line}")
        write(
            folder, record(1, function_id), record(2, function_id), record(1, function_id, kind=LATE, log=log("late"))
        )
        with writing(folder) as writer:
            writer.append(record(3, function_id, log=log("x" * 1000)))

            crashed = await record_until_crash(db, folder, line)
            await (healthy := make_recorder(db, folder)).catch_up()

        stored = [row["duration_us"] for row in await invocations(db, function_id=function_id)]
        counted = [row["invocations"] for row in await minutes(db, function_id=function_id)]
        printed = [each.stdout for each in await texts(db, healthy.logs, function_id=function_id)]
        assert (stored, counted) == ([1, 2, 3], [3]), f"line {line}"
        assert printed == ["late\n", "", "x" * 1000 + "\n"], f"line {line}"
        assert len(list(folder.glob("*.spool"))) == 1
        if not crashed:
            break
        crashes += 1

    assert crashes > 30
    assert len(await spool_files(db)) == crashes + 1


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    path = Path(__file__).with_name(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, str(path), *arguments], stdout=subprocess.PIPE, text=True, env=environment)


def kill(process: subprocess.Popen[str]) -> str:
    """Kill a process with SIGKILL; return its unread output."""
    process.send_signal(signal.SIGKILL)
    printed, _ = process.communicate(timeout=20)
    return printed


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.twin) for seed in (2, 3))])
async def test_what_a_killed_writer_wrote_is_recorded_whole(db: Database, tmp_path: Path, seed: int) -> None:
    folder, function_id = tmp_path / "spool", await make_function(db)
    process = await asyncio.to_thread(start, "spool_writer.py", str(folder), str(function_id))
    assert process.stdout is not None
    for _ in range(random.Random(seed).randrange(1, 2500)):
        last = await asyncio.to_thread(process.stdout.readline)
    printed = (last + await asyncio.to_thread(kill, process)).splitlines()

    while not await make_recorder(db, folder).catch_up():
        continue

    found = [row["duration_us"] for row in await invocations(db)]
    newest = found[-1]
    # The last line may be cut off, and the last record may not be printed yet.
    assert newest >= int(printed[-2] if len(printed) > 1 else printed[-1])
    assert found == list(range(newest + 1))[-len(found) :]
    assert sum(minute["invocations"] for minute in await minutes(db)) == newest + 1
    assert list(folder.glob("*.spool")) == []


@pytest.mark.deep
async def test_a_recorder_that_is_killed_again_and_again_stores_each_record_once(db: Database, tmp_path: Path) -> None:
    folder, chance = tmp_path / "spool", random.Random(4)
    functions = [await make_function(db, name=f"f{number}") for number in range(4)]
    place = str(getattr(db, "path", None) or db.url)  # type: ignore[attr-defined]
    count = 0
    with writing(folder, 2**20) as writer:
        for _ in range(4):
            process = await asyncio.to_thread(start, "record_child.py", place, str(folder))
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
            for _ in range(chance.randrange(5, 40)):
                for _ in range(100):
                    writer.append(record(count, functions[count % 4], log=log(f"call {count}") * (count % 2)))
                    count += 1
                await asyncio.sleep(chance.random() / 50)
            await asyncio.to_thread(kill, process)
    while not await (healthy := make_recorder(db, folder)).catch_up():
        continue

    printed = {each.stdout for each in await texts(db, healthy.logs)}
    found = Counter(row["activation_id"] for row in await invocations(db))
    assert found == Counter(activation(number) for number in range(count))
    assert printed == {"", *(f"call {number}\n" for number in range(1, count, 2))}
    assert sum(minute["invocations"] for minute in await minutes(db)) == count
    assert list(folder.glob("*.spool")) == []
