"""Web actions as they are written for OpenWhisk run unchanged; status, headers and bytes are compared."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import pytest
from tests.e2e.functions_support import Platform, new_name

pytestmark = pytest.mark.group("functions")

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PNG_TEXT = base64.b64encode(PNG).decode()
HTML = "text/html; charset=utf-8"
# What the gateway says itself; everything else has to be the action's.
OURS = {
    "access-control-allow-origin",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-expose-headers",
    "content-length",
    "date",
    "x-openwhisk-activation-id",
    "x-request-id",
}


@dataclass(frozen=True)
class Action:
    """A web action in both languages, a request to it, and the answer that OpenWhisk gives."""

    node: str
    python: str
    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    query: str = ""
    method: str = "GET"
    sent: bytes | None = None
    sent_as: str = "application/json"
    is_raw: bool = False


ACTIONS = {
    "a_query_becomes_a_greeting": Action(
        node="function main({name}) {\n  var msg = 'you did not tell me who you are.';\n"
        "  if (name) {\n    msg = `hello ${name}!`\n  }\n"
        "  return {body: `<html><body><h3>${msg}</h3></body></html>`, statusCode: 200}\n}\n",
        python="def main(args):\n    name = args.get('name', 'stranger')\n"
        "    return {'statusCode': 200, 'body': '<html><body><h3>hello ' + name + '!</h3></body></html>'}\n",
        query="?name=Ada%20L",
        headers=[("content-type", HTML)],
        body=b"<html><body><h3>hello Ada L!</h3></body></html>",
    ),
    "a_json_body_is_answered_with_json": Action(
        node="function main(params) {\n  return {\n    statusCode: 200,\n"
        "    headers: { 'Content-Type': 'application/json' },\n    body: { sum: params.a + params.b }\n  };\n}\n",
        python="def main(args):\n    return {'statusCode': 200, 'headers': {'Content-Type': 'application/json'},\n"
        "            'body': {'sum': args['a'] + args['b']}}\n",
        method="POST",
        sent=b'{"a": 2, "b": 3}',
        headers=[("content-type", "application/json")],
        body=b'{"sum":5}',
    ),
    "json_as_text_is_left_as_it_is": Action(
        node="function main() {\n  return { statusCode: 200, headers: { 'Content-Type': 'application/json' },\n"
        "    body: JSON.stringify({ a: 1 }, null, 2) };\n}\n",
        python="import json\ndef main(args):\n    return {'statusCode': 200,\n"
        "            'headers': {'Content-Type': 'application/json'}, 'body': json.dumps({'a': 1}, indent=2)}\n",
        headers=[("content-type", "application/json")],
        body=b'{\n  "a": 1\n}',
    ),
    "a_redirect": Action(
        node="function main() {\n  return {\n    headers: { location: 'http://openwhisk.org' },\n"
        "    statusCode: 302\n  }\n}\n",
        python="def main(args):\n    return {'headers': {'location': 'http://openwhisk.org'}, 'statusCode': 302}\n",
        status=302,
        headers=[("location", "http://openwhisk.org")],
    ),
    "a_cookie_and_a_page": Action(
        node="function main() {\n  return {\n    headers: {\n"
        "      'Set-Cookie': 'UserID=Jane; Max-Age=3600; Version=',\n"
        "      'Content-Type': 'text/html'\n    },\n    statusCode: 200,\n"
        "    body: '<html><body><h3>hello</h3></body></html>' }\n}\n",
        python="def main(args):\n    return {'headers': {'Set-Cookie': 'UserID=Jane; Max-Age=3600; Version=',\n"
        "            'Content-Type': 'text/html'}, 'statusCode': 200,\n"
        "            'body': '<html><body><h3>hello</h3></body></html>'}\n",
        headers=[("set-cookie", "UserID=Jane; Max-Age=3600; Version="), ("content-type", "text/html")],
        body=b"<html><body><h3>hello</h3></body></html>",
    ),
    "several_cookies": Action(
        node="function main() {\n  return { statusCode: 200, headers: { 'Set-Cookie': [\n"
        "    'UserID=Jane; Max-Age=3600; Version=', 'SessionID=asdfgh123456; Path = /' ],\n"
        "    'Content-Type': 'text/html' }, body: 'two' };\n}\n",
        python="def main(args):\n    return {'statusCode': 200, 'headers': {'Set-Cookie': [\n"
        "        'UserID=Jane; Max-Age=3600; Version=', 'SessionID=asdfgh123456; Path = /'],\n"
        "        'Content-Type': 'text/html'}, 'body': 'two'}\n",
        headers=[
            ("set-cookie", "UserID=Jane; Max-Age=3600; Version="),
            ("set-cookie", "SessionID=asdfgh123456; Path = /"),
            ("content-type", "text/html"),
        ],
        body=b"two",
    ),
    "a_picture": Action(
        node=f"function main() {{\n  let png = '{PNG_TEXT}';\n"
        "  return { statusCode: 200, headers: { 'Content-Type': 'image/png' }, body: png };\n}\n",
        python=f"def main(args):\n    png = '{PNG_TEXT}'\n"
        "    return {'statusCode': 200, 'headers': {'Content-Type': 'image/png'}, 'body': png}\n",
        headers=[("content-type", "image/png")],
        body=PNG,
    ),
    "bytes_of_a_type_that_is_not_binary": Action(
        node="exports.main = () => ({ statusCode: 200, headers: { 'content-type': 'text/plain' },\n"
        "  isBase64Encoded: true, body: Buffer.from([0, 255, 10]).toString('base64') });\n",
        python="import base64\ndef main(args):\n    return {'statusCode': 200, 'isBase64Encoded': True,\n"
        "            'headers': {'content-type': 'text/plain'},\n"
        "            'body': base64.b64encode(bytes([0, 255, 10])).decode()}\n",
        headers=[("content-type", "text/plain")],
        body=b"\x00\xff\n",
    ),
    "not_found": Action(
        node="function main() {\n  return { statusCode: 404, body: 'no such page' };\n}\n",
        python="def main(args):\n    return {'statusCode': 404, 'body': 'no such page'}\n",
        status=404,
        headers=[("content-type", HTML)],
        body=b"no such page",
    ),
    "an_error_that_is_a_response": Action(
        node="function main() {\n  return { error: { statusCode: 400, headers: { 'x-why': 'test' },\n"
        "    body: { message: 'name is missing' } } };\n}\n",
        python="def main(args):\n    return {'error': {'statusCode': 400, 'headers': {'x-why': 'test'},\n"
        "            'body': {'message': 'name is missing'}}}\n",
        status=400,
        headers=[("content-type", "application/json"), ("x-why", "test")],
        body=b'{"message":"name is missing"}',
    ),
    "a_status_as_text": Action(
        node="function main() {\n  return { statusCode: '418', headers: { 'Content-Type': 'text/plain' },"
        " body: 'short and stout' };\n}\n",
        python="def main(args):\n    return {'statusCode': '418', 'headers': {'Content-Type': 'text/plain'},\n"
        "            'body': 'short and stout'}\n",
        status=418,
        headers=[("content-type", "text/plain")],
        body=b"short and stout",
    ),
    "headers_of_other_types": Action(
        node="function main() {\n  return { statusCode: 200, headers: { 'X-Number': 12, 'X-Flag': true,\n"
        "    'Content-Type': 'text/plain' }, body: '' };\n}\n",
        python="def main(args):\n    return {'statusCode': 200, 'headers': {'X-Number': 12, 'X-Flag': True,\n"
        "            'Content-Type': 'text/plain'}, 'body': ''}\n",
        headers=[("x-number", "12"), ("x-flag", "true"), ("content-type", "text/plain")],
    ),
    "a_promise_and_a_list": Action(
        node="function main(params) {\n  return new Promise(function (resolve, reject) {\n"
        "    setTimeout(function () { resolve({ statusCode: 200, body: [1, 'zwei', null] }); }, 10);\n  });\n}\n"
        "exports.main = main;\n",
        python="async def main(args):\n    return {'statusCode': 200, 'body': [1, 'zwei', None]}\n",
        headers=[("content-type", "application/json")],
        body=b'[1,"zwei",null]',
    ),
    "the_raw_body": Action(
        node="function main(args) {\n  const text = Buffer.from(args.__ow_body, 'base64').toString();\n"
        "  return { statusCode: 200, headers: { 'Content-Type': 'text/plain' },"
        " body: `${args.__ow_method} ${args.__ow_query} ${text}` };\n}\n",
        python="import base64\ndef main(args):\n    text = base64.b64decode(args['__ow_body']).decode()\n"
        "    body = f\"{args['__ow_method']} {args['__ow_query']} {text}\"\n"
        "    return {'statusCode': 200, 'headers': {'Content-Type': 'text/plain'}, 'body': body}\n",
        is_raw=True,
        query="?a=1&b=2",
        method="PUT",
        sent=b'{"c":  3}',
        headers=[("content-type", "text/plain")],
        body=b'put a=1&b=2 {"c":  3}',
    ),
    "text_that_is_posted": Action(
        node="function main(args) {\n  return { statusCode: 201, headers: { 'Content-Type': 'text/plain' },"
        " body: args.__ow_body.toUpperCase() };\n}\n",
        python="def main(args):\n    return {'statusCode': 201, 'headers': {'Content-Type': 'text/plain'},\n"
        "            'body': args['__ow_body'].upper()}\n",
        method="POST",
        sent="grüße".encode(),
        sent_as="text/plain",
        status=201,
        headers=[("content-type", "text/plain")],
        body="GRÜSSE".encode(),
    ),
    "a_form_that_is_posted": Action(
        node="function main(args) {\n  return { statusCode: 200, body: `${args.first} ${args.last}` };\n}\n",
        python="def main(args):\n    return {'statusCode': 200, 'body': args['first'] + ' ' + args['last']}\n",
        method="POST",
        sent=b"first=Grace&last=Hopper",
        sent_as="application/x-www-form-urlencoded",
        headers=[("content-type", HTML)],
        body=b"Grace Hopper",
    ),
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_an_openwhisk_web_action_answers_as_it_does_there(platform: Platform, language: str, action: Action) -> None:
    code = action.python if language == "python" else action.node
    name = platform.create(new_name("whisk"), language, code, rawHttp=str(action.is_raw).lower())
    headers = {"Content-Type": action.sent_as} if action.sent is not None else {}

    answer = platform.fetch_at_own_host(name, action.query, method=action.method, body=action.sent, headers=headers)

    assert (answer.status, answer.body) == (action.status, action.body)
    assert sorted(each for each in answer.headers if each[0] not in OURS) == sorted(action.headers)
    assert answer.header("content-length") == str(len(action.body))


@pytest.mark.parametrize(
    ("files", "language"),
    [
        ({"index.js": "module.exports = () => ({ statusCode: 200, body: 'ok' });\n"}, "nodejs"),
        ({"index.js": "module.exports.main = async () => ({ statusCode: 200, body: 'ok' });\n"}, "nodejs"),
        ({"index.mjs": "export function main() { return { statusCode: 200, body: 'ok' }; }\n"}, "nodejs"),
        (
            {
                "package.json": '{"type": "module"}',
                "index.js": "import { word } from './word.js';\n"
                "export const main = () => ({ statusCode: 200, body: word });\n",
                "word.js": "export const word = 'ok';\n",
            },
            "nodejs",
        ),
        (
            {
                "index.js": "const words = require('words');\n"
                "exports.main = () => ({ statusCode: 200, body: words.word });\n",
                "node_modules/words/index.js": "exports.word = 'ok';\n",
            },
            "nodejs",
        ),
        ({"__main__.py": "def main(args):\n    return {'statusCode': 200, 'body': 'ok'}\n"}, "python"),
        (
            {
                "top/main.py": "import words\ndef main(args):\n    return {'statusCode': 200, 'body': words.word}\n",
                "top/words/__init__.py": "word = 'ok'\n",
            },
            "python",
        ),
        (
            {
                "main.py": "import words\ndef main(args):\n    return {'statusCode': 200, 'body': words.word}\n",
                "virtualenv/lib/python3.11/site-packages/words.py": "word = 'ok'\n",
            },
            "python",
        ),
        ({"main.py": "def main():\n    return {'statusCode': 200, 'body': 'ok'}\n"}, "python"),
    ],
)
def test_packages_of_every_usual_shape_run(platform: Platform, files: dict[str, str], language: str) -> None:
    name = platform.create(new_name("shape"), language, files)

    answer = platform.fetch(name)

    assert (answer.status, answer.body) == (200, b"ok")


def test_the_environment_and_the_params_carry_the_same_special_values(platform: Platform, language: str) -> None:
    names = ["__OW_API_HOST", "__OW_NAMESPACE", "__OW_ACTION_NAME", "__OW_ACTIVATION_ID", "__OW_DEADLINE", "OWN"]
    code = {
        "python": f"import os\ndef main(args):\n    return [[args[n], os.environ[n]] for n in {names}]\n",
        "nodejs": f"exports.main = (args) => {names}.map((n) => [args[n], process.env[n]]);\n",
    }
    name = platform.create(new_name("special"), language, code[language], env='[{"name": "OWN", "value": "mine"}]')

    first, second = platform.invoke(name), platform.invoke(name)

    for outcome in (first, second):
        assert all(given == variable for given, variable in outcome["result"])
    host, namespace, action, activation, deadline, own = (given for given, _ in second["result"])
    assert host == f"http://localhost:{platform.running.ports['edge']}"
    assert (namespace, action) == (f"org-{platform.org}", f"/org-{platform.org}/default/{name}")
    assert (activation, own) == (second["activationId"], "mine")
    assert int(deadline) >= int(first["result"][4][0])


@pytest.mark.parametrize("result", [None, True, 0, -1.5, "text", [], [1, [2]], {}, {"a": {"b": "ü"}}, {"error": "x"}])
def test_invoke_takes_any_json_and_returns_any_json(platform: Platform, echoes: dict[str, str], result: object) -> None:
    for name in echoes.values():
        outcome = platform.invoke(name, {"value": result})

        assert outcome["status"] == "success"
        assert outcome["result"]["body"]["value"] == result
        assert outcome["result"]["body"]["__ow_method"] == "post"
