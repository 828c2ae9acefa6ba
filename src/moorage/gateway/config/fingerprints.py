"""Recognise files that never change: their names contain a hash of the content.

Browsers may cache such a file for a year. The worse mistake is to mark a file whose content changes under the same name
(`report-chapter1.pdf`, `IMG_0001.jpg`, `style-20240101.css`, `UserList.js`). So the name must contain a hash, and not a
word, a number or a date; the test is less strict in the folders that build tools write to.
"""

from __future__ import annotations

import re

# Only build tools write to these folders: Next.js, SvelteKit, Astro.
_OWN_FOLDERS = ("_next/static/", "_app/immutable/", "_astro/")
# Build tools and authors write to these: Vite, Nuxt, Create React App.
_SHARED_FOLDERS = ("assets/", "_nuxt/", "static/", "build/")

_ENDING = r"(?:\.[A-Za-z0-9]{1,12}){1,2}$"
# Preceded by a separator: `main.3f2a9bc1.chunk.css` (webpack, Parcel). As the whole name it must have 16 digits.
_HEX = re.compile(rf"(?:[-._]|^(?=[0-9a-f]{{16}}))([0-9a-f]{{8,64}}){_ENDING}")
# Vite and Rollup write eight characters of base64url, esbuild and Angular of base32.
_EIGHT = re.compile(rf"[-.]([A-Za-z0-9_-]{{8}}){_ENDING}")
_EIGHT_ALONE = re.compile(rf"^([A-Za-z0-9_-]{{8}}){_ENDING}")
_WORD = re.compile("[A-Z]?[a-z]+[0-9]*")
_BASE32 = re.compile("(?=[A-Z]*[2-7])[A-Z2-7]+")
# A capital inside, or a digit before another character: not a word, and not a word with a number.
_NO_WORD = re.compile("[A-Za-z0-9_-]+[A-Z]|[A-Za-z0-9_-]*[0-9][A-Za-z_-]")
_PAGES = (".html", ".htm")


def is_fingerprinted(path: str) -> bool:
    """Return whether the name of a file, by its path in a release, contains a hash."""
    if path.lower().endswith(_PAGES):
        return False
    if path.startswith(_OWN_FOLDERS):
        return True
    name = path.rpartition("/")[2]
    if (match := _HEX.search(name)) is not None and not match[1].isdigit():
        return True
    match = _EIGHT.search(name)
    if match is not None and _is_random(match[1]):
        return True
    if not path.startswith(_SHARED_FOLDERS):
        return False
    match = match or _EIGHT_ALONE.search(name)
    return match is not None and _NO_WORD.match(match[1]) is not None


def _is_random(text: str) -> bool:
    has_all = any(char.isdigit() for char in text) and text != text.lower() and text != text.upper()
    return (has_all and _WORD.fullmatch(text) is None) or _BASE32.fullmatch(text) is not None
