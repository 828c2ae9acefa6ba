"""Tokens, ids and slugs."""

from __future__ import annotations

import re
import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.kit.ids import new_token, parse_id, parse_uuid, slugify, token_hash, token_preview


def test_a_token_is_its_prefix_and_forty_characters_that_end_in_a_checksum() -> None:
    token = new_token("psk_test_")

    assert re.fullmatch(r"psk_test_[0-9A-Za-z]{40}", token)
    digits = string.digits + string.ascii_uppercase + string.ascii_lowercase
    checksum = sum(digits.index(digit) * 62**at for at, digit in enumerate(reversed(token[-6:])))
    assert checksum == zlib.crc32(token[:-6].encode())
    assert token_preview(token) == f"psk_...{token[-4:]}"
    assert token not in token_hash(token)


def test_tokens_do_not_repeat() -> None:
    assert len({new_token("psk_test_") for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("9223372036854775807", 2**63 - 1), ("9223372036854775808", None), ("0", None), ("01", None)]
    + [(text, None) for text in ("-1", "+1", "1.0", "1e3", " 1", "abc", "¹", "١", "1" * 40)],
)
def test_an_id_is_a_whole_number_that_fits(text: str, expected: int | None) -> None:
    assert parse_id(text) == expected


def test_a_uuid_is_read_in_either_case_and_nothing_else_is_one() -> None:
    assert parse_uuid("3F2504E0-4F89-11D3-9A0C-0305E82C3301") == "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
    for text in ("", "3f2504e04f8911d39a0c0305e82c3301", "{3f2504e0-4f89-11d3-9a0c-0305e82c3301}", "x" * 36):
        assert parse_uuid(text) is None


@given(st.text())
def test_a_slug_is_always_a_label(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", slugify(name, "org"))
