"""Failures of calls, loading and workers are the same in both languages."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.runtime.workers.worker_driver import (
    DONE,
    ECHO,
    ENDED,
    FAILED,
    MAIN,
    Gone,
    call_frame,
    running,
    started,
    write_code,
)

# Failures that keep the instance.


def test_an_exception_fails_the_call_with_its_text_and_its_trace_goes_to_the_logs(
    language: str, tmp_path: Path
) -> None:
    sources = {
        "python": "def helper():\n    raise ValueError('no luck\\nat all')\n\ndef main(params):\n    helper()\n",
        "nodejs": "function helper() {\n  throw TypeError('no luck\\nat all');\n}\nexports.main = () => helper();\n",
    }
    with running(language, tmp_path, sources) as worker:
        replies = [worker.call(web=True), worker.call(web=False)]

        name = {"python": "ValueError", "nodejs": "TypeError"}[language]
        assert {(reply.outcome, reply.text) for reply in replies} == {(FAILED, f"{name}: no luck")}
        trace = replies[0].said("stderr")
        assert all(part in trace for part in ("at all", "helper", MAIN[language]))
        assert not any(part in trace for part in ("_worker", "node:net"))


def test_a_long_message_is_cut(language: str, tmp_path: Path) -> None:
    sources = {
        "python": "def main(params):\n    raise ValueError('x' * 5000)\n",
        "nodejs": "exports.main = () => { throw new Error('x'.repeat(5000)); };\n",
    }
    with running(language, tmp_path, sources) as worker:
        assert len(worker.call().text) == 2000


def test_endless_recursion_is_a_failure_like_others(language: str, tmp_path: Path) -> None:
    sources = {
        "python": "def main(params):\n    return main(params)\n",
        "nodejs": "const main = (params) => [main(params)];\n",
    }
    with running(language, tmp_path, sources) as worker:
        reply = worker.call()

        assert reply.outcome == FAILED
        assert reply.text.startswith({"python": "RecursionError: ", "nodejs": "RangeError: "}[language])
        assert worker.call().outcome == FAILED


NOT_JSON = [
    ("float('nan')", "NaN", "NaN"),
    ("float('-inf')", "-Infinity", "Infinity"),
    ("loop()", "loop()", "a cycle"),
]


@pytest.mark.parametrize(("python", "nodejs", "blamed"), NOT_JSON)
def test_what_json_does_not_have_is_named_with_its_place(
    language: str, tmp_path: Path, python: str, nodejs: str, blamed: str
) -> None:
    sources = {
        "python": (
            f"def loop():\n    a = []\n    a.append(a)\n    return a\n"
            f"def main(params):\n    return {{'x': [None, {{'y': {python}}}], 'statusCode': 200, 'body': {python}}}\n"
        ),
        "nodejs": (
            f"function loop() {{ const a = []; a.push(a); return a; }}\n"
            f"exports.main = () => ({{x: [null, {{y: {nodejs}}}], statusCode: 200, body: {nodejs}}});\n"
        ),
    }
    with running(language, tmp_path, sources) as worker:
        inner = "[0]" if blamed == "a cycle" else ""

        assert worker.call().text == f"the function returned a value that is not JSON: {blamed} at result.x[1].y{inner}"
        assert worker.call(web=True).text == (
            f"the function returned a value that is not JSON: {blamed} at result.body{inner}"
        )


def test_an_async_handler_may_fail(language: str, tmp_path: Path) -> None:
    sources = {
        "python": "import asyncio\nasync def main(_):\n    await asyncio.sleep(0.001)\n    raise KeyError('gone')\n",
        "nodejs": (
            "exports.main = async () => { await new Promise((done) => setTimeout(done, 1));"
            " throw new RangeError('gone'); };\n"
        ),
    }
    with running(language, tmp_path, sources) as worker:
        reply = worker.call()

        assert (reply.outcome, reply.text) == (
            FAILED,
            {"python": "KeyError: 'gone'", "nodejs": "RangeError: gone"}[language],
        )
        assert MAIN[language] in reply.said("stderr")
        assert "_worker" not in reply.said("stderr")
        assert worker.call().outcome == FAILED


# Ends.


ENDINGS = [
    (
        "exit",
        "import sys\ndef main(params):\n    print('bye')\n    sys.exit(3)\n",
        "process.exit(3)",
        "the function called exit (code 3)",
        3,
    ),
    (
        "plain exit",
        "def main(params):\n    print('bye')\n    exit()\n",
        "process.exit()",
        "the function called exit (code 0)",
        0,
    ),
    (
        "closed stream",
        "import sys\ndef main(params):\n    print('bye')\n    sys.stdout.close()\n",
        "process.stdout.end()",
        "the function closed its standard output",
        1,
    ),
    (
        "closed descriptor",
        "import os\ndef main(params):\n    print('bye')\n    os.close(1)\n",
        "require('fs').closeSync(1)",
        "the function closed its standard output",
        1,
    ),
    (
        "another file in its place",
        "import os\ndef main(params):\n    print('bye')\n    os.close(2)\n    os.open(__file__, os.O_RDONLY)\n",
        "const fs = require('fs'); fs.closeSync(2); fs.openSync(__filename)",
        "the function closed its standard error",
        1,
    ),
]


@pytest.mark.parametrize(
    ("python", "nodejs", "message", "code"), [case[1:] for case in ENDINGS], ids=[case[0] for case in ENDINGS]
)
def test_a_call_that_ends_the_instance_says_how_and_keeps_earlier_answers(
    language: str, tmp_path: Path, python: str, nodejs: str, message: str, code: int
) -> None:
    sources = {
        "python": python.replace("main(params):", "main(params):\n    if params['n'] < 2:\n        return 'fine'"),
        "nodejs": f"exports.main = (p) => {{ if (p.n < 2) return 'fine'; console.log('bye'); {nodejs}; }};\n",
    }
    with running(language, tmp_path, sources) as worker:
        worker.send(b"".join(call_frame({"n": number}, ident=number) for number in range(4)))
        replies = [worker.next_reply() for _ in range(3)]

        assert [(reply.id, reply.outcome) for reply in replies] == [(0, DONE), (1, DONE), (2, ENDED)]
        assert replies[2].text == message
        assert replies[2].printed == [("stdout", "bye\n")]
        assert worker.ended() == code


UNLOADABLE = [
    ("nothing", "other = 1\n", "exports.other = 1;\n", "{main} does not define main"),
    ("not callable", "main = 1\n", "exports.main = 1;\n", "{main} does not define main"),
    ("exit", "exit(4)\n", "process.exit(4);\n", "the function called exit (code 4)"),
    ("exception", "int('x')\n", "null.x;\n", "{error}"),
    ("syntax", "def main(:\n", "function main(:\n", "SyntaxError: "),
]


@pytest.mark.parametrize(
    ("python", "nodejs", "message"), [case[1:] for case in UNLOADABLE], ids=[case[0] for case in UNLOADABLE]
)
def test_code_that_cannot_be_loaded_says_why(
    language: str, tmp_path: Path, python: str, nodejs: str, message: str
) -> None:
    sources = {"python": f"print('loading')\n{python}", "nodejs": f"console.log('loading');\n{nodejs}"}
    error = {"python": "ValueError: ", "nodejs": "TypeError: "}[language]
    with started(language, write_code(tmp_path, {MAIN[language]: sources[language]})) as worker:
        loaded = worker.load(MAIN[language])

        assert not loaded.ok
        assert loaded.message.startswith(message.format(main=MAIN[language], error=error))
        assert "_worker" not in "".join(line.text for line in loaded.logs)
        assert worker.ended() == 1


def test_a_main_file_that_is_missing_says_so(language: str, tmp_path: Path) -> None:
    with started(language, tmp_path) as worker:
        loaded = worker.load(MAIN[language])

        assert (loaded.ok, loaded.message.startswith(f"{MAIN[language]} is not a ")) == (False, True)


def test_the_worker_ends_when_the_edge_has_gone_after_the_call_that_runs(language: str, tmp_path: Path) -> None:
    sources = {
        "python": "import asyncio\nasync def main(_):\n    await asyncio.sleep(0.05)\n    open('done', 'w').close()\n",
        "nodejs": (
            "exports.main = () => new Promise((done) => setTimeout(() => {"
            " require('fs').writeFileSync('done', ''); done(); }, 50));\n"
        ),
    }
    with running(language, tmp_path, sources) as worker:
        worker.send(call_frame({}))
        worker.channel.shutdown(socket.SHUT_WR)

        assert worker.process.wait(60) == 0
        assert (tmp_path / "done").exists()


def test_an_idle_worker_ends_when_the_edge_has_gone(language: str, tmp_path: Path) -> None:
    with running(language, tmp_path, ECHO) as worker:
        worker.channel.shutdown(socket.SHUT_WR)

        with pytest.raises(Gone):
            worker.next_frame()
        assert worker.process.wait(60) == 0
