"""Whatever a function does to itself ends in an error that a user understands, and the next call is healthy."""

from __future__ import annotations

import re
import textwrap
import time
from dataclasses import dataclass
from typing import Any

import pytest
from tests.e2e.functions_support import MB, Answer, Platform, at_once, new_name, wait_until

pytestmark = pytest.mark.group("functions")

HEALTHY_PYTHON = "HEALTHY = {'statusCode': 200, 'body': 'healthy'}\n"
HEALTHY_NODE = "const HEALTHY = { statusCode: 200, body: 'healthy' };\n"
HEALTHY = {
    "python": f"{HEALTHY_PYTHON}def main(params):\n    return HEALTHY\n",
    "nodejs": f"{HEALTHY_NODE}exports.main = () => HEALTHY;\n",
}
# What a visitor must never see of a failure: traces, and places on the machine or in the code's folder.
INTERNALS = re.compile(r'Traceback|File "|\bat .+:\d+|/code|/opt|/usr|/work|/tmp|node:|moorage|worker', re.IGNORECASE)


@dataclass(frozen=True)
class Failing:
    """How a handler fails in a language, and what the message says about it."""

    language: str
    code: str
    message: str
    timeout: int = 60_000  # long enough for a machine that is busy with other things
    memory: int = 128

    def whole(self) -> str:
        """Return the code of a function that fails, unless it is told not to."""
        if self.language == "python":
            return (
                f"{HEALTHY_PYTHON}async def fail():\n{textwrap.indent(self.code, '    ')}\n    return HEALTHY\n"
                "def main(params):\n    return HEALTHY if 'ok' in params else fail()\n"
            )
        return (
            f"{HEALTHY_NODE}async function fail() {{\n{self.code}\nreturn HEALTHY;\n}}\n"
            "exports.main = (params) => ('ok' in params ? HEALTHY : fail());\n"
        )


def python(code: str, message: str, **more: object) -> Failing:
    return Failing("python", code, message, **more)  # type: ignore[arg-type]


def node(code: str, message: str, **more: object) -> Failing:
    return Failing("nodejs", code, message, **more)  # type: ignore[arg-type]


CRASHED = r"the function's process (was ended by signal \d+|ended \(exit code \d+\)) before it answered"
NOT_JSON = "the function returned a value that is not JSON: "
TOO_MUCH_MEMORY = "the function used more than its 128 MB of memory"
TIMED_OUT = "the function ran past its 1000 ms timeout"
STDOUT_CLOSED = "the function closed its standard output"

