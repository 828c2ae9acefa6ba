"""Rows for repositories of functions.

Folders `packages/<package>/<function>` that a `project.yml` names are served as one app: each function has the path
`/<package>/<function>`, and `/` lists them. The arguments and the result are those of web actions of OpenWhisk. Single
functions have no server: the reason of the failure names the way to deploy them.
"""

from __future__ import annotations

import json
import re
import shlex

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table.node_starts import NODE_FILES, PRODUCTION
from moorage.runtime.builds.detection.table.row import Row, Sign, contains

MAX_FUNCTIONS = 50
_NODE = """
const { createServer } = require("node:http"), { resolve } = require("node:path"), Module = require("node:module");
const { readFileSync, statSync } = require("node:fs"), routes = %s, loaded = {};
async function load(place) {
  const path = require.resolve(resolve(place)), found = await import(path), main = found.main ?? found.default?.main;
  if (main || typeof found.default === "function") return main ?? found.default;
  const own = new Module(path); own.filename = path; own.paths = Module._nodeModulePaths(resolve(path, ".."));
  own._compile(readFileSync(path, "utf8") + "\\n;module.exports.main = main;", path); return own.exports.main;
}
async function answer(request, url, text) {
  const place = routes[url.pathname.replace(/\\/$/, "")];
  if (!place) return { statusCode: url.pathname === "/" ? 200 : 404, body: { functions: Object.keys(routes) } };
  let sent = {}; try { sent = JSON.parse(text || "{}"); } catch { sent = { __ow_body: text }; }
  const http = { method: request.method, path: "", headers: request.headers, queryString: url.search.slice(1) };
  const ow = { __ow_method: request.method.toLowerCase(), __ow_headers: request.headers, __ow_path: "" };
  const main = loaded[place] ??= await load(place);
  return await main({ ...Object.fromEntries(url.searchParams), ...sent, ...ow, http }, {}) ?? {};
}
createServer(async (request, response) => {
  let text = ""; for await (const part of request) text += part;
  try {
    const found = await answer(request, new URL(request.url, "http://localhost"), text);
    const is_text = typeof found.body === "string", body = found.body ?? ("statusCode" in found ? "" : found);
    const type = is_text ? "text/html; charset=utf-8" : "application/json";
    response.writeHead(found.statusCode ?? 200, { "content-type": type, ...found.headers });
    response.end(typeof body === "string" ? body : JSON.stringify(body));
  } catch (error) { console.error(error); response.writeHead(502); response.end("the function failed"); }
}).listen(process.env.PORT, "0.0.0.0");
"""
_PYTHON = """
import importlib.util, json, os, sys, traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit
routes, loaded = json.loads(%s), {}
def load(place):
    sys.path.insert(0, os.path.dirname(place))
    spec = importlib.util.spec_from_file_location("function_%%d" %% len(loaded), place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main
def answer(request, url, text):
    place = routes.get(url.path.rstrip("/"))
    if place is None:
        return {"statusCode": 200 if url.path == "/" else 404, "body": {"functions": list(routes)}}
    try:
        sent = json.loads(text or "{}")
    except ValueError:
        sent = {"__ow_body": text}
    headers = {name.lower(): value for name, value in request.headers.items()}
    args = {**dict(parse_qsl(url.query)), **(sent if isinstance(sent, dict) else {"__ow_body": text})}
    args |= {"__ow_method": request.command.lower(), "__ow_headers": headers, "__ow_path": ""}
    args["http"] = {"method": request.command, "path": "", "headers": headers, "queryString": url.query}
    if place not in loaded:
        loaded[place] = load(place)
    main = loaded[place]
    return main(*(args, None)[:main.__code__.co_argcount]) or {}
class Handler(BaseHTTPRequestHandler):
    def handle_any(self):
        text = self.rfile.read(int(self.headers.get("content-length") or 0)).decode(errors="replace")
        try:
            found = answer(self, urlsplit(self.path), text)
            body = found.get("body", "" if "statusCode" in found else found)
            is_text = isinstance(body, str)
            data = (body if is_text else json.dumps(body)).encode()
            headers = {"content-type": "text/html; charset=utf-8" if is_text else "application/json"}
            status, headers = found.get("statusCode", 200), {**headers, **(found.get("headers") or {})}
        except Exception:  # noqa: BLE001 - a function of a user may raise anything
            traceback.print_exc()
            status, headers, data = 502, {}, b"the function failed"
        self.send_response(int(status))
        for name, value in {**headers, "content-length": len(data)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = handle_any
ThreadingHTTPServer(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()
"""


def _found(folder: Folder, endings: tuple[str, ...]) -> dict[str, str]:
    """Return the functions in a language: route -> file, or folder of a package with a package.json."""
    functions: dict[str, str] = {}
    for package in folder.folders("packages"):
        name = package.removeprefix("packages/")
        for ending in endings:
            for file in folder.glob(f"{package}/*.{ending}"):
                functions.setdefault(f"/{name}/{file.rpartition('/')[2].removesuffix(f'.{ending}')}", file)
        for place in folder.folders(package):
            own = place.rpartition("/")[2]
            names = [f"{stem}.{ending}" for stem in (own, "index", "main", "__main__") for ending in endings]
            file = next((f"{place}/{each}" for each in names if folder.has(f"{place}/{each}")), "")
            is_package = "js" in endings and folder.has(f"{place}/package.json")
            if file or is_package:
                functions[f"/{name}/{own}"] = file or place
    return dict(sorted(functions.items())[:MAX_FUNCTIONS])


