"""Which files never change: those whose names carry a hash of what is in them, as build tools write them.

Browsers keep such a file for a year. The other mistake is the worse one: a file that is kept for a year although its
name stays (`report-chapter1.pdf`, `IMG_0001.jpg`, `style-20240101.css`, `UserList.js`). So a name has to look like a
hash and not like a word, a number or a date; only in the folders that build tools fill is that taken less strictly.
"""

from __future__ import annotations

import re

# All that is in these was named by a tool: Next.js, SvelteKit, Astro.
_OWN_FOLDERS = ("_next/static/", "_app/immutable/", "_astro/")
# Tools put their files here among those of people: Vite, Nuxt, Create React App.
_SHARED_FOLDERS = ("assets/", "_nuxt/", "static/", "build/")

_ENDING = r"(?:\.[A-Za-z0-9]{1,12}){1,2}$"
# Before it there is a separator: `main.3f2a9bc1.chunk.css` (webpack, Parcel). Alone it has to be long.
_HEX = re.compile(rf"(?:[-._]|^(?=[0-9a-f]{{16}}))([0-9a-f]{{8,64}}){_ENDING}")
# Vite and Rollup write eight characters of base64url, esbuild and Angular of base32.
_EIGHT = re.compile(rf"[-.]([A-Za-z0-9_-]{{8}}){_ENDING}")
_EIGHT_ALONE = re.compile(rf"^([A-Za-z0-9_-]{{8}}){_ENDING}")
_WORD = re.compile("[A-Z]?[a-z]+[0-9]*")
_BASE32 = re.compile("[A-Z2-7]*[2-7][A-Z2-7]*")
# A capital within, or a digit before something else: not a word, and not a word with a number.
_NO_WORD = re.compile("[A-Za-z0-9_-]+[A-Z]|[A-Za-z0-9_-]*[0-9][A-Za-z_-]")
_PAGES = (".html", ".htm")


def is_fingerprinted(path: str) -> bool:
    """Tell whether a file, by its path in a release, has a name that changes with what is in it."""
    if path.lower().endswith(_PAGES):
        return False
    if path.startswith(_OWN_FOLDERS):
        return True
    name = path.rpartition("/")[2]
    if (found := _HEX.search(name)) is not None and not found[1].isdigit():
        return True
    found = _EIGHT.search(name)
    if found is not None and _is_random(found[1]):
        return True
    if not path.startswith(_SHARED_FOLDERS):
        return False
    found = found or _EIGHT_ALONE.search(name)
    return found is not None and _NO_WORD.match(found[1]) is not None


def _is_random(text: str) -> bool:
    has_all = any(char.isdigit() for char in text) and text != text.lower() and text != text.upper()
    return (has_all and _WORD.fullmatch(text) is None) or _BASE32.fullmatch(text) is not None
