"""Style sheets of rendered pages, and the policy that allows them by hash.

`base.css` has the colours and type sizes of the console. The fonts are those of the system: a page loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from moorage.core.http.answer import Answer


@cache
def sheet(package: str, name: str) -> str:
    """Return `base.css` followed by a style sheet of a package."""
    base = (files("moorage.core.http.pages") / "base.css").read_text()
    return base + (files(package) / name).read_text()


def answer(text: str, style: str, script: str = "") -> Answer:
    """Return a page whose policy allows its style, its script, and with a script requests to this server."""
    scripts = f"script-src '{_hash(script)}'; connect-src 'self'; " if script else ""
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; {scripts}"
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", policy.encode())]
    return Answer(200, text.encode(), headers)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
