"""Params from requests, and HTTP headers from replies."""

from __future__ import annotations

import base64
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.runtime.edge.connections import answers, web
from moorage.runtime.edge.connections.answers import Request
from moorage.runtime.edge.connections.origins import OwnOrigin
from moorage.runtime.edge.connections.protocol import Refused

BASE = b"/api/v1/web/org_12/default/hello"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
OWN = OwnOrigin("org-12.localhost")


def params(
    body: bytes = b"", kind: str | None = None, *, method: bytes = b"POST", target: bytes = BASE, raw: bool = False
) -> dict[str, Any]:
    headers = [] if kind is None else [(b"content-type", kind.encode())]
    found = web.TargetCache().find(target)
    assert found is not None
    text = web.params_of(
        Request(method, target, headers, body), found, web.headers_json([*headers, (b"x-a", b"b")]), raw=raw
    )
    made: dict[str, Any] = json.loads(text)
    return made


def own(made: dict[str, Any]) -> dict[str, Any]:
    """Return the params from the request's body and query."""
    given_always = {"__ow_method", "__ow_headers", "__ow_path", "__ow_query"}
    return {name: value for name, value in made.items() if name not in given_always}


# Addresses.


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (BASE, ("12", "hello", b"", "")),
        (BASE + b"/", ("12", "hello", b"/", "")),
        (BASE + b"/a/b?x=1", ("12", "hello", b"/a/b", '"x":"1"')),
        (BASE + b".http/a", ("12", "hello", b"/a", "")),
        (BASE + b"?", ("12", "hello", b"", "")),
        (BASE + b"?a=1&a=2&b", ("12", "hello", b"", '"a":"2","b":""')),
    ],
)
def test_an_address_names_a_function_its_path_and_its_query(target: bytes, found: tuple[str, str, bytes, str]) -> None:
    parsed = web.TargetCache().find(target)

    assert parsed is not None
    assert parsed.query is not None
    assert (parsed.org, parsed.name, parsed.rest, parsed.query.decode()) == found


@pytest.mark.parametrize(
    "target",
    [
        *(b"/", b"/api/v1/web/org_12/default/", b"/api/v1/web/org_x/default/hello", b"/api/v1/web/org_12/other/hello"),
        *(BASE.upper(), BASE + b"!", BASE + b"#x", b"/x" + BASE, BASE + b"a" * 64, b"*", b"http://a" + BASE),
        b"/api/v1/web/org_12345678901234567890/default/hello",
    ],
)
def test_any_other_address_is_nothing(target: bytes) -> None:
    assert web.TargetCache().find(target) is None


def test_what_is_remembered_of_addresses_is_bounded() -> None:
    targets = web.TargetCache(max_entries=3)

    found = [targets.find(BASE + b"/%d" % number) for number in range(10)]

    assert all(found)
    assert len(targets._parsed) <= 3


# Params.


def test_every_call_is_told_method_headers_path_and_query() -> None:
    made = params(method=b"GET", target=BASE + b"/a%20b?x=1&y=%C3%A9")

    assert made == {
        "x": "1",
        "y": "é",
        "__ow_method": "get",
        "__ow_headers": {"x-a": "b"},
        "__ow_path": "/a%20b",
        "__ow_query": "x=1&y=%C3%A9",
    }


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b'{"a": [1, {"b": null}]}', JSON, {"a": [1, {"b": None}]}),
        (b' {"a": 1} ', f"{JSON}; charset=utf-8", {"a": 1}),
        (b'{"a": 1}', "application/vnd.api+json", {"a": 1}),
        (b'{"a": 1}', "APPLICATION/JSON", {"a": 1}),
        (b"{}", JSON, {}),
        (b"[1, 2]", JSON, {"__ow_body": [1, 2]}),
        (b'"text"', JSON, {"__ow_body": "text"}),
        (b"null", JSON, {"__ow_body": None}),
        (b"a=1&b=x+y&c=%C3%A9&d", FORM, {"a": "1", "b": "x y", "c": "é", "d": ""}),
        (b"a=1&a=2", FORM, {"a": "2"}),
        ("é".encode(), "text/plain", {"__ow_body": "é"}),
        (b"<a/>", "application/xml", {"__ow_body": "<a/>"}),
        (b"<a/>", "image/svg+xml", {"__ow_body": base64.b64encode(b"<a/>").decode(), "__ow_isBase64Encoded": True}),
        (b"\xff\xfe", "text/plain", {"__ow_body": "//4=", "__ow_isBase64Encoded": True}),
        (b"\x89PNG", "image/png", {"__ow_body": "iVBORw==", "__ow_isBase64Encoded": True}),
        (b"abc", "application/octet-stream", {"__ow_body": "YWJj", "__ow_isBase64Encoded": True}),
        (b'{"a": 1}', None, {"a": 1}),
        (b"{not json", None, {"__ow_body": "{not json"}),
        (b"plain", None, {"__ow_body": "plain"}),
        (b"\xff", None, {"__ow_body": "/w==", "__ow_isBase64Encoded": True}),
        (b"", JSON, {}),
    ],
)
def test_a_body_of_each_kind(body: bytes, kind: str | None, expected: dict[str, Any]) -> None:
    assert own(params(body, kind)) == expected


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b'{"a": 1}', JSON, {"__ow_body": "eyJhIjogMX0=", "__ow_isBase64Encoded": True}),
        (b"not json", JSON, {"__ow_body": "bm90IGpzb24=", "__ow_isBase64Encoded": True}),
        (b"text", "text/plain", {"__ow_body": "text"}),
        (b"a=1", FORM, {"__ow_body": "YT0x", "__ow_isBase64Encoded": True}),
        (b"", None, {"__ow_body": ""}),
    ],
)
def test_a_raw_function_gets_the_body_as_it_came_and_no_params(
    body: bytes, kind: str | None, expected: dict[str, Any]
) -> None:
    made = params(body, kind, target=BASE + b"?x=1", raw=True)

    assert own(made) == expected
    assert made["__ow_query"] == "x=1"


