"""Functions at their public address: what a request becomes, and what the gateway does with HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
from tests.e2e.functions_support import ECHO, LANGUAGES, MB, Answer, Platform, new_name, read_answer, split_answers

pytestmark = pytest.mark.group("functions")

LIMIT = 6 * MB
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

# Sleeps as long as it is told, and says who it is.
SLOW = {
    "python": (
        "import time\n"
        "def main(params):\n"
        "    time.sleep(float(params.get('sleep', 0)))\n"
        "    return {'statusCode': 200, 'body': params['who']}\n"
    ),
    "nodejs": (
        "exports.main = async ({ sleep = 0, who }) => {\n"
        "  await new Promise((done) => setTimeout(done, Number(sleep) * 1000));\n"
        "  return { statusCode: 200, body: who };\n"
        "};\n"
    ),
}
# Tells how long its body is; a large one would not fit into the answer of an echo.
MEASURE = {
    "python": "def main(params):\n    return {'statusCode': 200, 'body': str(len(params['__ow_body']))}\n",
    "nodejs": "exports.main = (params) => ({ statusCode: 200, body: String(params.__ow_body.length) });\n",
}
LONG = {
    "python": "def main(params):\n    return {'statusCode': 200, 'body': 'x' * int(params['size'])}\n",
    "nodejs": "exports.main = ({ size }) => ({ statusCode: 200, body: 'x'.repeat(Number(size)) });\n",
}


def assert_has_cors(answer: Answer) -> None:
    assert answer.all_of("access-control-allow-origin") == ["*"]
    assert "POST" in (answer.header("access-control-allow-methods") or "")
    assert len(answer.all_of("access-control-allow-headers")) == 1
    assert answer.header("access-control-expose-headers") == "*"


# Addresses.


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api/v1/web",
        "/api/v1/web/org_{org}",
        "/api/v1/web/org_{org}/default",
        "/api/v1/web/org_{org}/default/",
        "/api/v1/web/org_{org}/default/no-such-function",
        "/api/v1/web/org_{org}/other/{name}",
        "/api/v1/web/org_999999/default/{name}",
        "/api/v1/web/org_9999999999999999999/default/{name}",
        "/api/v1/web/org_x/default/{name}",
        "/api/v1/web/{org}/default/{name}",
        "/api/v2/web/org_{org}/default/{name}",
        "/api/v1/web/org_{org}/default/{name}x",
        "/API/v1/web/org_{org}/default/{name}",
        "//api/v1/web/org_{org}/default/{name}",
    ],
)
@pytest.mark.parametrize("port", ["edge", "gateway"])
def test_an_address_that_leads_to_no_function_is_not_found_in_the_envelope(
    platform: Platform, echoes: dict[str, str], path: str, port: str
) -> None:
    connection = platform.connect(port)
    is_passed_on = port == "edge" or path.startswith("/api/v1/web/")

    connection.request("GET", path.format(org=platform.org, name=echoes["python"]))
    answer = read_answer(connection.getresponse())
    connection.close()

    assert answer.status == 404
    assert not is_passed_on or answer.error["code"] == "not_found"
    assert answer.header("x-openwhisk-activation-id") is None


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_a_function_is_told_the_method_in_lower_case(platform: Platform, echo: str, method: str) -> None:
    answer = platform.fetch(echo, method=method)

    assert answer.status == 200
    assert answer.json["__ow_method"] == method.lower()
    assert answer.header("content-type") == "application/json"
    assert_has_cors(answer)


@pytest.mark.parametrize("port", ["edge", "gateway"])
def test_head_runs_the_function_and_has_the_length_without_the_body(
    platform: Platform, language: str, port: str
) -> None:
    name = platform.create(new_name("head"), language, LONG[language])

    answer = platform.fetch(name, "?size=1234", method="HEAD", port=port)

    assert answer.status == 200
    assert answer.header("content-length") == "1234"
    assert answer.body == b""
    assert platform.record_of(name, answer.activation)["status"] == "success"


@pytest.mark.parametrize("method", ["PROPFIND", "PURGE", "TRACE"])
def test_a_method_that_web_functions_do_not_have_harms_nothing(platform: Platform, echo: str, method: str) -> None:
    sent = f"{method} {platform.path(echo)} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    following = f"GET {platform.path(echo)}?after=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()

    first, second = split_answers(platform.exchange(sent + following))

    assert first.status == 200
    assert first.json["__ow_method"] == method.lower()
    assert second.json["after"] == "1"


# Cross-origin calls.


@pytest.mark.parametrize("port", ["edge", "gateway"])
def test_a_preflight_is_answered_without_running_the_function(platform: Platform, language: str, port: str) -> None:
    name = platform.create(new_name("preflight"), language, LONG[language])
    asked = {
        "Origin": "https://pages.example",
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "Authorization, X-Own",
    }

    answer = platform.fetch(name, method="OPTIONS", headers=asked, port=port)

    assert answer.status == 200
    assert answer.body == b""
    assert_has_cors(answer)
    assert answer.header("access-control-allow-headers") == "Authorization, X-Own"
    assert int(answer.header("access-control-max-age") or 0) > 0
    assert platform.invocations(name) == []


def test_a_function_that_handles_options_is_run_for_them(platform: Platform, language: str) -> None:
    code = {
        "python": (
            "def main(params):\n"
            "    return {'statusCode': 204, 'headers': {'Access-Control-Allow-Origin': 'https://own.example',\n"
            "            'X-Seen': params['__ow_method']}}\n"
        ),
        "nodejs": (
            "exports.main = (params) => ({ statusCode: 204, headers: {\n"
            "  'Access-Control-Allow-Origin': 'https://own.example', 'X-Seen': params.__ow_method } });\n"
        ),
    }
    name = platform.create(new_name("options"), language, code[language], handleOptions="true")

    answer = platform.fetch(name, method="OPTIONS")

    assert answer.status == 204
    assert answer.all_of("access-control-allow-origin") == ["https://own.example"]
    assert answer.header("x-seen") == "options"
    assert answer.header("content-length") is None
    assert platform.record_of(name, answer.activation)["status"] == "success"


def test_failures_can_be_read_by_pages_of_other_origins_too(platform: Platform, echo: str) -> None:
    unknown = platform.fetch("no-such-function")
    preflight = platform.fetch("no-such-function", method="OPTIONS")
    wrong = platform.fetch(echo, method="POST", body="{", headers=JSON)
    long = platform.fetch(echo, "?" + "&".join(["a=1"] * 1001))

    assert [answer.status for answer in (unknown, preflight, wrong, long)] == [404, 404, 400, 400]
    for answer in (unknown, preflight, wrong, long):
        assert_has_cors(answer)


# What a function is given.


@pytest.mark.parametrize(
    ("rest", "path"),
    [("", ""), ("/", "/"), ("/a/b", "/a/b"), ("/a%20b/%2F", "/a%20b/%2F"), ("//x/../y", "//x/../y"), ("/a?b=/c", "/a")],
)
def test_the_rest_of_the_path_is_given_as_it_was_sent(platform: Platform, echo: str, rest: str, path: str) -> None:
    answer = platform.fetch(echo, rest)

    assert answer.json["__ow_path"] == path


def test_the_query_is_given_both_raw_and_as_params(platform: Platform, echo: str) -> None:
    query = "a=1&b=%C3%A9+x&b=last&empty=&=nameless&flag"

    given = platform.fetch(echo, f"?{query}").json

    assert given["__ow_query"] == query
    assert {name: given[name] for name in ("a", "b", "empty", "flag")} == {
        "a": "1",
        "b": "last",
        "empty": "",
        "flag": "",
    }


def test_headers_are_given_with_names_in_lower_case_and_repeated_ones_joined(platform: Platform, echo: str) -> None:
    head = f"GET {platform.path(echo)} HTTP/1.1\r\nHost: own.example\r\nX-Own: A\r\nx-own: B\r\n"

    (answer,) = split_answers(platform.exchange(f"{head}Connection: close\r\n\r\n".encode()))

    assert answer.json["__ow_headers"] == {"host": "own.example", "x-own": "A, B", "connection": "close"}


def test_special_parameters_come_over_env_over_the_body_over_the_query(platform: Platform, echo: str) -> None:
    special = [
        "__ow_method",
        "__ow_headers",
        "__ow_path",
        "__ow_query",
        "__OW_NAMESPACE",
        "__OW_ACTION_NAME",
        "__OW_ACTIVATION_ID",
        "__OW_DEADLINE",
        "__OW_API_HOST",
    ]
    forged = {**dict.fromkeys(special, "forged"), "OWN": "forged", "both": "body"}

    answer = platform.fetch(
        echo, "/p?both=query&only=query&OWN=forged", method="POST", body=json.dumps(forged), headers=JSON
    )

    given = answer.json
    assert (given["both"], given["only"], given["OWN"]) == ("body", "query", "from env")
    assert (given["__ow_method"], given["__ow_path"]) == ("post", "/p")
    assert given["__OW_NAMESPACE"] == f"org-{platform.org}"
    assert given["__OW_ACTION_NAME"] == f"/org-{platform.org}/default/{echo}"
    assert given["__OW_ACTIVATION_ID"] == answer.activation
    assert [name for name in special if given[name] == "forged"] == []


def test_a_json_object_is_merged_into_the_params(platform: Platform, echo: str) -> None:
    sent = {"text": "é\u2028😀", "number": 1.5, "big": 2**53, "none": None, "list": [1, {"a": []}], "": "empty name"}

    given = platform.fetch(echo, method="POST", body=json.dumps(sent), headers=JSON).json

    assert {name: given[name] for name in sent} == sent
    assert "__ow_body" not in given


@pytest.mark.parametrize("sent", ["[1,2,3]", '"text"', "12.5", "true", "null", " [ ] "])
def test_other_json_is_the_body_as_a_value(platform: Platform, echo: str, sent: str) -> None:
    given = platform.fetch(echo, method="POST", body=sent, headers=JSON).json

    assert given["__ow_body"] == json.loads(sent)


@pytest.mark.parametrize("sent", ["{", "{'a': 1}", '{"a": 1}}', '{"a": NaN}', "nul", '{"a": "\\ud8"}', "\xff"])
def test_what_claims_to_be_json_and_is_not_is_a_bad_request_and_does_not_run(
    platform: Platform, language: str, sent: str
) -> None:
    name = platform.create(new_name("bad-json"), language, LONG[language])

    answer = platform.fetch(name, method="POST", body=sent.encode("latin-1"), headers=JSON)

    assert answer.status == 400
    assert answer.error["code"] == "bad_request"
    assert "JSON" in answer.error["message"]
    assert platform.invocations(name) == []


def test_a_form_is_merged_into_the_params(platform: Platform, echo: str) -> None:
    given = platform.fetch(echo, "?a=query", method="POST", body="a=form&b=%C3%A9+x&c=", headers=FORM).json

    assert (given["a"], given["b"], given["c"]) == ("form", "é x", "")
    assert "__ow_body" not in given


@pytest.mark.parametrize("kind", ["text/plain", "text/plain; charset=utf-8", "application/xml", "text/csv"])
def test_text_is_the_body_as_it_is(platform: Platform, echo: str, kind: str) -> None:
    given = platform.fetch(echo, method="POST", body="tëxt\n\0".encode(), headers={"Content-Type": kind}).json

    assert given["__ow_body"] == "tëxt\n\0"
    assert "__ow_isBase64Encoded" not in given


@pytest.mark.parametrize("kind", ["application/octet-stream", "image/png", "multipart/form-data; boundary=x"])
def test_other_bodies_come_as_base64_and_say_so(platform: Platform, echo: str, kind: str) -> None:
    body = bytes(range(256))

    given = platform.fetch(echo, method="PUT", body=body, headers={"Content-Type": kind}).json

    assert base64.b64decode(given["__ow_body"]) == body
    assert given["__ow_isBase64Encoded"] is True


def test_a_request_cannot_claim_that_its_text_is_base64(platform: Platform, echo: str) -> None:
    text = {"Content-Type": "text/plain"}

    given = platform.fetch(echo, "?__ow_isBase64Encoded=true&__ow_body=x", method="POST", body="plain", headers=text)

    assert given.json["__ow_body"] == "plain"
    assert given.json.get("__ow_isBase64Encoded") is not True


def test_a_raw_function_gets_the_query_and_the_body_unparsed(platform: Platform, language: str) -> None:
    name = platform.create(new_name("raw"), language, ECHO[language], rawHttp="true")

    as_json = platform.fetch(name, "?a=1&a=2", method="POST", body='{"b": 2}', headers=JSON).json
    as_form = platform.fetch(name, "?a=1", method="POST", body="b=2", headers=FORM).json
    empty = platform.fetch(name, "?a=1").json
    broken = platform.fetch(name, method="POST", body="{", headers=JSON).json

    assert as_json["__ow_query"] == "a=1&a=2"
    assert base64.b64decode(as_json["__ow_body"]) == b'{"b": 2}'
    assert as_json["__ow_isBase64Encoded"] is True
    assert {"a", "b"}.isdisjoint(as_json)
    assert base64.b64decode(as_form["__ow_body"]) == b"b=2"
    assert {"a", "b"}.isdisjoint(as_form)
    assert (empty["__ow_body"], empty["__ow_query"]) == ("", "a=1")
    assert base64.b64decode(broken["__ow_body"]) == b"{"


# Sizes.


@pytest.mark.parametrize("port", ["edge", "gateway"])
def test_a_body_of_6_mb_is_taken_and_one_byte_more_is_not(platform: Platform, language: str, port: str) -> None:
    name = platform.create(new_name("measure"), language, MEASURE[language])
    text = {"Content-Type": "text/plain"}

    # What is too long is refused by its length alone, so that a client need not have sent it all to read the answer.
    head = f"POST {platform.path(name)} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"

    fits = platform.fetch(name, method="POST", body=b"x" * LIMIT, headers=text, port=port)
    (larger,) = split_answers(platform.exchange(f"{head}Content-Length: {LIMIT + 1}\r\n\r\nx".encode(), port))

    assert (fits.status, fits.body) == (200, str(LIMIT).encode())
    assert larger.status == 413
    assert larger.error["code"] == "bad_request"
    assert_has_cors(larger)
    assert [item["activationId"] for item in platform.invocations(name)] == [fits.activation]


def test_a_chunked_body_is_cut_off_at_6_mb_too(platform: Platform, language: str) -> None:
    name = platform.create(new_name("chunks"), language, MEASURE[language])
    text = {"Content-Type": "text/plain"}

    def chunks(size: int) -> Iterator[bytes]:
        for at in range(0, size, MB - 7):
            yield b"x" * min(MB - 7, size - at)

    fits = platform.fetch(name, method="POST", body=chunks(LIMIT), headers=text)
    larger = platform.fetch(name, method="POST", body=chunks(LIMIT + 1), headers=text)

    assert (fits.status, fits.body) == (200, str(LIMIT).encode())
    assert (larger.status, larger.error["code"]) == (413, "bad_request")


@pytest.mark.parametrize("port", ["edge", "gateway"])
def test_a_result_of_6_mb_is_sent_and_one_byte_more_is_an_error(platform: Platform, language: str, port: str) -> None:
    name = platform.create(new_name("long"), language, LONG[language])

    fits = platform.fetch(name, f"?size={LIMIT}", port=port)
    larger = platform.fetch(name, f"?size={LIMIT + 1}", port=port)

    assert (fits.status, len(fits.body)) == (200, LIMIT)
    assert larger.status == 502
    assert "6 MB" in larger.error["message"]


# Connections.


def test_a_connection_is_kept_for_further_requests(platform: Platform, echo: str) -> None:
    connection = platform.connect()
    answers = []
    for number in range(20):
        connection.request("GET", platform.path(echo, f"?n={number}"))
        answers.append((connection.sock, read_answer(connection.getresponse())))
    connection.close()

    assert len({sock for sock, _ in answers}) == 1
    assert [answer.json["n"] for _, answer in answers] == [str(number) for number in range(20)]
    assert len({answer.activation for _, answer in answers}) == 20


@pytest.mark.parametrize("port", ["edge", "gateway"])
def test_pipelined_requests_are_answered_in_order_also_when_the_first_is_slow(
    platform: Platform, language: str, port: str
) -> None:
    name = platform.create(new_name("slow"), language, SLOW[language])
    targets = [f"?who={number}" + ("&sleep=0.2" if number in (0, 3) else "") for number in range(8)]
    requests = [f"GET {platform.path(name, target)} HTTP/1.1\r\nHost: 127.0.0.1\r\n" for target in targets]
    sent = "\r\n".join(requests) + "Connection: close\r\n\r\n"

    answers = split_answers(platform.exchange(sent.encode(), port))

    assert [answer.body for answer in answers] == [str(number).encode() for number in range(8)]


def test_requests_to_several_functions_in_one_write_keep_their_order(
    platform: Platform, echoes: dict[str, str]
) -> None:
    slow = platform.create(new_name("slow"), "python", SLOW["python"])
    lines = [
        f"GET {platform.path(slow, '?sleep=0.15&who=slow')} HTTP/1.1",
        *(f"HEAD {platform.path(echoes[language])} HTTP/1.1" for language in LANGUAGES),
        "GET /nowhere HTTP/1.1",
        f"OPTIONS {platform.path(slow)} HTTP/1.1",
        f"GET {platform.path(slow, '?who=last')} HTTP/1.1",
    ]
    sent = "".join(f"{line}\r\nHost: a\r\nX-Request-Id: id-{at}\r\n\r\n" for at, line in enumerate(lines, 1))
    last = b"GET / HTTP/1.0\r\n\r\n"

    answers = split_answers(platform.exchange(sent.encode() + last), heads=frozenset((1, 2)))

    assert [answer.header("x-request-id") for answer in answers[:6]] == [f"id-{at}" for at in range(1, 7)]
    assert [answer.status for answer in answers] == [200, 200, 200, 404, 200, 200, 404]
    assert (answers[0].body, answers[5].body) == (b"slow", b"last")


def test_a_body_in_chunks_arrives_whole(platform: Platform, echo: str) -> None:
    head = f"POST {platform.path(echo)} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    sent = f'{head}Transfer-Encoding: chunked\r\n\r\n5\r\n{{"a":\r\n6;x=y\r\n "one"\r\n1\r\n}}\r\n0\r\nX-T: 1\r\n\r\n'
    following = f"GET {platform.path(echo)}?b=2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

    first, second = split_answers(platform.exchange((sent + following).encode()))

    assert first.json["a"] == "one"
    assert "x-t" not in first.json["__ow_headers"]
    assert second.json["b"] == "2"


def test_http_1_0_is_answered_and_the_connection_closed(platform: Platform, echo: str) -> None:
    received = platform.exchange(f"GET {platform.path(echo)}?a=1 HTTP/1.0\r\n\r\n".encode())

    (answer,) = split_answers(received)
    assert (answer.status, answer.json["a"]) == (200, "1")
    assert answer.header("transfer-encoding") is None


def test_http_1_0_keeps_the_connection_where_it_asks_to(platform: Platform, echo: str) -> None:
    kept = f"GET {platform.path(echo)}?a=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    last = f"GET {platform.path(echo)}?a=2 HTTP/1.0\r\n\r\n"

    answers = split_answers(platform.exchange((kept + last).encode()))

    assert [answer.json["a"] for answer in answers] == ["1", "2"]
    assert answers[0].header("connection") == "keep-alive"


# Ids.


@pytest.mark.parametrize("port", ["edge", "gateway"])
def test_every_answer_of_a_run_has_its_activation_id_and_a_request_id(platform: Platform, echo: str, port: str) -> None:
    own = platform.fetch(echo, headers={"X-Request-Id": "harbor-1.a_b"}, port=port)
    fresh = platform.fetch(echo, headers={"X-Request-Id": "not safe!"}, port=port)

    assert own.header("x-request-id") == "harbor-1.a_b"
    assert fresh.header("x-request-id") not in (None, "", "not safe!")
    assert own.activation == own.json["__OW_ACTIVATION_ID"]
    assert own.activation != fresh.activation
    records = [platform.record_of(echo, answer.activation) for answer in (own, fresh)]
    assert [(record["status"], record["door"]) for record in records] == [("success", "web")] * 2


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_the_public_gateway_passes_calls_on_unchanged(platform: Platform, echo: str, method: str) -> None:
    body = None if method == "GET" else '{"b": 2}'

    answer = platform.fetch(echo, "/rest?a=1", method=method, body=body, headers=JSON, port="gateway")

    assert answer.status == 200
    given = answer.json
    assert (given["__ow_method"], given["__ow_path"], given["a"]) == (method.lower(), "/rest", "1")
    assert given.get("b") == (None if method == "GET" else 2)
    assert_has_cors(answer)
