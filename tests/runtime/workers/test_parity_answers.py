"""Params and results are the same in both languages; each case runs in real workers."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from tests.runtime.workers.worker_driver import (
    ACTIVATION,
    DONE,
    ECHO,
    FAILED,
    MAIN,
    call_frame,
    running,
    started,
    write_code,
)

from moorage.runtime.workers import runtimes

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n\x00\xff").decode()
EMPTY, HTML, JSON, DECLARED = 0, 1, 2, 3


# Results.

# Includes the samples of OpenWhisk's documentation: page, JSON, redirect, image, cookies, error.
ANSWERS: list[tuple[str, Any, int, int, list[list[str]], bytes]] = [
    ("a text is a page", {"statusCode": 200, "body": "<h1>hé</h1>"}, 200, HTML, [], "<h1>hé</h1>".encode()),
    (
        "an object is JSON",
        {"statusCode": 200, "body": {"a": [1, None, "é"]}},
        200,
        JSON,
        [],
        '{"a":[1,null,"é"]}'.encode(),
    ),
    ("a list is JSON", {"statusCode": 200, "body": [1, 2]}, 200, JSON, [], b"[1,2]"),
    ("a number is JSON", {"statusCode": 200, "body": 7}, 200, JSON, [], b"7"),
    ("a boolean is JSON", {"statusCode": 200, "body": False}, 200, JSON, [], b"false"),
    ("no body", {"statusCode": 204}, 204, EMPTY, [], b""),
    ("a null body", {"statusCode": 200, "body": None}, 200, EMPTY, [], b""),
    ("a status in text", {"statusCode": "404", "body": "no"}, 404, HTML, [], b"no"),
    ("the lowest status", {"statusCode": 100}, 100, EMPTY, [], b""),
    ("the highest status", {"statusCode": 599}, 599, EMPTY, [], b""),
    (
        "a redirect",
        {"headers": {"location": "http://openwhisk.org"}, "statusCode": 302},
        302,
        EMPTY,
        [["location", "http://openwhisk.org"]],
        b"",
    ),
    (
        "cookies",
        {"headers": {"Set-Cookie": ["a=b; Path=/", "c=d"], "X-N": 5, "X-B": True}, "statusCode": 200, "body": "ok"},
        200,
        HTML,
        [["Set-Cookie", "a=b; Path=/"], ["Set-Cookie", "c=d"], ["X-N", "5"], ["X-B", "true"]],
        b"ok",
    ),
    (
        "an image",
        {"headers": {"Content-Type": "image/png"}, "statusCode": 200, "body": PIXEL},
        200,
        DECLARED,
        [["Content-Type", "image/png"]],
        base64.b64decode(PIXEL),
    ),
    (
        "a drawing is text",
        {"headers": {"content-type": "image/svg+xml"}, "statusCode": 200, "body": "<svg/>"},
        200,
        DECLARED,
        [["content-type", "image/svg+xml"]],
        b"<svg/>",
    ),
    (
        "base64 over several lines",
        {"headers": {"content-type": "text/x"}, "isBase64Encoded": True, "statusCode": 200, "body": "AP8\nA\n"},
        200,
        DECLARED,
        [["content-type", "text/x"]],
        b"\x00\xff\x00",
    ),
    (
        "a JSON type of one's own",
        {"headers": {"content-type": "application/hal+json; charset=utf-8"}, "statusCode": 200, "body": {"a": 1}},
        200,
        DECLARED,
        [["content-type", "application/hal+json; charset=utf-8"]],
        b'{"a":1}',
    ),
    (
        "an object under a type of text",
        {"headers": {"content-type": "text/plain"}, "statusCode": 200, "body": {"a": "é"}},
        200,
        DECLARED,
        [["content-type", "text/plain"]],
        '{"a":"é"}'.encode(),
    ),
    (
        "a list under a binary type",
        {"headers": {"content-type": "image/png"}, "statusCode": 200, "body": [1]},
        200,
        DECLARED,
        [["content-type", "image/png"]],
        b"[1]",
    ),
    (
        "headers of the connection",
        {"headers": {"Content-Length": 99, "Transfer-Encoding": "chunked", "x-a": "b"}, "statusCode": 200, "body": "a"},
        200,
        HTML,
        [["x-a", "b"]],
        b"a",
    ),
    ("an error that is a response", {"error": {"statusCode": 400, "body": "bad"}}, 400, HTML, [], b"bad"),
    ("no headers", {"statusCode": 200, "headers": None, "body": ""}, 200, HTML, [], b""),
]

WITHOUT_STATUS = (
    "the function returned an object without statusCode, which a response needs: "
    'return {"statusCode": 200, "body": ...}'
)
REFUSED: list[tuple[Any, str]] = [
    ([1], "the function returned a list, not an object with statusCode and body"),
    ("text", "the function returned a string, not an object with statusCode and body"),
    (None, "the function returned nothing, not an object with statusCode and body"),
    (7, "the function returned a number, not an object with statusCode and body"),
    ({}, WITHOUT_STATUS),
    ({"body": "x"}, WITHOUT_STATUS),
    ({"error": "no luck"}, "the function returned an error: no luck"),
    ({"error": {"code": 5}}, 'the function returned an error: {"code":5}'),
    ({"statusCode": True}, "statusCode is true, not a whole number from 100 to 599"),
    ({"statusCode": 99}, "statusCode is 99, not a whole number from 100 to 599"),
    ({"statusCode": 600}, "statusCode is 600, not a whole number from 100 to 599"),
    ({"statusCode": 200.5}, "statusCode is 200.5, not a whole number from 100 to 599"),
    ({"statusCode": "2OO"}, "statusCode is '2OO', not a whole number from 100 to 599"),
    ({"statusCode": 200, "headers": ["a"]}, "headers is a list, not an object"),
    ({"statusCode": 200, "headers": {"a b": "c"}}, "'a b' cannot be the name of a header"),
    ({"statusCode": 200, "headers": {"a": "c\r\nd: e"}}, "the header a contains a line break or a NUL"),
    ({"statusCode": 200, "headers": {"a": ["b", "c\0"]}}, "the header a contains a line break or a NUL"),
    (
        {"statusCode": 200, "headers": {"a": {"b": 1}}},
        "the header a is an object, not a string, number, boolean or list of them",
    ),
    (
        {"statusCode": 200, "headers": {"a": [None]}},
        "the header a is nothing, not a string, number, boolean or list of them",
    ),
    (
        {"statusCode": 200, "headers": {"content-type": "image/png"}, "body": "not base64!"},
        "the body should be base64, but it is not",
    ),
    ({"statusCode": 200, "isBase64Encoded": True, "body": "AAA"}, "the body should be base64, but it is not"),
]


VALUE = {
    "python": "def main(params):\n    return params['value']\n",
    "nodejs": "exports.main = (params) => params.value;\n",
}


def test_a_response_object_becomes_an_answer(language: str, tmp_path: Path) -> None:
    with running(language, tmp_path, VALUE) as worker:
        for name, value, *expected in ANSWERS * 2:  # The second time, headers are cached.
            reply = worker.call({"value": value}, web=True)

            assert (name, reply.outcome) == (name, DONE)
            assert (name, [reply.status, reply.kind, reply.headers, reply.body]) == (name, expected)


def test_what_is_no_response_object_fails_with_the_reason_and_leaves_the_instance_alone(
    language: str, tmp_path: Path
) -> None:
    with running(language, tmp_path, VALUE) as worker:
        replies = [worker.call({"value": value}, web=True) for value, _ in REFUSED]

        assert [reply.text for reply in replies] == [message for _, message in REFUSED]
        assert {(reply.outcome, reply.status) for reply in replies} == {(FAILED, 0)}
        assert worker.call({"value": {"statusCode": 200, "body": "fine"}}, web=True).body == b"fine"


def test_a_call_of_the_api_answers_with_any_json(language: str, tmp_path: Path) -> None:
    values: list[Any] = [{"a": {"b": [1, 2.5, "é", None, True]}}, [1], "text", 7, 2.5, False, None, {}, ""]
    with running(language, tmp_path, VALUE) as worker:
        replies = [worker.call({"value": value}) for value in values]

        assert [reply.json for reply in replies] == values
        assert {(reply.outcome, reply.status, reply.kind, len(reply.headers)) for reply in replies} == {
            (DONE, 0, JSON, 0)
        }


def test_nothing_returned_is_null(language: str, tmp_path: Path) -> None:
    with running(
        language, tmp_path, {"python": "def main():\n    pass", "nodejs": "exports.main = () => {}"}
    ) as worker:
        assert worker.call().body == b"null"


def test_half_of_a_surrogate_pair_survives_as_an_escape(language: str, tmp_path: Path) -> None:
    with running(language, tmp_path, VALUE) as worker:
        assert worker.call({"value": {"a": "\ud83d"}}).body == b'{"a":"\\ud83d"}'


def test_a_result_may_be_as_large_as_the_limit_and_no_larger(language: str, tmp_path: Path) -> None:
    sources = {
        "python": (
            "def main(params):\n    large = 'é' * params['n']\n"
            "    return {'statusCode': 200, 'body': large} if params['web'] else 'x' * params['n']\n"
        ),
        "nodejs": "exports.main = (p) => p.web ? {statusCode: 200, body: 'é'.repeat(p.n)} : 'x'.repeat(p.n);\n",
    }
    with running(language, tmp_path, sources) as worker:
        largest = worker.call({"n": 3 << 20, "web": True}, web=True)
        over = worker.call({"n": (3 << 20) + 1, "web": True}, web=True)
        far_over = worker.call({"n": 20 << 20, "web": False})

        assert (largest.outcome, largest.body) == (DONE, ("é" * (3 << 20)).encode())
        assert (over.outcome, over.text) == (FAILED, "the function's result is 6.0 MB, at most 6 MB are allowed")
        assert (far_over.outcome, far_over.text) == (
            FAILED,
            "the function's result is 20.0 MB, at most 6 MB are allowed",
        )
        assert worker.call({"n": 1, "web": False}).json == "x"


# Params.


def test_parameters_are_the_request_then_the_environment_then_the_special_ones(language: str, tmp_path: Path) -> None:
    given = {
        "name": "body",
        "KEY": "body",
        "__OW_NAMESPACE": "forged",
        "__ow_method": "get",
        "__ow_headers": {"a": "b"},
    }
    with running(language, tmp_path, ECHO, env={"KEY": "secret", "__OW_API_HOST": "forged"}) as worker:
        reply = worker.call(given, activation="f" * 32, deadline_ms=1999999999999)

        assert reply.json == {
            "name": "body",
            "KEY": "secret",
            "__ow_method": "get",
            "__ow_headers": {"a": "b"},
            "__OW_ACTIVATION_ID": "f" * 32,
            "__OW_DEADLINE": "1999999999999",
            "__OW_ACTION_NAME": "/org-12/default/hello",
            "__OW_ACTION_VERSION": "3",
            "__OW_NAMESPACE": "org-12",
            "__OW_API_HOST": "http://api.test",
        }


def test_the_environment_holds_the_same_while_loading_and_in_children(language: str, tmp_path: Path) -> None:
    sources = {
        "python": (
            "import os, subprocess\nloaded = dict(os.environ)\n"
            "def main(params):\n"
            "    child = subprocess.run(['/usr/bin/env'], capture_output=True, text=True).stdout\n"
            "    return {'loaded': loaded, 'now': dict(os.environ), 'child': child.split('\\n'), 'cwd': os.getcwd()}\n"
        ),
        "nodejs": (
            "const loaded = {...process.env};\n"
            "exports.main = () => ({loaded, now: {...process.env}, cwd: process.cwd(), child:\n"
            "  require('child_process').execFileSync('/usr/bin/env', {encoding: 'utf8'}).split('\\n')});\n"
        ),
    }
    with running(language, tmp_path, sources, env={"KEY": "séc=ret"}) as worker:
        worker.call(activation="1" * 32)
        result = worker.call(activation="2" * 32, deadline_ms=1999999999999).json

        special = {f"__OW_{name}" for name in ("ACTION_NAME", "ACTION_VERSION", "API_HOST", "NAMESPACE")}
        call = {"__OW_ACTIVATION_ID": "2" * 32, "__OW_DEADLINE": "1999999999999"}
        assert set(result["now"]) - {"LC_CTYPE"} == {"PATH", "HOME", "LANG", "KEY", *special, *call}
        assert (result["now"]["HOME"], result["now"]["LANG"], result["now"]["KEY"]) == ("/tmp", "C.UTF-8", "séc=ret")
        assert {name: result["now"][name] for name in call} == call
        assert special | {"KEY"} <= set(result["loaded"])
        assert {f"{name}={value}" for name, value in call.items()} | {"KEY=séc=ret"} <= set(result["child"])
        assert result["cwd"] == str(tmp_path)


def test_parameters_of_six_megabytes_arrive_whole(language: str, tmp_path: Path) -> None:
    sources = {
        "python": "def main(params):\n    return [len(params['text']), params['text'][-3:]]\n",
        "nodejs": "exports.main = (params) => [params.text.length, params.text.slice(-3)];\n",
    }
    with running(language, tmp_path, sources) as worker:
        worker.send(call_frame({"text": "é" * 1_000_000 + "end"}, ident=1) + call_frame({"text": "last"}, ident=2))

        assert worker.next_reply().json == [1_000_003, "end"]
        assert worker.next_reply().json == [4, "ast"]


def test_standard_input_is_empty(language: str, tmp_path: Path) -> None:
    sources = {
        "python": "import sys\ndef main(params):\n    return sys.stdin.read()\n",
        "nodejs": "exports.main = () => require('fs').readFileSync(0, 'utf8');\n",
    }
    with running(language, tmp_path, sources) as worker:
        assert worker.call().json == ""


def test_children_do_not_inherit_the_socket(language: str, tmp_path: Path) -> None:
    sources = {
        "python": (
            "import subprocess\ndef main(params):\n    shown = subprocess.run(['/bin/ls', '-l', '/proc/self/fd'],"
            " capture_output=True, text=True, close_fds=False)\n    return shown.stdout\n"
        ),
        "nodejs": (
            "exports.main = () => require('child_process')"
            ".spawnSync('/bin/ls', ['-l', '/proc/self/fd'], {encoding: 'utf8'}).stdout;\n"
        ),
    }
    with running(language, tmp_path, sources) as worker:
        own = f"socket:[{Path(f'/proc/self/fd/{worker.channel.fileno()}').stat().st_ino}]"
        shown = worker.call().json

        assert "/proc" in shown or "pipe:" in shown
        assert own not in shown
        assert shown.count("socket:") <= {"python": 0, "nodejs": 3}[language]  # Node's own stdio of a child


# One call after the other.


def test_many_calls_in_one_write_are_answered_in_order(language: str, tmp_path: Path) -> None:
    with running(language, tmp_path, ECHO) as worker:
        worker.send(b"".join(call_frame({"n": number}, ident=number) for number in range(500)))
        replies = [worker.next_reply() for _ in range(500)]

        assert [(reply.id, reply.json["n"]) for reply in replies] == [(number, number) for number in range(500)]


def test_a_frame_may_come_byte_by_byte(language: str, tmp_path: Path) -> None:
    with running(language, tmp_path, ECHO) as worker:
        for byte in call_frame({"n": 1}) + call_frame({"n": 2}):
            worker.send(bytes([byte]))

        assert [worker.next_reply().json["n"] for _ in range(2)] == [1, 2]


def test_a_finished_answer_is_not_held_back_by_a_call_that_blocks(language: str, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    sources = {
        "python": (
            "import os, time\ndef main(params):\n    while params['wait'] and not os.path.exists(params['path']):\n"
            "        time.sleep(0.01)\n    return 'done'\n"
        ),
        "nodejs": "exports.main = (p) => { while (p.wait && !require('fs').existsSync(p.path)); return 'done'; };\n",
    }
    with running(language, tmp_path, sources) as worker:
        frames = [call_frame({"wait": wait, "path": str(go_on)}, ident=wait) for wait in (0, 1)]
        worker.send(b"".join(frames))
        first = worker.next_reply()
        go_on.touch()

        assert (first.id, first.json) == (0, "done")
        assert worker.next_reply().id == 1


def test_calls_of_an_async_handler_never_overlap(language: str, tmp_path: Path) -> None:
    sources = {
        "python": (
            "import asyncio\nrunning = 0\nasync def main(params):\n    global running\n    running += 1\n"
            "    seen = running\n    await asyncio.sleep(params['s'])\n    running -= 1\n"
            "    return [params['n'], seen]\n"
        ),
        "nodejs": (
            "let running = 0;\nexports.main = async (p) => { const seen = ++running;\n"
            "  if (p.s) await new Promise((done) => setTimeout(done, p.s * 1000));\n"
            "  running--; return [p.n, seen]; };\n"
        ),
    }
    with running(language, tmp_path, sources) as worker:
        worker.send(b"".join(call_frame({"n": n, "s": s}, ident=n) for n, s in enumerate([0.05, 0, 0.02, 0])))

        assert [worker.next_reply().json for _ in range(4)] == [[0, 1], [1, 1], [2, 1], [3, 1]]


def test_every_installed_runtime_runs_the_worker(tmp_path: Path) -> None:
    answers = {}
    for name, runtime in runtimes.installed().items():
        folder = write_code(tmp_path / name.replace(":", "-"), {MAIN[runtime.language]: ECHO[runtime.language]})
        with started(runtime.language, folder, runtime.executable) as worker:
            loaded = worker.load(MAIN[runtime.language])
            answers[name] = (loaded.ok, worker.call({"a": "é"}).json["__OW_ACTIVATION_ID"])

    assert set(answers.values()) == {(True, ACTIVATION)}