def test_the_body_counts_more_than_the_query_and_neither_can_forge_the_members_of_the_edge() -> None:
    forged = b'{"a": "body", "__ow_method": "evil", "__ow_headers": {}, "__ow_path": "evil", "__ow_query": "evil"}'

    made = params(forged, JSON, target=BASE + b"/p?a=query&b=query&__ow_method=evil")

    assert (made["a"], made["b"]) == ("body", "query")
    assert (made["__ow_method"], made["__ow_path"]) == ("post", "/p")
    assert made["__ow_headers"] == {"content-type": JSON, "x-a": "b"}
    assert made["__ow_query"] == "a=query&b=query&__ow_method=evil"


@pytest.mark.parametrize("space", [b"", b" " * 70_000])
@pytest.mark.parametrize("body", [b"{", b"{'a': 1}", b"\xff", b'{"a": 1} x', b"[" * 100_000, b'{"a": NaN}', b'"\xff"'])
def test_a_body_that_says_it_is_json_and_is_not_is_refused(body: bytes, space: bytes) -> None:
    with pytest.raises(Refused) as refused:
        params(space + body, JSON)

    assert refused.value.failure is answers.BAD_JSON


def test_a_form_with_too_many_fields_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        params(b"&".join([b"a=1"] * 10_001), FORM)

    assert refused.value.failure is answers.LONG_FORM


def test_a_query_with_too_many_fields_is_refused_unless_the_function_parses_it_itself() -> None:
    most, more = b"&".join([b"a=1"] * 1000), b"&".join([b"a=1"] * 1001)

    with pytest.raises(Refused) as refused:
        params(target=BASE + b"?" + more)

    assert refused.value.failure is answers.LONG_QUERY
    assert params(target=BASE + b"?" + more, raw=True)["__ow_query"] == more.decode()
    assert own(params(target=BASE + b"?" + most)) == {"a": "1"}


FORGED = b"a=1&__ow_body=evil&__ow_isBase64Encoded=true&__ow%5Fbody=evil"


@pytest.mark.parametrize(
    ("query", "body", "kind", "expected"),
    [
        (FORGED, b"", None, {"a": "1"}),
        (FORGED, b"text", "text/plain", {"a": "1", "__ow_body": "text"}),
        (FORGED, b"[1]", JSON, {"a": "1", "__ow_body": [1]}),
        (b"", FORGED, FORM, {"a": "1"}),
        (FORGED, b'{"b": 1.10, "__ow_body": {"c": [1]}, "__ow_isBase64Encoded": true}', JSON, {"a": "1", "b": 1.1}),
        (b"", rb'{"\u005f\u005fow_body": 1, "b": "\u00e9", "__ow_body": 2}', JSON, {"b": "é"}),
        (b"", b'{"__ow_body": null}', JSON, {}),
        (b"", b'{"b": {"__ow_body": 1}, "c": "__ow_body"}', JSON, {"b": {"__ow_body": 1}, "c": "__ow_body"}),
        (b"", b'{"__ow_body": "evil"}', None, {}),
    ],
)
def test_params_of_the_body_that_only_the_edge_sets_cannot_be_forged(
    query: bytes, body: bytes, kind: str | None, expected: dict[str, Any]
) -> None:
    assert own(params(body, kind, target=BASE + b"?" + query)) == expected


