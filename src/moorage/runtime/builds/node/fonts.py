"""Build Next.js apps without a connection to Google Fonts.

`next/font/google` downloads style sheets and fonts during the build, and fails without them. Next.js has a variable for
its own tests that names a module with the responses; there it gets style sheets without font files, so that the pages
have the fallback fonts of the browser.
"""

from __future__ import annotations

import json
import re
import shlex
from urllib.parse import parse_qs, urlsplit

from moorage.runtime.builds.environment import Layout, Retry

MAX_FONTS = 50
FILE = "google-fonts.js"
VARIABLE = "NEXT_FONT_GOOGLE_MOCKED_RESPONSES"
NOTE = (
    "the style sheets of Google Fonts cannot be downloaded from here: the app is built with the fallback fonts of the "
    "browser; use next/font/local with files of the repository to have your own"
)
_URL = re.compile(r"https://fonts\.googleapis\.com/css2\?[^\s\"'`\]<>]{1,500}")
_FAILED = re.compile(r"fonts\.googleapis\.com|from Google Fonts")


def retry(build: str, layout: Layout) -> Retry:
    """Return the build without fonts, for a build that failed because of them."""
    command = f"export {VARIABLE}={shlex.quote(f'{layout.bin}/{FILE}')}; {build}"
    return Retry(_FAILED, NOTE, "the build command without Google Fonts", ["/bin/sh", "-c", command], responses)


def responses(output: str) -> dict[str, str]:
    """Return the module with the responses, by its name; webpack asks it for any URL, Turbopack reads all its keys."""
    urls = [url.rstrip(".,;)") for url in dict.fromkeys(_URL.findall(output))][:MAX_FONTS]
    sheets = json.dumps({url: _style_sheet(url) for url in urls})
    other = json.dumps(_style_sheet(""))
    is_url = "typeof name === 'string' && name.startsWith('https://')"
    get = f"(sheets, name) => sheets[name] ?? ({is_url} ? {other} : undefined)"
    return {FILE: f"module.exports = new Proxy({sheets}, {{ get: {get} }});\n"}


def _style_sheet(url: str) -> str:
    family = parse_qs(urlsplit(url).query).get("family", ["Fallback"])[0].partition(":")[0]
    name = re.sub(r"[^\w -]", "", family)
    return f"@font-face {{ font-family: '{name}'; font-style: normal; font-display: swap; src: local('{name}'); }}\n"
