"""What functions print: in order, with the call that printed it, and live."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any

import pytest
from tests.e2e.functions_support import Answer, Platform, at_once, new_name, wait_until

pytestmark = pytest.mark.group("functions")

SAYS = {
    "python": (
        "import sys, time\n"
        "def main(params):\n"
        "    who = params['who']\n"
        "    for number in range(20):\n"
        "        print(f'{who} {number}', file=sys.stderr if number % 3 == 0 else sys.stdout)\n"
        "        time.sleep(0.001)\n"
        "    return {'statusCode': 200, 'body': who}\n"
    ),
    "nodejs": (
        "exports.main = async ({ who }) => {\n"
        "  for (let number = 0; number < 20; number += 1) {\n"
        "    (number % 3 === 0 ? console.error : console.log)(`${who} ${number}`);\n"
        "    await new Promise((done) => setTimeout(done, 1));\n"
        "  }\n"
        "  return { statusCode: 200, body: who };\n"
        "};\n"
    ),
}


class Follower:
    """Reads a function's live log in a thread of its own."""

    def __init__(self, platform: Platform, name: str, query: str = "", last_seen: str | None = None) -> None:
        self.events: list[tuple[str, str | None, dict[str, Any]]] = []
        self._connection = platform.connect("api")
        headers = {"Authorization": f"Bearer {platform.token}"}
        if last_seen is not None:
            headers["Last-Event-ID"] = last_seen
        self._connection.request("GET", f"/v1/functions/{name}/logs/stream{query}", headers=headers)
        response = self._connection.getresponse()
        assert response.status == 200
        assert (response.getheader("content-type") or "").startswith("text/event-stream")
        self._thread = threading.Thread(target=self._read, args=(response,), daemon=True)
        self._thread.start()

    def _read(self, response: HTTPResponse) -> None:
        for fields in _events(response):
            if "data" in fields:
                self.events.append((fields.get("event", ""), fields.get("id"), json.loads(fields["data"])))

    def lines(self) -> list[tuple[str, str]]:
        """Return the lines that came so far, each with its stream."""
        return [(data["stream"], data["message"]) for kind, _, data in list(self.events) if kind == "log"]

    def invocations(self) -> list[str]:
        return [data["activationId"] for kind, _, data in list(self.events) if kind == "invocation"]

    def close(self) -> None:
        assert self._connection.sock is not None
        self._connection.sock.shutdown(2)
        self._thread.join(10)
        self._connection.close()


def _events(response: HTTPResponse) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    while line := response.readline():
        name, _, value = line.decode().rstrip("\r\n").partition(": ")
        if name:
            fields[name] = value
        else:
            yield fields
            fields = {}


def test_each_stream_is_recorded_in_order(platform: Platform, language: str) -> None:
    name = platform.create(new_name("says"), language, SAYS[language])

    answer = platform.fetch(name, "?who=one")

    record = platform.record_of(name, answer.activation)
    assert record["stderr"] == "".join(f"one {number}\n" for number in range(0, 20, 3))
    assert record["stdout"] == "".join(f"one {number}\n" for number in range(20) if number % 3)


def test_the_live_log_has_the_order_over_both_streams(platform: Platform, language: str) -> None:
    name = platform.create(new_name("says"), language, SAYS[language])
    follower = Follower(platform, name)

    answer = platform.fetch(name, "?who=one")

    wait_until(lambda: follower.invocations() == [answer.activation])
    follower.close()
    expected = [("stderr" if number % 3 == 0 else "stdout", f"one {number}") for number in range(20)]
    assert follower.lines() == expected
    assert [kind for kind, _, _ in follower.events] == ["log"] * 20 + ["invocation"]


def test_calls_at_the_same_time_keep_their_lines_apart(platform: Platform, language: str) -> None:
    name = platform.create(new_name("says"), language, SAYS[language])

    answers = at_once(16, lambda at: [platform.fetch(name, f"?who=w{at}-{turn}") for turn in range(3)])

    records = {record["activationId"]: record for record in platform.invocations(name)}
    assert len(records) == 48
    for answer in (answer for several in answers for answer in several):
        who = answer.body.decode()
        record = records[answer.activation]
        assert record["stderr"] == "".join(f"{who} {number}\n" for number in range(0, 20, 3))
        assert record["stdout"] == "".join(f"{who} {number}\n" for number in range(20) if number % 3)


