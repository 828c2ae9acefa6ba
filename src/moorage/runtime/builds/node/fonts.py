"""Build apps of Node.js without a connection to Google Fonts.

`next/font/google` downloads style sheets and fonts during the build, and fails without them. Next.js has a variable for
its own tests that names a module with the responses; there it gets style sheets without font files, so that the pages
have the fallback fonts of the browser. Angular copies the style sheets that index.html links into the page, unless
angular.json turns that off; browsers then load them. Other tools, such as UnoCSS, request style sheets by the functions
of Node.js, which a module that is loaded first answers.
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
ANY_NOTE = (
    "the style sheets of Google Fonts cannot be downloaded from here: the app is built with the fallback fonts of the "
    "browser; commit the fonts, or install them as packages such as @fontsource/inter, to have your own"
)
_URL = re.compile(r"https://fonts\.googleapis\.com/css2\?[^\s\"'`\]<>]{1,500}")
_FAILED = re.compile(r"fonts\.googleapis\.com|from Google Fonts")
ANGULAR_NOTE = (
    "the style sheets of Google Fonts cannot be downloaded from here: the pages are built with links to them; set "
    "`optimization.fonts` to false in angular.json to have that from the start"
)
_ANGULAR_FAILED = re.compile(r"Inlining of fonts failed")
_ANGULAR_SETTING = """
const fs = require("fs"), config = JSON.parse(fs.readFileSync("angular.json", "utf8"));
for (const project of Object.values(config.projects || {})) {
  const build = (project.architect || project.targets || {}).build || {};
  build.options = build.options || {};
  for (const each of [build.options, ...Object.values(build.configurations || {})]) {
    const old = each.optimization;
    if (old === false || (old === undefined && each !== build.options)) continue;
    each.optimization = { scripts: true, styles: true, ...(typeof old === "object" ? old : {}), fonts: false };
  }
}
fs.writeFileSync("angular.json", JSON.stringify(config));
"""


ANY_FILE = "google-fonts-anywhere.js"
_ERRORS = r"(?:fetch failed|no response|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|ETIMEDOUT|[Ff]etchError)"
_HOSTS = r"fonts\.(?:googleapis\.com|bunny\.net)"
_UNREACHED = re.compile(rf"{_ERRORS}[^\n]{{0,80}}{_HOSTS}|{_HOSTS}[^\n]{{0,400}}{_ERRORS}")
_ANSWERS = r"""
const https = require("https"), { PassThrough } = require("stream");
const is_font = (url) => /^https:\/\/fonts\.(googleapis\.com|bunny\.net)\//.test(url);
const decode = (text) => { try { return decodeURIComponent(text.replace(/\+/g, " ")); } catch { return ""; } };
const sheet = (url) => [...url.matchAll(/family=([^&:]+)/g)].flatMap((match) => decode(match[1]).split("|"))
  .map((family) => family.split(":")[0].replace(/[^\w -]/g, "")).map((name) =>
    `@font-face { font-family: '${name}'; font-style: normal; font-display: swap; src: local('${name}'); }\n`).join("");
const headers = { "content-type": "text/css; charset=utf-8" }, fetch = globalThis.fetch;
if (fetch) globalThis.fetch = async (input, ...more) => {
  const url = String(input?.url ?? input);
  return is_font(url) ? new Response(sheet(url), { headers }) : fetch(input, ...more);
};
for (const name of ["request", "get"]) {
  const original = https[name];
  https[name] = function (...all) {
    const [first] = all, is_url = typeof first === "string" || first instanceof URL;
    const url = is_url ? String(first) : `https://${first?.hostname ?? first?.host}${first?.path ?? "/"}`;
    if (!is_font(url)) return original.apply(this, all);
    const request = Object.assign(new PassThrough(), { setTimeout: () => request, setHeader() {}, abort() {} });
    request.once("response", all.find((each) => typeof each === "function") ?? (() => {}));
    setImmediate(() => {
      const response = Object.assign(new PassThrough(), { statusCode: 200, statusMessage: "OK", headers });
      request.emit("response", response);
      response.end(sheet(url));
    });
    return request;
  };
}
require("module").syncBuiltinESMExports();
"""


def any_retry(layout: Layout) -> Retry:
    """Return the build without fonts, for a build of any other tool that failed because of them."""
    prepare = f'export NODE_OPTIONS="$NODE_OPTIONS --require={layout.bin}/{ANY_FILE}"'
    what = "the build command without Google Fonts"
    return Retry(_UNREACHED, ANY_NOTE, what, files=lambda _: {ANY_FILE: _ANSWERS}, prepare=prepare)


def angular_retry() -> Retry:
    """Return the build with links to the fonts, for a build that failed because of them."""
    prepare = f"node -e {shlex.quote(_ANGULAR_SETTING)}"
    return Retry(_ANGULAR_FAILED, ANGULAR_NOTE, "the build command without inlined fonts", prepare=prepare)


def retry(layout: Layout) -> Retry:
    """Return the build without fonts, for a build that failed because of them."""
    prepare = f"export {VARIABLE}={shlex.quote(f'{layout.bin}/{FILE}')}"
    return Retry(_FAILED, NOTE, "the build command without Google Fonts", files=responses, prepare=prepare)


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
