"""Output of starting replicas in the log of their deployment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.products.apps.test_app_logs import PROJECT, Apps

from moorage.products.apps.logs.start_output import FIRST_LINES, LAST_LINES, MAX_LINES, StartOutput

pytestmark = pytest.mark.anyio


class MemoryLog:
    """Collects the lines that a deployment's log would store."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, stream: str, text: str) -> None:
        self.lines.append(f"{stream} {text.rstrip()}")

    def say(self, text: str) -> None:
        self.write("system", text)


async def begin(apps: Apps, log: MemoryLog) -> StartOutput:
    output = await StartOutput.begin(apps.logs, PROJECT, log)  # type: ignore[arg-type]
    output.keys = {"r2"}
    return output


async def test_lines_appear_while_the_app_starts_and_only_those_of_the_new_replicas(tmp_path: Path) -> None:
    apps, log = Apps(tmp_path), MemoryLog()
    apps.print("old", "r1")
    output = await begin(apps, log)

    async with output.copied():
        apps.print("live", "r1")
        apps.print("compiling", "r2", "stderr")
        async with asyncio.timeout(90):
            while not log.lines:
                await asyncio.sleep(0.01)
        during = list(log.lines)
        apps.print("listening", "r2")

    assert during == ["stderr compiling"]
    assert log.lines == ["stderr compiling", "stdout listening"]


async def test_a_long_start_is_cut_and_its_end_is_shown_if_it_failed(tmp_path: Path) -> None:
    apps, log = Apps(tmp_path), MemoryLog()
    output = await begin(apps, log)

    async def fail() -> None:
        async with output.copied():
            for number in range(MAX_LINES + LAST_LINES + 5):
                apps.print(str(number), "r2")
            raise ValueError("unhealthy")

    with pytest.raises(ValueError, match="unhealthy"):
        await fail()

    assert log.lines[MAX_LINES - 1] == f"stdout {MAX_LINES - 1}"
    assert log.lines[MAX_LINES] == "system 5 lines of the app's output are not shown here"
    assert log.lines[MAX_LINES + 1 :] == [f"stdout {MAX_LINES + 5 + number}" for number in range(LAST_LINES)]


async def test_a_crash_after_a_long_start_is_shown_from_its_first_line(tmp_path: Path) -> None:
    apps, log = Apps(tmp_path), MemoryLog()
    output = await begin(apps, log)
    trace = ["Traceback (most recent call last):", *(f"  File {number}" for number in range(90)), "ValueError: no"]

    async def fail() -> None:
        async with output.copied():
            for _ in range(5):
                for line in trace:
                    apps.print(line, "r2", "stderr")
                apps.print("ended: exit code 1", "r2", "system")
            raise ValueError("unhealthy")

    with pytest.raises(ValueError, match="unhealthy"):
        await fail()

    shown = 5 * 93 - MAX_LINES - 93
    assert log.lines[MAX_LINES] == f"system {shown} lines of the app's output are not shown here"
    assert log.lines[MAX_LINES + 1 :] == [*(f"stderr {line}" for line in trace), "system ended: exit code 1"]


async def test_a_trace_that_is_longer_than_the_log_is_cut_in_its_middle(tmp_path: Path) -> None:
    apps, log = Apps(tmp_path), MemoryLog()
    output = await begin(apps, log)

    async def fail() -> None:
        async with output.copied():
            for _ in range(2):
                for number in range(500):
                    apps.print(str(number), "r2", "stderr")
                apps.print("ended: exit code 1", "r2", "system")
            apps.print("starting", "r2")
            raise ValueError("unhealthy")

    with pytest.raises(ValueError, match="unhealthy"):
        await fail()

    rest = log.lines[MAX_LINES:]
    assert rest[0] == "system 301 lines of the app's output are not shown here"
    assert (rest[1], rest[FIRST_LINES]) == ("stderr 0", f"stderr {FIRST_LINES - 1}")
    assert (
        rest[FIRST_LINES + 1] == f"system {501 - FIRST_LINES - LAST_LINES} lines of the app's output are not shown here"
    )
    assert rest[-2:] == ["system ended: exit code 1", "stdout starting"]


async def test_the_last_lines_of_the_app_are_kept_without_those_of_the_platform(tmp_path: Path) -> None:
    apps, log = Apps(tmp_path), MemoryLog()
    output = await begin(apps, log)

    async with output.copied():
        apps.print("Error: no database", "r2", "stderr")
        apps.print("ended: exit code 1", "r2", "system")

    assert list(output.recent) == ["Error: no database"]