FAILURES = {
    "python raises": python("raise ValueError('boom')", "ValueError: boom"),
    "node throws": node("throw new TypeError('boom');", "TypeError: boom"),
    "node throws a string": node("throw 'boom';", "the function threw 'boom'"),
    "node rejects": node("return Promise.reject(new Error('boom'));", "Error: boom"),
    "python exits": python("import sys; sys.exit(3)", r"the function called exit \(code 3\)"),
    "python exits with 0": python("exit()", r"the function called exit \(code 0\)"),
    "node exits": node("process.exit(3);", r"the function called exit \(code 3\)"),
    "node exits with 0": node("process.exit();", r"the function called exit \(code 0\)"),
    "python exits hard": python("import os; os._exit(4)", r"the function called exit \(code 4\)"),
    "node exits hard": node("process.reallyExit(4);", r"exit.*\(?code 4\)"),
    "python aborts": python("import os; os.abort()", CRASHED),
    "node aborts": node("process.abort();", CRASHED),
    "python crashes": python("import ctypes; ctypes.string_at(0)", CRASHED),
    "python uses too much memory": python(
        "kept = []\nwhile True:\n    kept.append(bytearray(b'x' * 2**22))", TOO_MUCH_MEMORY
    ),
    "node uses too much memory outside its heap": node(
        "const kept = [];\nfor (;;) kept.push(Buffer.alloc(2 ** 22, 1));", TOO_MUCH_MEMORY
    ),
    "node uses too much memory of its heap": node(
        "const kept = [];\nfor (let i = 0; ; i += 1) kept.push({ a: [i, String(i)] });", TOO_MUCH_MEMORY
    ),
    "python loops": python("while True:\n    pass", TIMED_OUT, timeout=1000),
    "node loops": node("for (;;);", TIMED_OUT, timeout=1000),
    "python never resolves": python("import asyncio\nawait asyncio.Event().wait()", TIMED_OUT, timeout=1000),
    "node never resolves": node("return new Promise(() => {});", TIMED_OUT, timeout=1000),
    "python closes its output": python("import sys; sys.stdout.close()", STDOUT_CLOSED),
    "python closes the descriptor of its output": python("import os; os.close(1)", STDOUT_CLOSED),
    "node closes the descriptor of its output": node("require('fs').closeSync(1);", STDOUT_CLOSED),
    "node drops a rejected promise": node(
        "Promise.reject(new Error('dropped'));\nreturn { statusCode: 200, body: 'fine' };",
        "unhandled rejection.*dropped",
    ),
    "node drops an exception": node(
        "setTimeout(() => { throw new Error('dropped'); }, 1);\nreturn new Promise(() => {});",
        "uncaught exception.*dropped",
    ),
    "python returns NaN": python("return {'statusCode': 200, 'body': {'a': float('nan')}}", NOT_JSON + "NaN at .*a"),
    "node returns NaN": node("return { statusCode: 200, body: { a: NaN } };", NOT_JSON + "NaN at .*a"),
    "python returns infinity": python("return {'statusCode': 200, 'body': [float('-inf')]}", NOT_JSON + "Infinity at "),
    "node returns infinity": node("return { statusCode: 200, body: [-Infinity] };", NOT_JSON + ".*Infinity at "),
    "python returns a cycle": python(
        "a = {}\na['self'] = a\nreturn {'statusCode': 200, 'body': a}", NOT_JSON + "a cycle at "
    ),
    "node returns a cycle": node(
        "const a = {};\na.self = a;\nreturn { statusCode: 200, body: a };", NOT_JSON + "a cycle at "
    ),
    "python returns bytes": python("return {'statusCode': 200, 'body': {'a': b'x'}}", NOT_JSON + "bytes at .*a"),
    "node returns a BigInt": node("return { statusCode: 200, body: { a: 10n } };", NOT_JSON + ".*BigInt at .*a"),
    "python returns 20 MB": python(
        "return {'statusCode': 200, 'body': 'x' * (20 * 2**20)}",
        r"the function's result is 20\.0 MB, at most 6 MB are allowed",
        memory=512,
    ),
    "node returns 20 MB": node(
        "return { statusCode: 200, body: 'x'.repeat(20 * 2 ** 20) };",
        r"the function's result is 20\.0 MB, at most 6 MB are allowed",
        memory=512,
    ),
}
# `make test` runs each kind of failure once; test_parity_failures.py has both languages, without a platform.
EVERYDAY = {
    "python raises",
    "node exits",
    "python exits hard",
    "node aborts",
    "python uses too much memory",
    "node never resolves",
    "python closes its output",
    "node drops a rejected promise",
    "python returns NaN",
    "node returns 20 MB",
    "python has no main",
    "node cannot be parsed",
    "python loads too long",
    "node throws at import",
}


def cases(failures: dict[str, Failing]) -> list[Any]:
    return [
        pytest.param(failing, id=name.replace(" ", "_"), marks=[] if name in EVERYDAY else [pytest.mark.twin])
        for name, failing in failures.items()
    ]


def assert_failed(answer: Answer, message: str) -> None:
    """Check what a visitor sees of a failure."""
    assert answer.status == 502
    assert answer.error["code"] == "internal"
    assert re.search(message, answer.error["message"])
    assert not INTERNALS.search(answer.error["message"])
    assert answer.header("access-control-allow-origin") == "*"


@pytest.mark.parametrize("failing", cases(FAILURES))
def test_a_failure_is_explained_recorded_and_over_with_the_next_call(platform: Platform, failing: Failing) -> None:
    name = platform.create(
        new_name("fails"), failing.language, failing.whole(), timeout=failing.timeout, memory=failing.memory
    )
    doors = (lambda: platform.invoke(name), lambda: platform.fetch(name))

    outcome, answer = at_once(2, lambda at: doors[at]())
    after = platform.fetch(name, "?ok=1")

    assert isinstance(outcome, dict)
    assert (outcome["status"], outcome["result"]) == ("error", None)
    assert re.search(failing.message, outcome["error"])
    assert isinstance(answer, Answer)
    assert_failed(answer, failing.message)
    assert (after.status, after.body) == (200, b"healthy")
    records = {record["activationId"]: record for record in platform.invocations(name)}
    assert len(records) == 3
    for activation, error in ((outcome["activationId"], outcome["error"]), (answer.activation, None)):
        assert records[activation]["status"] == "error"
        assert records[activation]["error"] == (error or answer.error["message"])
    assert records[after.activation]["status"] == "success"


