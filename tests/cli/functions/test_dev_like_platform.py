"""`moorage functions dev` answers as the platform does, for the same code and the same requests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.functions.dev_server import LANGUAGES, Dev, dev, folder_of, send
from tests.e2e.functions_support import Answer
from tests.e2e.projects_support import Sites

pytestmark = [pytest.mark.group("cli-live"), pytest.mark.deep]

# Each result by its name; `case` of the query chooses one.
RESULTS = {
    "nodejs": """
const results = {
  echo: (params) => ({ statusCode: 200, body: params }),
  text: () => ({ statusCode: 200, body: 'héllo' }),
  html: () => ({ statusCode: 201, headers: { 'Content-Type': 'text/html' }, body: '<p>hi</p>' }),
  svg: () => ({ statusCode: 200, headers: { 'Content-Type': 'image/svg+xml' }, body: '<svg/>' }),
  binary: () => ({ statusCode: 200, headers: { 'Content-Type': 'image/png' }, body: 'iVBORw0KGgo=' }),
  flagged: () => ({ statusCode: 200, headers: { 'x-a': 'b' }, body: 'aGk=', isBase64Encoded: true }),
  unbinary: () => ({ statusCode: 200, headers: { 'Content-Type': 'image/png' }, body: '***' }),
  empty: () => ({ statusCode: 204 }),
  absent: () => ({ statusCode: 200 }),
  redirect: () => ({ statusCode: 302, headers: { Location: '/elsewhere' } }),
  cookies: () => ({ statusCode: 200, headers: { 'Set-Cookie': ['a=1; Path=/', '__Host-b=2; Path=/'] }, body: 'x' }),
  cors: () => ({ statusCode: 200, headers: { 'Access-Control-Allow-Origin': 'https://a.b' }, body: 'x' }),
  own: () => ({ statusCode: 200, headers: { 'Content-Length': '9', Date: 'never', 'X-N': 5 }, body: [1] }),
  digits: () => ({ statusCode: '404', body: 'no' }),
  unstatus: () => ({ statusCode: 99, body: '' }),
  word: () => ({ statusCode: 'ok', body: '' }),
  unheader: () => ({ statusCode: 200, headers: { 'x': 'a\\nb' }, body: '' }),
  bare: () => ({ body: 'no status' }),
  list: () => [1, 2],
  number: () => 5,
  nothing: () => null,
  late: async () => ({ statusCode: 200, body: 'awaited' }),
  failed: () => { throw new Error('broken'); },
  ended: () => { process.exit(3); },
  large: () => ({ statusCode: 200, body: 'x'.repeat(7 * 1024 * 1024) }),
};
exports.main = (params) => results[params.case || 'echo'](params);
""",
    "python": """
import sys

def fail(params):
    raise ValueError("broken")

async def late(params):
    return {"statusCode": 200, "body": "awaited"}

def ok(**parts):
    return lambda params: {"statusCode": 200, **parts}

results = {
    "echo": lambda params: {"statusCode": 200, "body": params},
    "text": ok(body="h\\u00e9llo"),
    "html": ok(statusCode=201, headers={"Content-Type": "text/html"}, body="<p>hi</p>"),
    "svg": ok(headers={"Content-Type": "image/svg+xml"}, body="<svg/>"),
    "binary": ok(headers={"Content-Type": "image/png"}, body="iVBORw0KGgo="),
    "flagged": ok(headers={"x-a": "b"}, body="aGk=", isBase64Encoded=True),
    "unbinary": ok(headers={"Content-Type": "image/png"}, body="***"),
    "empty": ok(statusCode=204),
    "absent": ok(),
    "redirect": ok(statusCode=302, headers={"Location": "/elsewhere"}),
    "cookies": ok(headers={"Set-Cookie": ["a=1; Path=/", "__Host-b=2; Path=/"]}, body="x"),
    "cors": ok(headers={"Access-Control-Allow-Origin": "https://a.b"}, body="x"),
    "own": ok(headers={"Content-Length": "9", "Date": "never", "X-N": 5}, body=[1]),
    "digits": ok(statusCode="404", body="no"),
    "unstatus": ok(statusCode=99, body=""),
    "word": ok(statusCode="ok", body=""),
    "unheader": ok(headers={"x": "a\\nb"}, body=""),
    "bare": lambda params: {"body": "no status"},
    "list": lambda params: [1, 2],
    "number": lambda params: 5,
    "nothing": lambda params: None,
    "late": late,
    "failed": fail,
    "ended": lambda params: sys.exit(3),
    "large": ok(body="x" * (7 * 1024 * 1024)),
}

def main(params):
    return results[params.get("case", "echo")](params)
