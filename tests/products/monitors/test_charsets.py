"""Decoding of response bodies in used and declared encodings."""

from __future__ import annotations

import codecs
import encodings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.products.monitors.probing.charsets import decode

META = '<!doctype html><html><head><meta charset="{}"><title>'


@pytest.mark.parametrize(
    ("text", "charset", "codec"),
    [
        ("grüße", "utf-8", "utf-8"),
        ("grüße", "UTF8", "utf-8"),
        ("“grüße”", "ISO-8859-1", "cp1252"),
        ("“grüße”", "us-ascii", "cp1252"),
        ("наличии", "windows-1251", "cp1251"),
        ("наличии", "KOI8-R", "koi8-r"),
        ("在庫あり", "Shift_JIS", "cp932"),
        ("在庫あり", "euc-jp", "euc_jp"),
        ("在庫あり", "iso-2022-jp", "iso2022_jp"),
        ("有货", "gb2312", "gb18030"),
        ("재고", "euc-kr", "cp949"),
        ("grüße", "utf-16le", "utf-16-le"),
        ("grüße", "utf-16be", "utf-16-be"),
    ],
)
@pytest.mark.parametrize(
    "header", ["text/html; charset={}", 'text/html;charset="{}"; x=y', "text/html; Charset = '{}'"]
)
def test_the_header_names_the_encoding(text: str, charset: str, codec: str, header: str) -> None:
    assert decode(text.encode(codec), header.format(charset)) == text


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_byte_order_mark_names_the_encoding_where_the_header_does_not(codec: str) -> None:
    body = "\ufeffgrüße".encode(codec)

    assert decode(body, "text/html").endswith("grüße")


@pytest.mark.parametrize(
    "meta",
    [
        '<meta charset="windows-1251">',
        "<META CHARSET=windows-1251 />",
        '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">',
    ],
)
def test_a_meta_element_near_the_beginning_names_the_encoding_where_nothing_else_does(meta: str) -> None:
    near, far = f"<html>{meta}наличии", f"<html>{' ' * 1024}{meta}наличии"

    assert "наличии" in decode(near.encode("cp1251"), "text/html")
    assert "наличии" not in decode(far.encode("cp1251"), "text/html")
    assert "наличии" in decode(near.encode(), "text/html; charset=utf-8")


def test_a_meta_element_that_can_be_read_is_not_in_two_bytes_a_letter() -> None:
    assert "grüße" in decode((META.format("utf-16") + "grüße").encode(), "text/html")


@pytest.mark.parametrize(
    "charset", ["x-no-such", "punycode", "idna", "zlib", "rot13", "unicode_escape", "undefined", "../../etc", "é"]
)
def test_an_encoding_that_is_not_of_the_web_is_read_as_utf_8(charset: str) -> None:
    assert decode("grüße".encode(), f"text/html; charset={charset}") == "grüße"


def test_names_that_servers_make_up_are_not_remembered() -> None:
    before = len(encodings._cache)

    for number in range(100):
        decode(b"x", f"text/html; charset=made-up-{number}")

    assert len(encodings._cache) - before < 10


@given(st.binary(max_size=300), st.text(max_size=40))
def test_whatever_comes_is_text(body: bytes, content_type: str) -> None:
    assert isinstance(decode(body, f"text/html; charset={content_type}"), str)
    assert isinstance(decode(codecs.BOM_UTF16_BE + body, content_type), str)
