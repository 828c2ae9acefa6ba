"""A browser for tests: opens the provider's page, follows redirects with cookies, and may misbehave.

BROWSER_USER logs in at the provider. BROWSER_CHANGES replaces parameters of the first address (JSON), and
BROWSER_VISITS is the address template of a request that another page makes first, with {redirect_uri}.
"""

from __future__ import annotations

import http.cookiejar
import json
import os
import sys
import urllib.error
import urllib.request
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit


def main() -> None:
    parts = urlsplit(sys.argv[1])
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    if visited := os.environ.get("BROWSER_VISITS"):
        visit(opener, visited.format(redirect_uri=query["redirect_uri"], state=query["state"]))
    changes = json.loads(os.environ.get("BROWSER_CHANGES") or "{}")
    query |= {"login_hint": os.environ["BROWSER_USER"], **changes}
    if os.environ.get("BROWSER_STAYS"):
        return
    visit(opener, urlunsplit(parts._replace(query=urlencode(query))))


def visit(opener: urllib.request.OpenerDirector, url: str) -> None:
    try:
        with opener.open(url, timeout=30) as response:
            status, text = response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    with open(os.environ["BROWSER_LOG"], "a") as file:
        file.write(f"{status} {text}\n")


if __name__ == "__main__":
    main()