""",
}
CASES = re.findall(r"^ {4}\"(\w+)\":", RESULTS["python"], re.MULTILINE)
JSON = {"Content-Type": "application/json"}
Request = tuple[str, str, str | bytes | None, dict[str, str]]
# Method, the path after the function's name, body, headers.
REQUESTS: list[Request] = [
    ("GET", "?a=1&a=2&b=&c=%C3%A9", None, {"X-One": "1", "Cookie": "k=v"}),
    ("GET", "/deeper/path?q=x%20y", None, {}),
    ("GET", ".http?a=1", None, {}),
    ("HEAD", "?case=text", None, {}),
    ("POST", "?a=query", '{"a": "body", "n": [1, {"m": null}]}', JSON),
    ("POST", "", "[1, 2]", JSON),
    ("POST", "", '{"a": ', JSON),
    ("POST", "", '{"a": 1}', {}),
    ("POST", "", "a=1&b=2&b=3", {"Content-Type": "application/x-www-form-urlencoded"}),
    ("PUT", "", "plain text", {"Content-Type": "text/plain"}),
    ("PATCH", "", b"\x00\xff\x01", {"Content-Type": "application/octet-stream"}),
    ("DELETE", "/thing", None, {}),
    ("POST", "", b'{"__ow_method": "mine", "__OW_NAMESPACE": "mine"}', JSON),
    ("OPTIONS", "", None, {"Access-Control-Request-Headers": "x-a, x-b"}),
    ("GET", "?case=failed", None, {"Accept": "text/html"}),
    ("GET", "", None, {"Service-Worker": "script"}),
]
UNEQUAL_HEADERS = {"date", "x-request-id", "x-openwhisk-activation-id"}
UNEQUAL_PARAMS = {"__OW_ACTIVATION_ID", "__OW_DEADLINE", "__OW_API_HOST"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_responses_are_those_of_the_platform(
    tmp_path: Path, sites: Sites, subtests: pytest.Subtests, language: str
) -> None:
    name = sites.create(f"like-{language}", language, RESULTS[language])
    folder = folder_of(tmp_path, language, RESULTS[language], name)
    requests: list[Request] = [("GET", f"?case={case}", None, {}) for case in CASES if case != "echo"] + REQUESTS

    with dev(folder, MOORAGE_ORG=sites.org) as server:
        for path, host in addresses(sites, name):
            for method, rest, body, headers in requests:
                with subtests.test(path=path, request=f"{method} {rest} {body!r}"):
                    here, there = (
                        send(port, method, path + rest, body, {"Host": f"{host}:{port}", **headers})
                        for port in (server.port, sites.running.ports["edge"])
                    )
                    assert comparable(here) == comparable(there)


@pytest.mark.parametrize("language", LANGUAGES)
def test_raw_requests_and_own_preflights_are_those_of_the_platform(
    tmp_path: Path, sites: Sites, subtests: pytest.Subtests, language: str
) -> None:
    name = sites.create(f"raw-{language}", language, RESULTS[language], rawHttp="true", handleOptions="true")
    folder = folder_of(tmp_path, language, RESULTS[language], name)
    path, host = addresses(sites, name)[0]

    with dev(folder, "--raw-http", "--handle-options", MOORAGE_ORG=sites.org) as server:
        for method, rest, body, headers in REQUESTS:
            with subtests.test(request=f"{method} {rest} {body!r}"):
                here, there = (
                    send(port, method, path + rest, body, {"Host": f"{host}:{port}", **headers})
                    for port in (server.port, sites.running.ports["edge"])
                )
                assert comparable(here) == comparable(there)


def test_every_other_path_of_the_server_is_below_the_function(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "python", RESULTS["python"])

    def seen(server: Dev, path: str) -> tuple[str, str]:
        params = server.send("GET", path).json
        return params["__ow_path"], params["__ow_query"]

    with dev(folder) as server:
        assert seen(server, "/") == seen(server, "/default/hello") == ("", "")
        assert seen(server, "/?a=1") == seen(server, "/default/hello?a=1") == ("", "a=1")
        assert seen(server, "/users/5?a=1") == ("/users/5", "a=1")
        assert seen(server, "/default/hello/x") == ("/x", "")
        assert seen(server, "/default/hellos") == ("/default/hellos", "")
        assert server.send("GET", "/api/v1/web/org_1/default/other").status == 404


def addresses(sites: Sites, name: str) -> list[tuple[str, str]]:
    """Return path and host of the function's two addresses."""
    return [
        (f"/default/{name}", f"org-{sites.org}.localhost"),
        (f"/api/v1/web/org_{sites.org}/default/{name}", "localhost"),
    ]


def comparable(answer: Answer) -> tuple[int, list[tuple[str, str]], Any]:
    """Return an answer without ids and times, which are never equal."""
    try:
        body = json.loads(answer.body)
    except ValueError:
        body = re.sub(rb"[0-9a-f]{32}", b"id", answer.body)
    is_echo = isinstance(body, dict) and "__ow_headers" in body
    if is_echo:
        body = {key: value for key, value in body.items() if key not in UNEQUAL_PARAMS}
        body["__ow_headers"].pop("host")
    elif isinstance(body, dict) and "error" in body:
        body["error"].pop("traceId")
    unequal = UNEQUAL_HEADERS | ({"content-length"} if is_echo else set())
    return answer.status, [pair for pair in answer.headers if pair[0] not in unequal], body
