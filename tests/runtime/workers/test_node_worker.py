"""Node worker only: exports, promises and uncaught errors."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.workers.worker_driver import Loaded, Worker, call_frame, load_frame, parse, started, write_code

from moorage.runtime.workers import runtimes

DONE, FAILED, ENDED = 0, 1, 2
BETWEEN_CALLS = 70


@contextlib.contextmanager
def running(folder: Path, source: str, main: str = "index.js", **files: str) -> Iterator[Worker]:
    with started("nodejs", write_code(folder, {main: source, **files})) as worker:
        loaded = worker.load(main)
        assert loaded.ok, loaded
        yield worker


EXPORTS = [
    ("index.js", "exports.main = (p) => p.a;"),
    ("index.js", "module.exports = (p) => p.a;"),
    ("index.js", "module.exports = { main(p) { return p.a; } };"),
    ("index.js", "module.exports.default = (p) => p.a;"),
    ("index.js", "function main(p) { return p.a; }"),
    ("index.js", "const main = (p) => p.a; // the end"),
    ("index.js", "'use strict';\nlet main = async (p) => p.a;\nexports.other = 1;"),
    ("index.js", "#!/usr/bin/env node\nmain = (p) => p.a;"),
    ("index.js", "\ufeffexports.main = (p) => p.a;"),
    ("index.cjs", "exports.main = (p) => p.a;"),
    ("index.mjs", "export function main(p) { return p.a; }"),
    ("index.mjs", "export default (p) => p.a;"),
    ("index.mjs", "export default { main: (p) => p.a };"),
    ("index.mjs", "const x = await Promise.resolve(1);\nexport const main = (p) => p.a * x;"),
    ("lib/app.js", "exports.main = (p) => p.a;"),
]


@pytest.mark.parametrize(("main", "source"), EXPORTS)
def test_every_way_to_write_a_handler_is_found(tmp_path: Path, main: str, source: str) -> None:
    with running(tmp_path, source, main) as worker:
        reply = worker.call({"a": 5})

        assert (reply.outcome, reply.json) == (DONE, 5)


def test_a_package_may_say_that_its_files_are_modules(tmp_path: Path) -> None:
    files = {"package.json": '{"type": "module"}', "lib.js": "export const b = 2;"}
    source = (
        "import { b } from './lib.js';\nimport { env } from 'process';\nexport const main = (p) => [p.a, b, env.HOME];"
    )
    with running(tmp_path, source, **files) as worker:
        assert worker.call({"a": 1}).json == [1, 2, "/tmp"]


def test_a_call_that_came_while_a_module_was_imported_is_answered_after_it(tmp_path: Path) -> None:
    source = "await new Promise((done) => setTimeout(done, 20));\nexport const main = (p) => p.a;"
    with started("nodejs", write_code(tmp_path, {"index.mjs": source})) as worker:
        worker.send(load_frame("index.mjs") + call_frame({"a": 1}, ident=1) + call_frame({"a": 2}, ident=2))
        loaded = parse(worker.next_frame())

        assert isinstance(loaded, Loaded)
        assert [loaded.ok, worker.next_reply().json, worker.next_reply().json] == [True, 1, 2]


@pytest.mark.parametrize("name", [name for name in runtimes.installed() if name.startswith("nodejs:")])
def test_a_plain_js_file_with_an_export_is_a_module(tmp_path: Path, name: str) -> None:
    code = write_code(tmp_path, {"index.js": "import os from 'os';\nexport function main(p) { return p.a; }\n"})
    with started("nodejs", code, runtimes.installed()[name].executable) as worker:
        loaded = worker.load("index.js")

        assert loaded.ok, loaded
        assert worker.call({"a": 7}).json == 7


def test_the_word_export_in_a_text_does_not_make_a_module(tmp_path: Path) -> None:
    with running(tmp_path, "const text = `\nexport default 1\n`;\nfunction main() { return text.trim(); }\n") as worker:
        assert worker.call().json == "export default 1"


def test_a_module_without_main_says_so(tmp_path: Path) -> None:
    with started("nodejs", write_code(tmp_path, {"index.mjs": "export const other = 1;"})) as worker:
        loaded = worker.load("index.mjs")

        assert (loaded.ok, loaded.message) == (False, "index.mjs does not export main")
        assert worker.ended() == 1


def test_vendored_packages_and_own_files_are_required_the_usual_way(tmp_path: Path) -> None:
    files = {
        "node_modules/pkg/package.json": '{"main": "a.js"}',
        "node_modules/pkg/a.js": "module.exports = 'vendored';",
        "lib/own.js": "exports.own = __filename;",
    }
    source = (
        "const own = require('./lib/own').own;\n"
        "exports.main = () => [require('pkg'), own, __filename, __dirname, require.main === module, process.argv[1]];"
    )
    with running(tmp_path, source, **files) as worker:
        index = str(tmp_path / "index.js")

        assert worker.call().json == ["vendored", str(tmp_path / "lib/own.js"), index, str(tmp_path), False, index]


def test_lines_in_a_stack_are_those_of_the_file(tmp_path: Path) -> None:
    source = (
        "\n\nfunction go() {\n  throw Object.assign(new Error('x'), { code: 'E_X' });\n}\nconst main = () => go();\n"
    )
    with running(tmp_path, source) as worker:
        said = worker.call().said("stderr")

        assert f"{tmp_path}/index.js:4:" in said
        assert "code: 'E_X'" in said
        assert said.count("    at ") == 2


@pytest.mark.parametrize(
    ("thrown", "message"),
    [
        ("'text'", "the function threw 'text'"),
        ("null", "the function threw null"),
        ("new (class Odd extends Error { name = 'Odd' })('why')", "Odd: why"),
        ("new Error()", "Error"),
        ("undefined", "the function threw undefined"),
    ],
)
def test_whatever_is_thrown_or_rejected_fails_the_call(tmp_path: Path, thrown: str, message: str) -> None:
    source = f"exports.main = (p) => {{ if (p.reject) return Promise.reject({thrown}); throw {thrown}; }};"
    with running(tmp_path, source) as worker:
        replies = [worker.call({"reject": reject}) for reject in (True, False)]

        assert {(reply.outcome, reply.text) for reply in replies} == {(FAILED, message)}


@pytest.mark.parametrize(
    ("value", "blamed"),
    [
        ("{ a: 10n }", "BigInt at result.a"),
        ("() => 1", "a function at result"),
        ("Symbol('a')", "a symbol at result"),
        ("Buffer.from('x')", "Buffer at result"),
        ("{ a: { data: Buffer.from('x') } }", "Buffer at result.a.data"),
        ("{ a: new Uint8Array(2) }", "Uint8Array at result.a"),
        ("{ a: [new Map()] }", "Map at result.a[0]"),
        ("{ a: new Set([1]) }", "Set at result.a"),
        ("{ a: Promise.resolve(1) }", "Promise at result.a"),
        ("deep()", "it is nested too deeply"),
    ],
)
def test_javascript_values_without_json_are_named(tmp_path: Path, value: str, blamed: str) -> None:
    source = (
        "function deep() { let value = []; for (let i = 0; i < 1e6; i++) value = [value]; return value; }\n"
        f"exports.main = () => ({value});"
    )
    with running(tmp_path, source) as worker:
        reply = worker.call()

        assert (reply.outcome, reply.text) == (FAILED, f"the function returned a value that is not JSON: {blamed}")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("{ a: undefined, b() {}, c: null, d: {}, e: [undefined] }", {"c": None, "d": {}, "e": [None]}),
        ("{ a: { toJSON: () => 'own' } }", {"a": "own"}),
        ("{ then: 5 }", {"then": 5}),
        ("{ then(kept) { setTimeout(kept, 1, 'thenable'); } }", "thenable"),
        ("{ then(kept) { kept('at once'); kept('twice'); } }", "at once"),
    ],
)
def test_javascript_values_with_json_are_written_the_usual_way(tmp_path: Path, value: str, expected: Any) -> None:
    with running(tmp_path, f"exports.main = () => ({value});") as worker:
        replies = [worker.call(), worker.call()]

        assert [(reply.outcome, reply.json) for reply in replies] == [(DONE, expected)] * 2


ABANDONED = [
    ("Promise.reject(new Error('lost')); return 1", "unhandled rejection: Error: lost"),
    ("(async () => { null.x; })(); return 1", "unhandled rejection: TypeError: "),
    ("process.nextTick(() => { throw new Error('tick'); }); return 1", "uncaught exception: Error: tick"),
    ("queueMicrotask(() => { throw new Error('micro'); }); return 1", "uncaught exception: Error: micro"),
    (
        "setTimeout(() => { throw new Error('timer'); }, 5); return new Promise(() => 0)",
        "uncaught exception: Error: timer",
    ),
    (
        "setTimeout(() => Promise.reject('why'), 5); return new Promise(() => 0)",
        "unhandled rejection: the function threw 'why'",
    ),
]


@pytest.mark.parametrize(("statements", "message"), ABANDONED)
def test_an_error_that_nobody_catches_fails_the_call_and_ends_the_instance(
    tmp_path: Path, statements: str, message: str
) -> None:
    with running(tmp_path, f"exports.main = () => {{ {statements}; }};") as worker:
        worker.send(call_frame({}, ident=1) + call_frame({}, ident=2))
        reply = worker.next_reply()

        assert (reply.id, reply.outcome) == (1, ENDED)
        assert reply.text.startswith(message)
        assert reply.said("stderr") != ""
        assert worker.ended() == BETWEEN_CALLS


@pytest.mark.parametrize("statement", ["Promise.reject(new Error('lost'))", "(() => { throw new Error('lost'); })()"])
def test_an_error_after_the_answer_is_written_for_that_call_and_ends_the_instance(
    tmp_path: Path, statement: str
) -> None:
    source = f"exports.main = () => {{ setTimeout(() => {{ {statement}; }}, 5); return 'fine'; }};"
    with running(tmp_path, source) as worker:
        reply = worker.call(activation="a" * 32)
        late = worker.next_late()

        assert (reply.outcome, reply.json) == (DONE, "fine")
        assert late.activation == "a" * 32
        assert "Error: lost" in "".join(line.text for line in late.logs)
        assert worker.ended() == BETWEEN_CALLS


def test_a_function_may_listen_for_such_errors_itself(tmp_path: Path) -> None:
    source = (
        "const seen = [];\nprocess.on('unhandledRejection', (e) => seen.push(e.message));\n"
        "process.on('uncaughtException', (e) => seen.push(e.message));\n"
        "exports.main = () => { Promise.reject(new Error('a')); process.nextTick(() => { throw new Error('b'); });\n"
        "  return new Promise((done) => setTimeout(() => done(seen), 5)); };\n"
    )
    with running(tmp_path, source) as worker:
        assert sorted(worker.call().json) == ["a", "b"]


def test_an_error_while_loading_that_nobody_catches_fails_the_load(tmp_path: Path) -> None:
    source = "Promise.reject(new Error('early'));\nexports.main = () => 1;"
    with started("nodejs", write_code(tmp_path, {"index.js": source})) as worker:
        loaded = worker.load("index.js")

        assert (loaded.ok, loaded.message) == (False, "unhandled rejection: Error: early")
        assert worker.ended() == 1


def test_a_promise_that_only_a_signal_keeps_is_waited_for(tmp_path: Path) -> None:
    source = (
        "const fs = require('fs');\nexports.main = () => new Promise((done) => {\n"
        "  process.once('SIGUSR2', () => done('woken')); fs.writeFileSync('waiting', ''); });\n"
    )
    with running(tmp_path, source) as worker:
        worker.send(call_frame({}))
        while not (tmp_path / "waiting").exists():
            time.sleep(0.005)
        worker.process.send_signal(signal.SIGUSR2)

        assert worker.next_reply().json == "woken"


def test_the_answer_of_an_async_call_comes_before_a_blocking_one_starts(tmp_path: Path) -> None:
    source = (
        "const fs = require('fs');\nexports.main = async (p) => {\n"
        "  if (p.n === 1) await new Promise((done) => setTimeout(done, 5));\n"
        "  if (p.n === 2) while (!fs.existsSync('go-on')); return p.n; };\n"
    )
    with running(tmp_path, source) as worker:
        worker.send(b"".join(call_frame({"n": number}, ident=number) for number in (1, 2)))
        first = worker.next_reply()
        (tmp_path / "go-on").touch()

        assert (first.json, worker.next_reply().json) == (1, 2)


def test_the_streams_behave_like_real_ones(tmp_path: Path) -> None:
    source = (
        "exports.main = () => new Promise((done) => {\n"
        "  console.error('%s: %d', 'a', 5); console.warn({ b: 1 }); console.table; console.debug('debug');\n"
        "  process.stdout.write('6869', 'hex'); process.stdout.write('\\n');\n"
        "  const u = Buffer.from('ü'); process.stdout.write(u.subarray(0, 1)); process.stdout.write(u.subarray(1));\n"
        "  require('stream').Readable.from(['piped\\n']).pipe(process.stdout);\n"
        "  process.stdout.write(' end\\n', () => setTimeout(done, 5, [process.stdout.fd, !!process.stdout.isTTY]));\n"
        "});\n"
    )
    with running(tmp_path, source) as worker:
        reply = worker.call()

        assert reply.json == [1, False]
        assert reply.said("stdout") == "debug\nhi\nü end\npiped\n"
        assert reply.said("stderr") == "a: 5\n{ b: 1 }\n"


def test_a_worker_thread_prints_into_the_call_that_runs(tmp_path: Path) -> None:
    source = (
        "const { Worker } = require('worker_threads');\n"
        "exports.main = () => new Promise((done) => {\n"
        "  const worker = new Worker('console.log(\"from a thread\"); process.exit(3)', { eval: true });\n"
        "  worker.on('exit', (code) => setTimeout(done, 5, code)); });\n"
    )
    with running(tmp_path, source) as worker:
        reply = worker.call()

        assert (reply.outcome, reply.json, reply.said("stdout")) == (DONE, 3, "from a thread\n")


def test_a_time_zone_of_the_function_is_in_force(tmp_path: Path) -> None:
    with started(
        "nodejs", write_code(tmp_path, {"index.js": "exports.main = () => new Date(0).getHours();"})
    ) as worker:
        worker.load("index.js", {"TZ": "Etc/GMT-5"})

        assert worker.call().json == 5


@pytest.mark.parametrize("name", [name for name in runtimes.installed() if name.startswith("nodejs")])
def test_code_that_appears_in_a_waiting_worker_is_what_it_is(tmp_path: Path, name: str) -> None:
    files = {
        "package.json": '{"imports": {"#own": "./own.js"}}',
        "index.js": "const own = require('#own');\nexports.main = () => own.name + __filename.slice(-9);",
        "own.js": "exports.name = 'own';",
    }
    with started("nodejs", tmp_path, runtimes.installed()[name].executable) as worker:
        time.sleep(0.2)  # By now it has read its folder, which is empty.
        write_code(tmp_path, files)
        assert worker.load("index.js").ok
        answer = worker.call().json

    assert answer == "own/index.js"


PIPE = "process.binding = () => { throw new Error('there is no such way any more'); };"


@pytest.mark.parametrize("preloaded", ["", PIPE], ids=["by the pipe", "by net"])
def test_a_worker_that_cannot_read_from_its_pipe_itself_has_net_do_it(tmp_path: Path, preloaded: str) -> None:
    (tmp_path / "preloaded.cjs").write_text(preloaded)
    source = "exports.main = (p) => [p.text.length, process.moduleLoadList.includes('NativeModule net')];"
    code = write_code(tmp_path, {"index.js": source})

    with started("nodejs", code, env={"NODE_OPTIONS": f"--require {tmp_path}/preloaded.cjs"}) as worker:
        assert worker.load("index.js").ok
        answers = [worker.call({"text": "x" * size}).json for size in (1, 300_000)]
        worker.channel.shutdown(socket.SHUT_WR)
        ended = worker.ended()

    assert answers == [[1, preloaded != ""], [300_000, preloaded != ""]]
    assert ended == 0


def test_a_function_that_never_prints_loads_no_streams_for_it(tmp_path: Path) -> None:
    source = """
        const has = () => process.moduleLoadList.includes('NativeModule stream');
        exports.main = (p) => (p.print ? (console.log(1), has()) : has());
    """
    # Without time for the warm-up, as in a sandbox that starts for a waiting call.
    early = load_frame("index.js") + call_frame({}) + call_frame({"print": True}, ident=2)

    with started("nodejs", write_code(tmp_path, {"index.js": source}), early=early) as worker:
        loaded = parse(worker.next_frame())
        silent, loud = worker.next_reply(), worker.next_reply()

    assert isinstance(loaded, Loaded)
    assert loaded.ok
    assert (silent.json, loud.json, loud.printed) == (False, True, [("stdout", "1\n")])
