"""Minimum and maximum values of a monitor's fields, and rejected combinations."""

from __future__ import annotations

from typing import Any

import pytest
from tests.products.monitors.support import URL, Team, fields_of

pytestmark = pytest.mark.anyio

BASE = "http://a.example/"
LONGEST_URL = BASE + "x" * (2048 - len(BASE))


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("name", ["x", "x" * 120, "\u00fc" * 120], ["", "x" * 121, 5, "x\ny"]),
        ("interval", [30, 86400], [29, 86401, 60.5, "60", True]),
        ("timeout", [1000, 60000], [999, 60001, "1000"]),
        ("retries", [0, 10], [-1, 11, 1.5]),
        ("httpMethod", ["GET", "HEAD", "POST"], ["PUT", "get", ""]),
        ("keyword", ["x", "x" * 500, ""], ["x" * 501, 1]),
        ("httpBody", ["x", "x" * 65536, ""], ["x" * 65537, {}]),
        ("expireCertNotify", [True, False], ["true", 1]),
        ("ignoreTlsError", [True, False], [0]),
        ("public", [True, False], ["no"]),
        ("statusCodes", [[], ["100", "599"], ["100-599"], ["2XX"], ["200"] * 100], [["200"] * 101, "200"]),
        ("headers", [[], [{"name": "a", "value": ""}]], [{}, "x"]),
    ],
)
async def test_both_edges_of_each_bound_hold_when_one_is_made_and_changed(
    team: Team, field: str, good: list[Any], bad: list[Any]
) -> None:
    there = (await team.create("There")).data["id"]

    taken = [(await team.create(**{field: value})).status for value in good]
    taken += [(await team.patch(there, **{field: value})).status for value in good]
    refused = [fields_of(await team.create(**{field: value})) for value in bad]
    refused += [fields_of(await team.patch(there, **{field: value})) for value in bad]

    assert set(taken) == {200}
    assert all(set(fields) == {field} for fields in refused)


@pytest.mark.parametrize("field", ["name", "url"])
async def test_a_name_and_a_url_are_required(team: Team, field: str) -> None:
    body = {"name": "Shop", "url": URL}
    del body[field]

    assert fields_of(await team.post("", json=body)) == {field: "is required"}


async def test_urls_are_http_and_name_a_host(team: Team) -> None:
    there = (await team.create("There")).data["id"]
    good = [
        "http://a.example", "HTTPS://A.example/x?y=z#top", "http://[::1]:8080/", "http://[FE80::1]/",
        "http://[::ffff:1.2.3.4]/", "http://10.0.0.1", LONGEST_URL,
    ]  # fmt: skip
    bad = [
        "", "a.example", "//a.example", "ftp://a.example", "javascript:alert(1)", "file:///etc/passwd", "http://",
        "http:///x", "http://a.example:99999/", "http://a b/", "http://a.example/\n", "http://a.example/\t",
        "http://[::1", "http://a<b>.example/", "http://.", LONGEST_URL + "x", " http://a.example",
        "http://[1:2]/", "http://[1:2.3.4.5.6:7]/", "http://[fe80::1%25eth0]/", "http://[]@", "http://[]@a.example",
    ]  # fmt: skip

    taken = [(await team.create(url=url)).status for url in good]
    refused = [fields_of(await team.create(url=url)) for url in bad]
    refused += [fields_of(await team.patch(there, url=url)) for url in bad]

    assert set(taken) == {200}
    assert all(set(fields) == {"url"} for fields in refused)


async def test_codes_outside_of_http_and_ranges_backwards_are_refused_one_by_one(team: Team) -> None:
    bad = ["99", "600", "299-200", "6xx", "0xx", "200-", "", "ok", "200-299-300", "2x", " 200", "\u0662\u0660\u0660"]

    fields = fields_of(await team.create(statusCodes=["200", *bad]))

    assert set(fields) == {"statusCodes", *(f"statusCodes[{index}]" for index in range(1, len(bad) + 1))}
    assert fields["statusCodes"] == fields["statusCodes[1]"]
    number = fields_of(await team.create(statusCodes=[200]))
    assert number == dict.fromkeys(("statusCodes", "statusCodes[0]"), "should be a string")


async def test_no_codes_mean_the_usual_ones(team: Team) -> None:
    made = (await team.create(statusCodes=[])).data
    other = (await team.create(statusCodes=["404"])).data

    changed = (await team.patch(other["id"], statusCodes=[])).data

    assert made["statusCodes"] == changed["statusCodes"] == ["200-299"]


async def test_headers_that_no_request_can_carry_are_refused(team: Team) -> None:
    framing = ["Connection", "content-length", "Expect", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "upgrade"]
    names = ["", "a b", "a:b", "a\r\nb", "\u00e4", *framing]
    values = ["a\r\nX: y", "a\x00b".replace("\x00", "\x7f"), "x" * 8193]

    by_name = fields_of(await team.create(headers=[{"name": name, "value": ""} for name in names]))
    by_value = fields_of(
        await team.create(headers=[{"name": f"A{index}", "value": value} for index, value in enumerate(values)])
    )
    missing = fields_of(await team.create(headers=[{"name": "A"}, {"value": "x"}, "text"]))

    assert set(by_name) == {f"headers[{index}].name" for index in range(len(names))}
    assert set(by_value) == {f"headers[{index}].value" for index in range(len(values))}
    assert set(missing) == {"headers[0].value", "headers[1].name", "headers[2]"}


async def test_up_to_a_hundred_headers_are_taken_each_name_once(team: Team) -> None:
    most = [{"name": f"X-{index}", "value": "\u00fc\t" * 10} for index in range(100)]
    longest = [{"name": "x" * 256, "value": "y" * 8192}]

    assert (await team.create(headers=most)).data["headers"] == most
    assert (await team.create(headers=longest)).data["headers"] == longest
    assert set(fields_of(await team.create(headers=[*most, {"name": "Y", "value": ""}]))) == {"headers"}
    assert set(fields_of(await team.create(headers=[most[0], {"name": "x-0", "value": ""}]))) == {"headers[1].name"}


async def test_a_keyword_is_not_looked_for_where_there_is_no_body(team: Team) -> None:
    head = (await team.create(httpMethod="HEAD")).data["id"]
    worded = (await team.create(keyword="well")).data["id"]

    assert set(fields_of(await team.create(httpMethod="HEAD", keyword="well"))) == {"keyword"}
    assert set(fields_of(await team.patch(head, keyword="well"))) == {"keyword"}
    assert set(fields_of(await team.patch(worded, httpMethod="HEAD"))) == {"httpMethod"}
    assert set(fields_of(await team.patch(worded, httpMethod="HEAD", keyword="other"))) == {"keyword"}
    assert (await team.patch(worded, httpMethod="HEAD", keyword=None)).data["keyword"] is None
    assert (await team.create(httpMethod="HEAD", keyword="")).data["keyword"] is None


@pytest.mark.parametrize("bad", [0, -1, 1.5, "1"])
async def test_a_project_is_named_by_a_positive_number(team: Team, bad: Any) -> None:
    assert set(fields_of(await team.create(projectId=bad))) == {"projectId"}
