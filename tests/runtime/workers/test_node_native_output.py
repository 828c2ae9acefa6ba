"""Native output of Node functions is logged with its call, also in batches of calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.runtime.workers.worker_driver import (
    DONE,
    Late,
    Line,
    Reply,
    Worker,
    call_frame,
    parse,
    started,
    write_code,
)

from moorage.runtime.workers import runtimes

COUNT = 4
SAY = "exports.say = (text) => require('fs').writeSync(1, text);"

# Each prints "line" and the number of its call, past `process.stdout` and `process.stderr`.
WAYS = {
    "fs": "exports.main = (p) => { require('fs').writeSync(1, `line ${p.n}\\n`); };",
    "node:fs": "const { writeSync } = require('node:fs');\nexports.main = (p) => { writeSync(2, `line ${p.n}\\n`); };",
    "a file of its own": "const { say } = require('./say');\nexports.main = (p) => say(`line ${p.n}\\n`);",
    # Since Node 20.16; before, a function has to require the module.
    "getBuiltinModule": (
        "const get = process.getBuiltinModule || require;\n"
        "exports.main = (p) => { get('fs').writeSync(1, `line ${p.n}\\n`); };"
    ),
    "import()": "exports.main = async (p) => { (await import('fs')).writeSync(1, `line ${p.n}\\n`); };",
    "_rawDebug": "exports.main = (p) => { process._rawDebug(`line ${p.n}`); };",
    "a child process": (
        "exports.main = (p) => {\n"
        "  require('child_process').execFileSync('/bin/echo', ['line', p.n], { stdio: 'inherit' }); };"
    ),
    "a warning": "exports.main = (p) => { process.emitWarning(`line ${p.n}`); };",
}
MODULE = "import { writeSync } from 'fs';\nexport const main = (p) => { writeSync(1, `line ${p.n}\\n`); };"


@pytest.fixture(params=[name for name in runtimes.installed() if name.startswith("nodejs:")])
def node(request: pytest.FixtureRequest) -> Path:
    return runtimes.installed()[request.param].executable


@contextmanager
def running(node: Path, folder: Path, source: str, main: str = "index.js") -> Iterator[Worker]:
    with started("nodejs", write_code(folder, {main: source, "say.js": SAY}), node) as worker:
        loaded = worker.load(main)
        assert loaded.ok, loaded
        yield worker


def call_together(worker: Worker) -> list[Reply]:
    """Send several calls in one write; return their replies, without frames in between."""
    worker.send(b"".join(call_frame({"n": str(number)}, ident=number) for number in range(COUNT)))
    replies = [worker.next_reply() for _ in range(COUNT)]
    assert [(reply.id, reply.outcome) for reply in replies] == [(number, DONE) for number in range(COUNT)]
    return replies


def numbers_in(logs: list[Line]) -> list[str]:
    return re.findall(r"line (\d)", "".join(line.text for line in logs))


@pytest.mark.parametrize(
    ("main", "source"),
    [
        *(pytest.param("index.js", source, id=way) for way, source in WAYS.items()),
        pytest.param("index.mjs", MODULE, id="an ES module"),
    ],
)
def test_each_of_several_calls_has_the_line_it_wrote(tmp_path: Path, node: Path, main: str, source: str) -> None:
    with running(node, tmp_path, source, main) as worker:
        replies = call_together(worker)

        assert [numbers_in(reply.logs) for reply in replies] == [[str(number)] for number in range(COUNT)]


def test_calls_that_write_nothing_have_empty_logs(tmp_path: Path, node: Path) -> None:
    with running(node, tmp_path, "const path = require('path');\nexports.main = (p) => path.join('a', p.n);") as worker:
        replies = call_together(worker)

        assert [(reply.json, reply.logs) for reply in replies] == [(f"a/{number}", []) for number in range(COUNT)]


def test_a_warning_of_a_lone_call_is_in_its_log_or_comes_late(tmp_path: Path, node: Path) -> None:
    source = "exports.main = (p) => { if (p.n) process.emitWarning(`line ${p.n}`); };"
    said: dict[str, list[Line]] = {"a" * 32: [], "b" * 32: []}

    with running(node, tmp_path, source) as worker:
        for activation, params in zip(said, ({"n": "7"}, {}), strict=True):
            worker.send(call_frame(params, activation=activation))
            while isinstance(told := parse(worker.next_frame()), Late):
                said[told.activation] += told.logs
            said[activation] += told.logs

    assert numbers_in(said["a" * 32]) == ["7"]
    assert said["b" * 32] == []
