"""Secrets in the output of programs: masked in every encoding and at every chunk boundary."""

from __future__ import annotations

import base64
import html
import json
import random
import re
import string
import time
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


def test_many_secrets_that_overlap_are_masked_from_the_left_and_the_longest_first() -> None:
    dice = random.Random(3)
    secrets = sorted({"".join(dice.choices("abc", k=dice.randrange(3, 9))) for _ in range(150)}, key=len, reverse=True)
    text = "".join(dice.choices("abc ", k=20_000))
    mask = Masker(secrets)

    expected = re.sub("|".join(secrets), "****", text)

    assert mask(text) == expected
    assert mask.lines(text.encode()) == expected.encode()


def test_the_beginning_of_one_of_many_secrets_is_not_safe_yet() -> None:
    dice = random.Random(4)
    secrets = ["".join(dice.choices("abc", k=dice.randrange(3, 9))) for _ in range(150)]
    mask = Masker(secrets)

    for _ in range(200):
        data = "".join(dice.choices("abc ", k=dice.randrange(30)))
        beginnings = [at for at in range(len(data)) if any(s.startswith(data[at:]) and s != data[at:] for s in secrets)]
        end = min(beginnings, default=len(data))
        # A secret that the end would divide is not safe either.
        whole = [match.span() for match in re.finditer("|".join(sorted(secrets, key=len, reverse=True)), data)]
        end = next((begin for begin, match_end in whole if begin < end < match_end), end)

        assert mask.safe_end(data.encode()) == end


LETTERS = string.ascii_letters + string.digits


@pytest.mark.parametrize("start", ["", "a" * 100], ids=["different beginnings", "one beginning"])
def test_hundreds_of_secrets_do_not_make_masking_slow(start: str) -> None:
    dice = random.Random(5)
    secrets = [start + "".join(dice.choices(LETTERS + '"&< é', k=128 - len(start))) for _ in range(500)]
    text = "\n".join(f"{start}{''.join(dice.choices(LETTERS + ' ', k=60))}" for _ in range(500))
    began = time.thread_time()

    mask = Masker(secrets)
    masked = mask(text + secrets[7])
    for line in text.encode().splitlines():
        assert mask.lines(line) == line

    assert masked == f"{text}****"
    assert time.thread_time() - began < 2  # 0.2 s; it was 10 s.
