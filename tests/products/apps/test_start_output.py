"""Output of starting replicas in the log of their deployment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.products.apps.test_app_logs import PROJECT, Apps

from moorage.products.apps.logs.start_output import LAST_LINES, MAX_LINES, StartOutput

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


async def test_the_last_lines_of_the_app_are_kept_without_those_of_the_platform(tmp_path: Path) -> None:
    apps, log = Apps(tmp_path), MemoryLog()
    output = await begin(apps, log)

    async with output.copied():
        apps.print("Error: no database", "r2", "stderr")
        apps.print("ended: exit code 1", "r2", "system")

    assert list(output.recent) == ["Error: no database"]