def test_short_calls_that_wait_in_one_instance_keep_their_lines_apart(platform: Platform, language: str) -> None:
    code = {
        "python": "def main(params):\n    print(params['who'])\n    return {'statusCode': 200, 'body': params['who']}",
        "nodejs": "exports.main = ({ who }) => { console.log(who); return { statusCode: 200, body: who }; };\n",
    }
    name = platform.create(new_name("short"), language, code[language])
    platform.fetch(name, "?who=first")

    def client(at: int) -> list[Answer]:
        return [platform.fetch(name, f"?who=w{at}-{turn}") for turn in range(20)]

    answers = [answer for several in at_once(8, client) for answer in several]

    stdout = {record["activationId"]: record["stdout"] for record in platform.all_invocations(name)}
    assert [stdout[answer.activation] for answer in answers] == [f"{answer.body.decode()}\n" for answer in answers]


def test_what_is_printed_after_the_answer_belongs_to_the_call_that_printed_it(
    platform: Platform, language: str
) -> None:
    code = {
        "python": (
            "import threading\n"
            "def main(params):\n"
            "    who = params['who']\n"
            "    threading.Timer(0.05, lambda: print(f'{who} late')).start()\n"
            "    print(f'{who} early')\n"
            "    return {'statusCode': 200, 'body': who}\n"
        ),
        "nodejs": (
            "exports.main = ({ who }) => {\n"
            "  setTimeout(() => console.log(`${who} late`), 50);\n"
            "  console.log(`${who} early`);\n"
            "  return { statusCode: 200, body: who };\n"
            "};\n"
        ),
    }
    name = platform.create(new_name("late"), language, code[language])
    follower = Follower(platform, name)

    first = platform.fetch(name, "?who=one")
    wait_until(lambda: platform.record_of(name, first.activation)["stdout"] == "one early\none late\n")
    second = platform.fetch(name, "?who=two")
    wait_until(lambda: platform.record_of(name, second.activation)["stdout"] == "two early\ntwo late\n")

    wait_until(lambda: len(follower.lines()) == 4)
    follower.close()
    assert [text for _, text in follower.lines()] == ["one early", "one late", "two early", "two late"]
    assert platform.record_of(name, first.activation)["stdout"] == "one early\none late\n"
    assert len(platform.invocations(name)) == 2


def test_what_is_printed_at_import_belongs_to_the_first_call(platform: Platform, language: str) -> None:
    code = {
        "python": (
            "import sys\nprint('loading')\nprint('warning', file=sys.stderr)\n"
            "def main(params):\n    print('running')\n    return {}\n"
        ),
        "nodejs": (
            "console.log('loading');\nconsole.error('warning');\n"
            "exports.main = () => { console.log('running'); return {}; };\n"
        ),
    }
    name = platform.create(new_name("import"), language, code[language])

    first, second = platform.invoke(name), platform.invoke(name)

    records = [platform.record_of(name, outcome["activationId"]) for outcome in (first, second)]
    assert [(record["stdout"], record["stderr"]) for record in records] == [
        ("loading\nrunning\n", "warning\n"),
        ("running\n", ""),
    ]
    assert [record["coldStart"] for record in records] == [True, False]


def test_native_output_and_output_of_children_is_recorded_with_its_call(platform: Platform, language: str) -> None:
    code = {
        "python": (
            "import os, subprocess\n"
            "def main(params):\n"
            "    os.write(1, b'native ' + params['who'].encode() + b'\\n')\n"
            "    subprocess.run(['/bin/echo', 'child', params['who']], check=True)\n"
            "    os.write(2, b'problem\\n')\n"
            "    return {}\n"
        ),
        "nodejs": (
            "const fs = require('fs');\n"
            "const { execFileSync } = require('child_process');\n"
            "exports.main = ({ who }) => {\n"
            "  fs.writeSync(1, `native ${who}\\n`);\n"
            "  execFileSync('/bin/echo', ['child', who], { stdio: 'inherit' });\n"
            "  fs.writeSync(2, 'problem\\n');\n"
            "  return {};\n"
            "};\n"
        ),
    }
    name = platform.create(new_name("native"), language, code[language])

    outcomes = [platform.invoke(name, {"who": who}) for who in ("one", "two")]

    records = [platform.record_of(name, outcome["activationId"]) for outcome in outcomes]
    assert [(record["stdout"], record["stderr"]) for record in records] == [
        ("native one\nchild one\n", "problem\n"),
        ("native two\nchild two\n", "problem\n"),
    ]