def test_numbers_beside_a_removed_member_keep_their_digits() -> None:
    made = web.params_of(
        Request(b"POST", BASE, [(b"content-type", JSON.encode())], b'{"n": 1.00000000000000000001, "__ow_body": 1}'),
        web.FunctionTarget("12", "hello", b"", b"", OWN),
        b"{}",
        raw=False,
    )

    assert b'"n":1.00000000000000000001,' in made


def test_a_large_json_body_with_a_member_that_only_the_edge_sets_is_refused() -> None:
    large = b'"x": "' + b"a" * 70_000 + b'"'

    with pytest.raises(Refused) as refused:
        params(b'{"__ow_body": 1, ' + large + b"}", JSON)

    assert refused.value.failure is answers.RESERVED
    assert own(params(b'{"b": {"__ow_body": 1}, ' + large + b"}", JSON))["b"] == {"__ow_body": 1}


@given(st.lists(st.sampled_from(["%", "4", "1", "=", "&", "+", "é", "a", "%41", "%C3", "%a9", "\xff", "%f0%9F", "\n"])))
def test_a_form_and_a_query_are_decoded_as_parse_qsl_does(pieces: list[str]) -> None:
    body = "".join(pieces).encode("latin-1" if "\xff" in pieces else "utf-8")
    expected = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))

    assert own(params(body, FORM)) == expected
    assert own(params(target=BASE + b"?" + body.replace(b"\n", b""))) == dict(
        parse_qsl(body.replace(b"\n", b"").decode("utf-8", "replace"), keep_blank_values=True)
    )


@pytest.mark.parametrize(
    "body",
    [
        b"%zz%41%",
        b"%%41",
        b"%25%34%31=%2541",
        b"=a&b=&&c",
        b"%e2%82&%e2%82=\xac",
        b"\xe2\x82%ac",
        b"%C3\xa9%A9",
        b"a=%+1",
    ],
)
def test_unusual_escapes_are_decoded_as_parse_qsl_does(body: bytes) -> None:
    assert own(params(body, FORM)) == dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def test_a_form_over_1_mb_is_not_decoded() -> None:
    largest, larger = b"a=" + b"%" * (2**20 - 2), b"a=" + b"%" * (2**20 - 1)

    assert own(params(largest, FORM)) == {"a": "%" * (2**20 - 2)}
    assert own(params(larger, FORM)) == {"__ow_body": base64.b64encode(larger).decode(), "__ow_isBase64Encoded": True}


