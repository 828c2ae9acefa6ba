"""Repositories of functions, served as one app."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table import functions
from moorage.runtime.workers.runtimes import installed, resolve

FILES = {
    "nodejs": {
        "packages/port/tides/package.json": '{"main": "lib/tides.js"}',
        "packages/port/tides/lib/tides.js": "exports.main = (args) => ({ body: `high tide in ${args.name}` });",
        "packages/port/ships.js": "function main(args) { return { statusCode: 201, body: { sent: args.count } }; }",
        "packages/port/fails.js": "exports.main = () => { throw new Error('aground'); };",
    },
    "python": {
        "packages/port/tides/tides.py": "def main(args):\n    return {'body': f\"high tide in {args['name']}\"}",
        "packages/port/ships.py": "def main(args, context):\n"
        "    return {'statusCode': 201, 'body': {'sent': args['count']}}",
        "packages/port/fails.py": "def main():\n    raise ValueError('aground')",
    },
}


@contextmanager
def served(folder: Path, language: str) -> Iterator[int]:
    """Run the start command of a repository of functions; yields its port."""
    row = next(row for row in functions.ROWS if row.language == language)
    command = row.text(row.start, Folder(folder, ""))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    name = resolve(language)
    assert name is not None
    program = installed()[name].executable
    names = {"nodejs": "node", "python": "python"}
    (folder / "bin").mkdir()
    (folder / "bin" / names[language]).symlink_to(program)
    env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "PORT": str(port)}
    process = subprocess.Popen(["/bin/sh", "-c", f"exec {command}"], cwd=folder, env=env)
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    pytest.fail(f"the server ended with code {process.returncode}")


def ask(port: int, method: str, path: str, body: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, response.read().decode()


@pytest.mark.parametrize("language", ["nodejs", "python"])
def test_each_function_has_a_path_and_the_root_lists_them(tmp_path: Path, language: str) -> None:
    for name, text in FILES[language].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    with served(tmp_path, language) as port:
        status, listed = ask(port, "GET", "/")
        assert (status, sorted(json.loads(listed)["functions"])) == (
            200,
            ["/port/fails", "/port/ships", "/port/tides"],
        )
        assert ask(port, "GET", "/port/tides?name=Kiel") == (200, "high tide in Kiel")
        status, sent = ask(port, "POST", "/port/ships", '{"count": 3}')
        assert (status, json.loads(sent)) == (201, {"sent": 3})
        assert ask(port, "GET", "/port/fails")[0] == 502
        assert ask(port, "GET", "/port/none")[0] == 404