# Code that cannot even be loaded. Nothing but another version helps, and that one works at once.
LOADED_TOO_LONG = f"{TIMED_OUT} while its code was loaded"
BROKEN = {
    "python has no main": python("def other(params):\n    return {}\n", "main.py does not define main"),
    "node has no main": node("exports.other = () => ({});\n", "index.js does not (define|export) main"),
    "python cannot be parsed": python("def main(params)\n    return {}\n", "SyntaxError"),
    "node cannot be parsed": node("exports.main = ( => {};\n", "SyntaxError"),
    "python raises at import": python("raise RuntimeError('not today')\n", "RuntimeError: not today"),
    "node throws at import": node("throw new Error('not today');\n", "Error: not today"),
    "python imports what is not there": python("import not_there\n", "ModuleNotFoundError"),
    "node requires what is not there": node("require('not-there');\n", "Cannot find module"),
    "python exits at import": python("import sys\nsys.exit(5)\n", r"called exit \(code 5\)"),
    "node exits at import": node("process.exit(5);\n", r"called exit \(code 5\)"),
    "python loads too long": python("import time\ntime.sleep(60)\n", LOADED_TOO_LONG, timeout=1000),
    "node loads too long": node("for (;;);\n", LOADED_TOO_LONG, timeout=1000),
    "python crashes at import": python("import ctypes\nctypes.string_at(0)\n", CRASHED),
    "node crashes at import": node("process.abort();\n", CRASHED),
}


@pytest.mark.parametrize("broken", cases(BROKEN))
def test_code_that_cannot_be_loaded_says_why_until_another_version_is_deployed(
    platform: Platform, broken: Failing
) -> None:
    name = platform.create(new_name("broken"), broken.language, broken.code, timeout=broken.timeout)
    doors = (lambda: platform.invoke(name), lambda: platform.fetch(name))

    outcome, answer = at_once(2, lambda at: doors[at]())
    platform.deploy(name, broken.language, HEALTHY[broken.language])
    after = platform.fetch(name)

    assert isinstance(outcome, dict)
    assert outcome["status"] == "error"
    assert re.search(broken.message, outcome["error"])
    assert isinstance(answer, Answer)
    assert_failed(answer, broken.message)
    assert (after.status, after.body) == (200, b"healthy")
    recorded = {record["activationId"]: record["status"] for record in platform.invocations(name)}
    assert recorded == {outcome["activationId"]: "error", answer.activation: "error", after.activation: "success"}


def test_a_traceback_is_for_the_owner_alone(platform: Platform, language: str) -> None:
    failing = {
        "python": python("raise ValueError('boom')", ""),
        "nodejs": node("throw new TypeError('boom');", ""),
    }[language]
    name = platform.create(new_name("trace"), language, failing.whole())

    answer = platform.fetch(name)

    shown = platform.record_of(name, answer.activation)["stderr"]
    assert "boom" in shown
    assert "in fail" in shown or "at fail" in shown
    assert "_worker" not in shown


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({"python": "None", "nodejs": "undefined"}, "the function returned nothing, not an object"),
        ({"python": "'text'", "nodejs": "'text'"}, "the function returned a string, not an object"),
        ({"python": "[1]", "nodejs": "[1]"}, "the function returned a list, not an object"),
        ({"python": "{'body': 'x'}", "nodejs": "({ body: 'x' })"}, "an object without statusCode"),
        ({"python": "{'statusCode': 99}", "nodejs": "({ statusCode: 99 })"}, "statusCode is 99, not a whole number"),
        ({"python": "{'statusCode': 'ok'}", "nodejs": "({ statusCode: 'ok' })"}, "statusCode is 'ok', not a whole"),
        ({"python": "{'error': 'no luck'}", "nodejs": "({ error: 'no luck' })"}, "returned an error: no luck"),
        (
            {
                "python": "{'statusCode': 200, 'headers': {'X-A': 'b\\r\\nX-C: d'}}",
                "nodejs": "({ statusCode: 200, headers: { 'X-A': 'b\\r\\nX-C: d' } })",
            },
            "the header X-A contains a line break",
        ),
        (
            {
                "python": "{'statusCode': 200, 'headers': {'A B': 'c'}}",
                "nodejs": "({ statusCode: 200, headers: { 'A B': 'c' } })",
            },
            "'A B' cannot be the name of a header",
        ),
        (
            {
                "python": "{'statusCode': 200, 'isBase64Encoded': True, 'body': '%'}",
                "nodejs": "({ statusCode: 200, isBase64Encoded: true, body: '%' })",
            },
            "the body should be base64, but it is not",
        ),
    ],
)
def test_what_is_no_response_fails_at_the_public_address_and_is_a_result_to_invoke(
    platform: Platform, language: str, results: dict[str, str], message: str
) -> None:
    code = {"python": f"def main(params):\n    return {results['python']}\n"} | {
        "nodejs": f"exports.main = () => {results['nodejs']};\n"
    }
    name = platform.create(new_name("shapeless"), language, code[language])

    answer, outcome = platform.fetch(name), platform.invoke(name)

    assert_failed(answer, re.escape(message))
    assert (outcome["status"], outcome["error"]) == ("success", None)
    record = platform.record_of(name, answer.activation)
    assert (record["status"], record["error"]) == ("error", answer.error["message"])


