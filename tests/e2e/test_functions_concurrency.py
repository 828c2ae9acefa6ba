"""How many calls of a function run at once: one in each instance, more instances for more calls, up to a bound."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.e2e.functions_support import ANY_LANGUAGE, Answer, Platform, at_once, held, new_name, wait_until

pytestmark = pytest.mark.group("functions")

# Counts the calls that run in its instance, and says which instance that is. Whoever sees more than one says so.
COUNTING = {
    "python": (
        "import time, uuid\n"
        "instance, running, most = uuid.uuid4().hex, 0, 0\n"
        "def main(params):\n"
        "    global running, most\n"
        "    running += 1\n"
        "    most = max(most, running)\n"
        "    time.sleep(float(params.get('sleep', 0)))\n"
        "    running -= 1\n"
        "    return {'statusCode': 200, 'body': [instance, most]}\n"
    ),
    "nodejs": (
        "const instance = require('crypto').randomUUID();\n"
        "let running = 0, most = 0;\n"
        "exports.main = async ({ sleep = 0 }) => {\n"
        "  running += 1;\n"
        "  most = Math.max(most, running);\n"
        "  await new Promise((done) => setTimeout(done, Number(sleep) * 1000));\n"
        "  running -= 1;\n"
        "  return { statusCode: 200, body: [instance, most] };\n"
        "};\n"
    ),
}


@ANY_LANGUAGE
@pytest.mark.parametrize(
    "sleep", [pytest.param("0", marks=pytest.mark.twin), "0.003", pytest.param("0.03", marks=pytest.mark.twin)]
)
def test_an_instance_runs_one_call_at_a_time(platform: Platform, language: str, sleep: str) -> None:
    name = platform.create(new_name("counting"), language, COUNTING[language])

    def client(_: int) -> list[Answer]:
        return [platform.fetch(name, f"?sleep={sleep}") for _ in range(10)]

    answers = [answer for several in at_once(12, client) for answer in several]

    assert {answer.status for answer in answers} == {200}
    assert {answer.json[1] for answer in answers} == {1}


@ANY_LANGUAGE
def test_slow_calls_at_the_same_time_get_several_instances(platform: Platform, language: str) -> None:
    name = platform.create(new_name("parallel"), language, COUNTING[language])

    answers = at_once(8, lambda _: platform.fetch(name, "?sleep=1"))

    assert len({answer.json[0] for answer in answers}) > 2
    assert {answer.json[1] for answer in answers} == {1}


def test_calls_one_after_the_other_stay_in_one_instance(platform: Platform, language: str) -> None:
    name = platform.create(new_name("serial"), language, COUNTING[language])

    answers = [platform.fetch(name) for _ in range(20)]

    assert len({answer.json[0] for answer in answers}) == 1
    assert [record["coldStart"] for record in platform.invocations(name)] == [False] * 19 + [True]


def test_a_crash_fails_the_call_that_crashed_and_no_other(platform: Platform, language: str) -> None:
    code = {
        "python": (
            "import os\n"
            "def main(params):\n"
            "    if params['n'] == '50':\n        os.abort()\n"
            "    return {'statusCode': 200, 'body': params['n']}\n"
        ),
        "nodejs": (
            "exports.main = ({ n }) => {\n"
            "  if (n === '50') process.abort();\n"
            "  return { statusCode: 200, body: n };\n"
            "};\n"
        ),
    }
    name = platform.create(new_name("crash"), language, code[language])
    assert platform.fetch(name, "?n=0").status == 200

    answers = at_once(16, lambda at: [(n, platform.fetch(name, f"?n={n}")) for n in range(at, 100, 16)])

    seen = {n: answer for several in answers for n, answer in several}
    assert [n for n, answer in seen.items() if answer.status != 200] == [50]
    assert all(answer.body == str(n).encode() for n, answer in seen.items() if n != 50)
    assert Counter(record["status"] for record in platform.all_invocations(name)) == {"success": 100, "error": 1}


@ANY_LANGUAGE
def test_calls_past_the_queue_are_refused_until_there_is_room_again(small: Platform, language: str) -> None:
    name = small.create(new_name("queue"), language, COUNTING[language])
    assert small.fetch(name, "?sleep=0.01").status == 200

    with held(small, small.path(name, "?sleep=3"), *[small.path(name)] * 2) as answers:
        refused = small.fetch(name)
        refused_at_the_api = small.send("POST", f"/v1/functions/{name}/invoke")
    after = small.fetch(name)

    assert (refused.status, refused.error["code"]) == (429, "rate_limited")
    assert int(refused.header("retry-after") or 0) >= 1
    assert refused.header("access-control-allow-origin") == "*"
    assert refused_at_the_api.status == 429
    assert refused_at_the_api.json["error"]["code"] == "rate_limited"
    assert int(refused_at_the_api.header("retry-after") or 0) >= 1
    assert [answer.status for answer in answers] == [200] * 3
    assert len({answer.json[0] for answer in [*answers, after]}) == 1
    assert len(small.invocations(name)) == 5


@ANY_LANGUAGE
def test_a_call_that_waits_past_its_deadline_fails_without_having_run(small: Platform, language: str) -> None:
    name = small.create(new_name("waits"), language, COUNTING[language], timeout=2000)
    assert small.fetch(name, "?sleep=0.01").status == 200

    with held(small, *[small.path(name, "?sleep=1.2")] * 3) as answers:
        pass

    late = answers[2]
    assert answers[0].status == 200
    assert late.status == 502
    assert late.error["message"] == "the call waited 2000 ms, its whole timeout, for its turn"
    record = small.record_of(name, late.activation)
    assert (record["status"], record["duration"]) == ("error", 0)
    assert record["waitMs"] >= 2000


@ANY_LANGUAGE
def test_waiting_calls_of_other_functions_are_not_held_up(small: Platform, language: str) -> None:
    busy, quiet = (small.create(new_name("other"), language, COUNTING[language]) for _ in range(2))
    assert [small.fetch(name, "?sleep=0.01").status for name in (busy, quiet)] == [200, 200]

    with held(small, small.path(busy, "?sleep=3"), *[small.path(busy)] * 2) as answers:
        others = [small.fetch(quiet) for _ in range(5)]
        still_held = small.in_flight()

    assert still_held == 3
    assert [answer.status for answer in (*others, *answers)] == [200] * 8


@ANY_LANGUAGE
def test_a_client_that_leaves_does_not_end_its_call(platform: Platform, language: str) -> None:
    name = platform.create(new_name("leaves"), language, COUNTING[language])
    connection = platform.connect()
    connection.request("GET", platform.path(name, "?sleep=0.4"))
    wait_until(lambda: platform.in_flight() == 1)

    connection.close()

    wait_until(lambda: [record["status"] for record in platform.invocations(name)] == ["success"])
    assert platform.fetch(name).json[1] == 1