def _node(folder: Folder) -> dict[str, str]:
    return _found(folder, ("js", "mjs", "cjs"))


def _python(folder: Folder) -> dict[str, str]:
    return _found(folder, ("py",))


def _node_build(folder: Folder) -> str:
    """Install and build the functions that have a package.json."""
    places = {place for path in _node(folder).values() for place in (path, path.rpartition("/")[0])}
    owned = sorted(place for place in places if folder.has(f"{place}/package.json"))
    steps = (
        f"npm install --prefix {each} --include=dev --no-audit --no-fund && npm run build --if-present --prefix {each}"
        for each in map(shlex.quote, owned)
    )
    return " && ".join(steps)


def _node_start(folder: Folder) -> str:
    program = _NODE % json.dumps(_node(folder))
    return f"node -e {shlex.quote(' '.join(program.split(chr(10))))}"


def _python_start(folder: Folder) -> str:
    return f"python -c {shlex.quote((_PYTHON % repr(json.dumps(_python(folder)))).strip())}"


def _requirements(folder: Folder) -> str:
    places = {path.rpartition("/")[0] for path in _python(folder).values()}
    files = sorted(f"{place}/requirements.txt" for place in places if folder.has(f"{place}/requirements.txt"))
    return " ".join(f"-r {shlex.quote(file)}" for file in files)


def _single(folder: Folder) -> str | None:
    """Return a file whose only entry is a function `main`, which an action of OpenWhisk has."""
    if any(folder.scripts.get(name, "").strip() for name in PRODUCTION):
        return None
    main = (folder.package or {}).get("main")
    names = [*([main] if isinstance(main, str) else []), *NODE_FILES, *_PYTHON_MAINS, *folder.glob("*.js")]
    for name in dict.fromkeys(names):
        text = folder.find_text(name) or ""
        if (_ACTION_PY if name.endswith(".py") else _ACTION_JS).search(text) and not _RUNS.search(text):
            return name
    return None


def _hosted(folder: Folder) -> str | None:
    """Return a file below `api` that exports a handler and starts no server, as for Vercel."""
    if folder.has("api/package.json", "redwood.toml"):
        return None
    names = (name for ending in ("js", "ts", "mjs", "py") for name in folder.glob(f"api/[!.]*.{ending}"))
    return next((name for name in names if _HANDLER.search(folder.find_text(name) or "")), None)


_FOREIGN = ("go", "php", "rb", "java", "cs")
_PYTHON_MAINS = ("__main__.py", "main.py", "handler.py", "index.py")
_ACTION_JS = re.compile(r"^(?:async\s+)?function\s+main\s*\(|\bexports\.main\s*=|\bglobal\.main\s*=", re.MULTILINE)
_ACTION_PY = re.compile(r"^(?:async\s+)?def\s+main\s*\(\s*(?:args|params|param|event|request|req|dict)\b", re.MULTILINE)
_RUNS = re.compile(r"(?<!function )(?<!def )\bmain\(|\.listen\(|createServer\(|\bserve\(|\.run\(")
_HANDLER = re.compile(
    r"^[^\S\n]*export\s+default\b|^[^\S\n]*module\.exports\s*=|^[^\S\n]*export\s+(?:async\s+)?function\s+(?:GET|POST)\b"
    r"|^class\s+handler\s*\(",
    re.MULTILINE,
)
_SETTINGS = contains(r"^packages\s*:", "project.yml", "project.yaml", words="`packages`")
_NOTE = "the functions of project.yml are served as one app: / lists their paths"
ROWS = (
    Row("functions in Node.js", "container", "nodejs",
        _SETTINGS & Sign("functions in JavaScript", lambda folder: next(iter(_node(folder)), None)),
        start=_node_start, build=_node_build, note=_NOTE),
    Row("functions in Python", "container", "python",
        _SETTINGS & Sign("functions in Python", lambda folder: next(iter(_python(folder)), None)),
        start=_python_start, server=_requirements, note=_NOTE),
)  # fmt: skip
ALONE = (
    Row("functions in another language", "container", "", Sign("functions of `packages` in Go, PHP, Ruby, Java or C#",
        lambda folder: next(iter(_found(folder, _FOREIGN).values()), None)),
        refusal=lambda folder: f"{next(iter(_found(folder, _FOREIGN).values()))} is a function in a language that "
                               "functions cannot have: write it in JavaScript or Python, or push a server"),
    Row("function", "container", "", Sign("a function `main` in a file that starts no server", _single),
        refusal=lambda folder: f"{_single(folder)} has a function `main` and starts no server: create a function with "
                               "it (`moorage functions deploy NAME`), or add a `start` script of a server"),
)  # fmt: skip
HOSTED = (
    Row("functions for Vercel", "container", "", Sign("a handler in `api/*.js`, `api/*.ts` or `api/*.py`", _hosted),
        refusal=lambda folder: f"{_hosted(folder)} has a handler for Vercel and starts no server: export an app of "
                               "Express, Hono, Flask or FastAPI there, or add a `start` script of a server"),
)  # fmt: skip
