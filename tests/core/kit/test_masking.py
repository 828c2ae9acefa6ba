"""Secrets in the output of programs: masked in every encoding and at every chunk boundary."""

from __future__ import annotations

import base64
import html
import json
import random
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from moorage.core.kit.masking import Masker

SECRET = 'p"ss/w0rd +x'


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        "p%22ss%2Fw0rd%20%2Bx",
        'p\\"ss/w0rd +x',
        base64.b64encode(SECRET.encode()).decode(),
        f"before{SECRET}after",
        quote(SECRET),
        quote_plus(SECRET),
        quote_plus(SECRET).replace("%2F", "%2f").replace("%2B", "%2b"),
        "p%22ss/w0rd%20+x",  # encodeURI of JavaScript
        json.dumps(SECRET),
        html.escape(SECRET),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
    ],
)
def test_text_and_bytes_are_masked_alike_however_a_secret_is_written(text: str) -> None:
    mask = Masker([SECRET])

    masked = mask(f"value: {text}")

    assert "w0rd" not in masked
    assert masked.strip('"') != f"value: {text}".strip('"')
    assert "****" in masked
    assert mask.lines(f"value: {text}".encode()) == masked.encode()


@pytest.mark.boundary("tenant-to-tenant", "A secret in base64 is masked in logs at every offset of a longer text.")
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("user", ["", "a", "ab", "abc", "admin"])
@pytest.mark.parametrize("after", ["", ":", "\n", "\xff~~"])
def test_base64_of_a_longer_text_is_masked_at_every_offset(
    encode: Callable[[bytes], bytes], user: str, after: str
) -> None:
    secret = "~?>s3cr\xe9t-~?~?"
    encoded = encode(f"{user}:{secret}{after}".encode()).decode()

    masked = Masker([secret])(f"Authorization: Basic {encoded}")

    assert "****" in masked
    hidden = len(encoded) - len(masked.removeprefix("Authorization: Basic ").replace("****", ""))
    assert hidden >= len(secret.encode()) * 8 // 6 - 2


def test_random_text_is_not_masked_by_chance() -> None:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    text = "".join(random.Random(7).choices(letters, k=200_000))

    assert Masker(["hunter2", "p4ssw0rd", "abcdef"])(text) == text


def test_lines_stay_as_many_as_they_were_when_a_secret_of_several_lines_is_masked() -> None:
    key = "-----BEGIN KEY-----\nabcdef\nghijkl\n-----END KEY-----"

    masked = Masker([key]).lines(f"{key}\nx abcdef y\n".encode())

    assert masked == b"****\n****\n****\n****\nx **** y\n"
    assert Masker([key])("x abcdef y") == "x **** y"
    assert Masker([key])("ghijkl") == "****"


def test_a_secret_inside_another_does_not_uncover_it() -> None:
    mask = Masker(["abc", "abcdef"])

    assert mask("abcdef") == "****"
    assert mask.lines(b"abcdef abc") == b"**** ****"


def test_a_value_too_short_to_be_a_secret_is_left_alone() -> None:
    mask = Masker(["", "1", "no"])

    assert mask("10 of no importance") == "10 of no importance"
    assert mask.lines(b"10 of no importance") == b"10 of no importance"


@pytest.mark.parametrize(
    ("data", "safe"),
    [
        (b"nothing of it", b"nothing of it"),
        (b"it is hun", b"it is "),
        (b"it is hunter", b"it is "),
        (b"it is hunter2", b"it is hunter2"),
        (b"hunter2 and hu", b"hunter2 and "),
        (b"h", b""),
        (b"", b""),
    ],
)
def test_the_beginning_of_a_secret_at_the_end_is_not_safe_yet(data: bytes, safe: bytes) -> None:
    mask = Masker(["hunter2"])

    assert data[: mask.safe_end(data)] == safe


def test_what_begins_within_another_secret_does_not_divide_it() -> None:
    mask = Masker(["xxabab", "abzzz"])

    assert mask.safe_end(b"- xxabab") == 2


def test_a_secret_that_may_become_a_longer_one_is_not_safe_yet() -> None:
    mask = Masker(["abc", "abcdef"])

    assert mask.safe_end(b"- abc") == 2