def seconds_of(work: Callable[[], object]) -> float:
    """Return the least CPU time of three runs."""
    times = []
    for _ in range(3):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.parametrize("body", [b"%" * 2**18, b"%zz" * (2**18 // 3), "é%41".encode() * 250_000])
def test_no_form_takes_long(body: bytes) -> None:
    text = body.decode()

    assert seconds_of(lambda: params(body, FORM)) < seconds_of(lambda: parse_qsl(text, keep_blank_values=True)) / 2


def test_a_query_of_invalid_escapes_does_not_take_long() -> None:
    query = b"%" * 60_000
    text = query.decode()

    assert (
        seconds_of(lambda: web.TargetCache().find(BASE + b"?" + query))
        < seconds_of(lambda: parse_qsl(text, keep_blank_values=True)) / 2
    )


@pytest.mark.parametrize(
    "body",
    [
        *(b"[" + b",".join([b"{}"] * 30_000) + b"]", b'"' + b"a" * 70_000 + b'"', b" " * 70_000 + b"1 "),
        *(b'\n{"a": "' + "é".encode() * 40_000 + b'"}\n', b" " * 70_000 + b"{ }"),
    ],
)
def test_a_large_json_body_is_passed_on_as_it_came(body: bytes) -> None:
    value = json.loads(body)

    assert own(params(body, JSON)) == (value if isinstance(value, dict) else {"__ow_body": value})


def test_a_large_json_body_is_not_made_into_objects() -> None:
    body = b"[" + b",".join([b"[]"] * 500_000) + b"]"
    request, target = Request(b"POST", BASE, [(b"content-type", JSON.encode())], body), web.TargetCache().find(BASE)
    assert target is not None

    tracemalloc.start()
    try:
        web.params_of(request, target, b"{}", raw=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 8 * len(body)


@pytest.mark.parametrize("method", [b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS", b"PROPFIND"])
def test_the_method_is_told_in_lower_case(method: bytes) -> None:
    assert params(method=method)["__ow_method"] == method.decode().lower()


def test_a_header_that_comes_twice_is_joined() -> None:
    made = json.loads(web.headers_json([(b"a", b"1"), (b"b", b"\xe9"), (b"a", b"2")]))

    assert made == {"a": "1, 2", "b": "é"}


@given(st.binary(max_size=200), st.sampled_from([None, JSON, FORM, "text/plain", "image/png", "", ";", "é"]))
def test_whatever_is_sent_params_are_one_object_or_the_request_is_refused(body: bytes, kind: str | None) -> None:
    try:
        made = params(body, kind)
    except Refused:
        return
    assert made["__ow_method"] == "post"
    assert made["__ow_headers"]["x-a"] == "b"


@given(st.binary(max_size=100), st.booleans())
def test_a_raw_body_can_always_be_had_back(body: bytes, is_text: bool) -> None:
    made = params(body, "text/plain" if is_text else "application/octet-stream", raw=True)

    back = base64.b64decode(made["__ow_body"]) if made.get("__ow_isBase64Encoded") else made["__ow_body"].encode()
    assert back == body


# Replies.


def test_headers_of_a_function_become_lines_and_repeated_ones_stay() -> None:
    head = web.reply_head(json.dumps([["Set-Cookie", "a=1"], ["set-cookie", "b=2"], ["X-a", "é"]]).encode(), OWN)

    assert head.lines == b"Set-Cookie: a=1\r\nset-cookie: b=2\r\nX-a: \xe9\r\n"
    assert head.cors == answers.CORS


def test_a_value_that_latin_1_cannot_hold_is_sent_as_utf_8() -> None:
    lines = web.reply_head(json.dumps([["x-a", "日"]]).encode(), OWN).lines

    assert lines == "x-a: 日\r\n".encode()


def test_a_function_that_answers_for_itself_who_may_read_it_is_left_to_it() -> None:
    head = web.reply_head(b'[["Access-Control-Allow-Origin", "https://a.test"]]', OWN)

    assert head.lines == b"Access-Control-Allow-Origin: https://a.test\r\n"
    assert head.cors == b""


def test_a_cors_header_of_a_function_replaces_that_of_the_edge() -> None:
    head = web.reply_head(b'[["access-control-allow-headers", "X-Mine"]]', OWN)

    assert head.lines == b"access-control-allow-headers: X-Mine\r\n"
    assert b"access-control-allow-origin: *\r\n" in head.cors
    assert b"access-control-allow-headers" not in head.cors


@pytest.mark.parametrize(
    ("requested", "allowed"),
    [
        (b"authorization, x-mine", b"authorization, x-mine"),
        (b"<b>", b"Authorization, Origin, X-Requested-With, Content-Type, Accept, User-Agent"),
        (None, b"Authorization, Origin, X-Requested-With, Content-Type, Accept, User-Agent"),
    ],
)
def test_a_preflight_allows_the_headers_that_it_asks_for_and_has_each_header_once(
    requested: bytes | None, allowed: bytes
) -> None:
    asked = [] if requested is None else [(b"access-control-request-headers", requested)]

    answer = answers.preflight(Request(b"OPTIONS", BASE, asked, b""))

    head = answers.render(answer, request_id=b"1", date=b"", connection=b"", is_head=False)
    names = [line.partition(b":")[0] for line in head.split(b"\r\n")[1:] if line]
    assert b"access-control-allow-headers: " + allowed + b"\r\n" in head
    assert b"access-control-allow-origin: *\r\n" in head
    assert b"DELETE" in dict(answer.headers)[b"access-control-allow-methods"]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "name", ["Content-Length", "transfer-encoding", "Connection", "upgrade", "Date", "X-Request-Id", "trailer"]
)
def test_headers_of_the_edge_are_left_out(name: str) -> None:
    lines = web.reply_head(json.dumps([[name, "1"], ["x-a", "b"]]).encode(), OWN).lines

    assert lines == b"x-a: b\r\n"


@pytest.mark.parametrize(
    "head",
    [
        *(b'[["a b", "c"]]', b'[["", "c"]]', b'[["a:", "c"]]', b'[["a", "b\\r\\nc: d"]]', b'[["a\\n", "b"]]'),
        *(b'[["a", "\\u0000"]]', b'[["a"]]', b"{}", b"not json", b'[["a", 1]]', b'["a"]', b'[["\\u00e9", "b"]]'),
        b'[["' + b"a" * 257 + b'", "b"]]',
    ],
)
def test_headers_that_would_break_the_answer_are_refused(head: bytes) -> None:
    with pytest.raises(web.BadReply):
        web.reply_head(head, OWN)


@given(st.lists(st.tuples(st.text(max_size=10), st.text(max_size=20)), max_size=5))
def test_no_header_of_a_function_ever_adds_a_line_of_its_own(headers: list[tuple[str, str]]) -> None:
    try:
        lines = web.reply_head(json.dumps(headers).encode(), OWN).lines
    except web.BadReply:
        return
    assert lines.count(b"\r\n") == lines.count(b"\n") <= len(headers)
    assert lines.count(b"\r") == lines.count(b"\n")
