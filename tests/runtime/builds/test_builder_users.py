"""Builds by root and by an ordinary user, in a process of their own that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.runtime.builds.build_support import write_files
from tests.runtime.workers.invoker_support import MODE_PARAMS, give, path_of, pids, python_of, until, user_of

# Builds as the control process does, and prints the log as it comes.
DRIVER = """
import asyncio, json, sys
from pathlib import Path
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.ports import BuildFailed, BuildRequest
from moorage.settings import Settings

data, source, command = sys.argv[1:]

class Log:
    def write(self, stream, text):
        print(json.dumps([stream, text]), flush=True)

async def build():
    settings = Settings(_env_file=None, data=Path(data))
    request = BuildRequest("project-1", Path(source), "static", "auto", "./", "dist", command, "", "", False, {}, True)
    try:
        built = await Builder(settings, is_sandboxed=True).build(request, Log())
        print(json.dumps(["built", str(built.folder)]))
    except BuildFailed as failed:
        print(json.dumps(["failed", str(failed)]))

asyncio.run(build())
"""


@dataclass
class Builds:
    mode: str
    folder: Path

    def start(self, command: str) -> subprocess.Popen[str]:
        source = write_files(self.folder / "source", {"page": "home"})
        give(source, self.mode)
        return subprocess.Popen(
            [python_of(self.mode), "-c", DRIVER, str(self.folder / "data"), str(source), command],
            env={"PATH": os.environ["PATH"], **path_of(self.mode)},
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            **user_of(self.mode),
        )


@pytest.fixture(params=MODE_PARAMS)
def builds(request: pytest.FixtureRequest) -> Iterator[Builds]:
    with tempfile.TemporaryDirectory(prefix="builds-") as folder:
        Path(folder).chmod(0o755)
        give(Path(folder), request.param)
        yield Builds(request.param, Path(folder))


def running(text: str) -> list[int]:
    def command_of(pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            return ""

    return [pid for pid in pids() if text in command_of(pid)]


def test_a_build_by_whatever_user_writes_only_where_it_may(builds: Builds) -> None:
    command = "mkdir dist shut; cp page dist/index.html; chmod 0 shut; chmod 700 dist; touch /usr/x /opt/x /etc/x; :"

    with builds.start(command) as process:
        assert process.stdout is not None
        told = [json.loads(line) for line in process.stdout]

    folder = builds.folder / "source" / "dist"
    assert told[-1] == ["built", str(folder)]
    assert (folder / "index.html").read_text() == "home"
    assert sum("touch: " in text for stream, text in told if stream == "stderr") >= 1
    owner = builds.folder.stat().st_uid
    assert {path.lstat().st_uid for path in builds.folder.rglob("*")} == {owner}


def test_a_platform_that_is_killed_takes_its_build_along_and_the_next_one_clears_up(builds: Builds) -> None:
    with builds.start("echo left > /tmp/left; (setsid sleep 3573.5 &); echo begun; sleep 3573.5") as process:
        assert process.stdout is not None
        while "begun\\n" not in process.stdout.readline():
            assert process.poll() is None
        started = [pid for pid in running("3573.5") if pid != process.pid]
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    until(lambda: not running("3573.5"), "the build's end")

    with builds.start("ls -A /tmp; mkdir dist; touch dist/a") as process:
        assert process.stdout is not None
        told = [json.loads(line) for line in process.stdout]

    assert len(started) >= 2
    assert told[-1][0] == "built"
    assert "left" not in "".join(text for stream, text in told if stream == "stdout")
    assert [path.name for path in (builds.folder / "data" / "build-cache").iterdir()] == ["project-1"]
