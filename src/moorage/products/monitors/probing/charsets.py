"""Decodes response bodies to text as a browser does.

The server chooses the name of the encoding, so only encodings of a fixed table are used: Python tries to import a
module for any name and caches each one, and some of its encodings take minutes for a megabyte.
"""

from __future__ import annotations

import codecs
import re

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_HEADER = re.compile(r"charset\s*=\s*[\"']?([^\s;\"',]+)", re.IGNORECASE)
_META = re.compile(rb"<meta\s[^>]{0,200}?charset\s*=\s*[\"']?([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_META_WITHIN = 1024

# Python's name and the labels used on the web, where ASCII and Latin-1 mean windows-1252, a superset of both.
_LABELS = {
    "utf-8": "utf-8 utf8 unicode-1-1-utf-8",
    "utf-16-le": "utf-16 utf-16le unicode ucs-2 iso-10646-ucs-2",
    "utf-16-be": "utf-16be",
    "cp1252": "windows-1252 cp1252 x-cp1252 ascii us-ascii iso-8859-1 iso8859-1 iso_8859-1 latin1 l1 cp819",
    "cp1250": "windows-1250 cp1250 x-cp1250",
    "cp1251": "windows-1251 cp1251 x-cp1251",
    "cp1253": "windows-1253 cp1253 x-cp1253",
    "cp1254": "windows-1254 cp1254 x-cp1254 iso-8859-9 iso8859-9 latin5",
    "cp1255": "windows-1255 cp1255 x-cp1255",
    "cp1256": "windows-1256 cp1256 x-cp1256",
    "cp1257": "windows-1257 cp1257 x-cp1257",
    "cp1258": "windows-1258 cp1258 x-cp1258",
    "cp866": "ibm866 cp866 866",
    "cp874": "windows-874 tis-620 iso-8859-11",
    "iso8859-2": "iso-8859-2 iso8859-2 latin2",
    "iso8859-3": "iso-8859-3 iso8859-3 latin3",
    "iso8859-4": "iso-8859-4 iso8859-4 latin4",
    "iso8859-5": "iso-8859-5 iso8859-5 cyrillic",
    "iso8859-6": "iso-8859-6 iso8859-6 arabic",
    "iso8859-7": "iso-8859-7 iso8859-7 greek",
    "iso8859-8": "iso-8859-8 iso8859-8 iso-8859-8-i hebrew",
    "iso8859-10": "iso-8859-10 iso8859-10 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13",
    "iso8859-14": "iso-8859-14 iso8859-14",
    "iso8859-15": "iso-8859-15 iso8859-15 latin9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "koi8-r koi8 koi8_r",
    "koi8-u": "koi8-u koi8-ru",
    "mac-roman": "macintosh mac x-mac-roman",
    "gb18030": "gb18030 gbk gb2312 x-gbk chinese",
    "big5hkscs": "big5 big5-hkscs x-x-big5",
    "euc_jp": "euc-jp x-euc-jp",
    "iso2022_jp": "iso-2022-jp",
    "cp932": "shift_jis shift-jis sjis x-sjis ms_kanji windows-31j",
    "cp949": "euc-kr korean ks_c_5601-1987 windows-949",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}


def decode(body: bytes, content_type: str) -> str:
    """Decode a body; invalid bytes are replaced, so decoding never fails.

    The encoding comes from the header, a byte order mark, a `<meta>` in the first 1024 bytes, or is UTF-8.
    """
    return body.decode(_codec_of(body, content_type), errors="replace")


def _codec_of(body: bytes, content_type: str) -> str:
    if match := _HEADER.search(content_type):
        return _CODECS.get(match[1].lower(), "utf-8")
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return codec
    if meta := _META.search(body, 0, _META_WITHIN):
        codec = _CODECS.get(meta[1].decode().lower(), "utf-8")
        # The label was readable as ASCII, so the body cannot be UTF-16.
        return "utf-8" if codec.startswith("utf-16") else codec
    return "utf-8"