def test_odd_text_is_recorded_as_it_was_printed(platform: Platform, language: str) -> None:
    code = {
        "python": "def main(params):\n    print('é😀\\u2028', end='')\n    print()\n    print('no newline', end='')\n",
        "nodejs": (
            "const { stdout } = process;\n"
            "exports.main = () => { stdout.write('é😀\\u2028\\n'); stdout.write('no newline'); };\n"
        ),
    }
    name = platform.create(new_name("odd"), language, code[language])

    outcome = platform.invoke(name)

    assert outcome["status"] == "success"
    assert platform.record_of(name, outcome["activationId"])["stdout"] == "é😀\u2028\nno newline"


def test_a_follower_that_was_cut_off_goes_on_where_it_was(platform: Platform, language: str) -> None:
    name = platform.create(new_name("follow"), language, SAYS[language])
    platform.fetch(name, "?who=before")
    first = Follower(platform, name)
    seen = platform.fetch(name, "?who=seen")
    wait_until(lambda: first.invocations() == [seen.activation])
    first.close()
    missed = platform.fetch(name, "?who=missed")

    again = Follower(platform, name, last_seen=first.events[-1][1])
    live = platform.fetch(name, "?who=live")

    wait_until(lambda: len(again.invocations()) == 2)
    again.close()
    assert again.invocations() == [missed.activation, live.activation]
    assert [text.split()[0] for _, text in again.lines()] == ["missed"] * 20 + ["live"] * 20


def test_a_follower_can_ask_for_the_past_first(platform: Platform, echo: str) -> None:
    answers = [platform.fetch(echo) for _ in range(3)]

    follower = Follower(platform, echo, "?tail=2")

    wait_until(lambda: len(follower.invocations()) == 2)
    follower.close()
    assert follower.invocations() == [answer.activation for answer in answers[1:]]


TELLS = {
    "python": (
        "import os\n"
        "def main(params):\n"
        "    print('the token is', os.environ['TOKEN'])\n"
        "    if 'fail' in params:\n"
        "        raise ValueError('no ' + params['TOKEN'])\n"
        "    return {'statusCode': 200, 'body': {'params': params['TOKEN'], 'env': os.environ['TOKEN'],\n"
        "                                        'plain': os.environ['PLAIN']}}\n"
    ),
    "nodejs": (
        "exports.main = (params) => {\n"
        "  console.log('the token is', process.env.TOKEN);\n"
        "  if (params.fail) throw new Error('no ' + params.TOKEN);\n"
        "  const { TOKEN, PLAIN } = process.env;\n"
        "  return { statusCode: 200, body: { params: params.TOKEN, env: TOKEN, plain: PLAIN } };\n"
        "};\n"
    ),
}


@pytest.mark.boundary("role-to-role", "A running function gets its secrets; its log and the files beside show none.")
def test_secrets_reach_a_function_and_neither_its_log_nor_the_route_file_shows_them(
    platform: Platform, language: str
) -> None:
    env, secrets = [{"name": "PLAIN", "value": "a-variable"}], [{"name": "TOKEN", "value": "hunter2-of-the-harbor"}]
    name = platform.create(
        new_name("secret"), language, TELLS[language], env=json.dumps(env), secrets=json.dumps(secrets)
    )

    answer = platform.fetch(name, "?TOKEN=forged", method="GET")
    failed = platform.fetch(name, "?fail=1", method="GET")
    logs = platform.record_of(name, answer.activation)
    saved = platform.running.data / "run" / "edge-routes.json"
    wait_until(lambda: f'"{name}"' in saved.read_text())

    assert answer.json == {
        "params": "hunter2-of-the-harbor",
        "env": "hunter2-of-the-harbor",
        "plain": "a-variable",
    }
    assert (failed.status, failed.json["error"]["message"].endswith("no ****")) == (502, True)
    assert "the token is ****" in json.dumps(logs)
    assert "hunter2" not in json.dumps(logs)
    assert "hunter2" not in saved.read_text()
    assert "a-variable" not in saved.read_text()