def test_a_promise_rejected_after_the_answer_costs_the_instance_and_no_call(platform: Platform) -> None:
    code = (
        "let calls = 0;\n"
        "exports.main = () => {\n"
        "  setTimeout(() => Promise.reject(new Error('too late')), 20);\n"
        "  calls += 1;\n"
        "  return { statusCode: 200, body: String(calls) };\n"
        "};\n"
    )
    name = platform.create(new_name("late"), "nodejs", code)

    first = platform.fetch(name)
    wait_until(lambda: "too late" in platform.record_of(name, first.activation)["stderr"])
    time.sleep(0.1)
    second = platform.fetch(name)

    assert (first.status, first.body, second.status, second.body) == (200, b"1", 200, b"1")


def test_what_was_printed_before_a_crash_or_a_timeout_is_kept(platform: Platform) -> None:
    prints = {"python": "import os, sys, time\nprint('one')\nprint('two', file=sys.stderr)\n"}
    prints["nodejs"] = "console.log('one'); console.error('two'); "
    blocks = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);"
    failing = [
        python(prints["python"] + "time.sleep(60)", TIMED_OUT),
        python(prints["python"] + "os.abort()", CRASHED),
        node(prints["nodejs"] + blocks, TIMED_OUT),
        node(prints["nodejs"] + "process.abort();", CRASHED),
    ]
    names = [platform.create(new_name("printed"), each.language, each.whole(), timeout=8000) for each in failing]

    answers = at_once(len(names), lambda at: platform.fetch(names[at]))

    records = [platform.record_of(name, answer.activation) for name, answer in zip(names, answers, strict=True)]
    assert [(record["stdout"], record["stderr"][:4]) for record in records] == [("one\n", "two\n")] * 4


def test_logs_are_cut_at_10_mb_and_the_call_succeeds(platform: Platform, language: str) -> None:
    code = {
        "python": python("for _ in range(11):\n    print('x' * (2**20 - 1))", ""),
        "nodejs": node("for (let i = 0; i < 11; i += 1) console.log('x'.repeat(2 ** 20 - 1));", ""),
    }[language]
    name = platform.create(new_name("cut"), language, code.whole(), memory=256)

    outcome = platform.invoke(name)

    record = platform.record_of(name, outcome["activationId"])
    assert (outcome["status"], outcome["error"], record["status"]) == ("success", None, "success")
    assert 9 * MB < len(record["stdout"]) <= 10 * MB
    assert "the logs were cut: more than 10 MB" in record["stderr"]


PRINTS_11_MB = ["printf", f"%0{11 * MB}d", "1"]
FLOODS = {
    "python": python("import os\nfor _ in range(11):\n    os.write(1, b'x' * 2**20)", ""),
    "node": node(
        "const fs = require('fs');\nfor (let i = 0; i < 11; i += 1) fs.writeSync(1, Buffer.alloc(2 ** 20, 120));", ""
    ),
    "a child of python": python(f"import subprocess\nsubprocess.run({PRINTS_11_MB}, check=True)", ""),
    "a child of node": node(
        f"const [command, ...words] = {PRINTS_11_MB};\n"
        "require('child_process').execFileSync(command, words, { stdio: 'inherit' });",
        "",
    ),
}


@pytest.mark.parametrize("flood", cases(FLOODS))
def test_more_than_10_mb_on_the_descriptor_of_stdout_fail_no_call(platform: Platform, flood: Failing) -> None:
    name = platform.create(new_name("flood"), flood.language, flood.whole(), memory=flood.memory)

    answer = platform.fetch(name)

    assert (answer.status, answer.body) == (200, b"healthy")
    assert platform.record_of(name, answer.activation)["status"] == "success"
