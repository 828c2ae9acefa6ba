"""Servers that export their app and leave the listening to the host, as for Vercel, Bun and Cloudflare Workers."""

from __future__ import annotations

import re
import shlex

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table.node_starts import NODE_FILES, PRODUCTION, TYPESCRIPT_FILES

PLACES = (
    *("src/index.tsx", "index.tsx", "api/index.js", "api/index.ts", "api/index.mjs", "api/server.js", "api/server.ts"),
    *("api/app.js", "api/app.ts"),
)
PACKAGES = ("hono", "express", "fastify", "koa", "elysia", "h3", "polka")
_EXPORTS = re.compile(r"^[^\S\n]*(?:export\s+default\b|(?:module\.exports|exports\.default)\s*=)", re.MULTILINE)
_LISTENS = re.compile(r"\.listen\(|createServer\(|\bserve\(|Bun\.serve|Deno\.serve")
# An app with `fetch`, a server of Fastify, one with `listen`, or a function of a request and a response.
_PROGRAM = """
import { createServer } from "node:http";
import * as entry from %s;
const app = entry.default?.default ?? entry.default, port = Number(process.env.PORT);
if (app.fetch) (await import("@hono/node-server")).serve({ port, fetch: (...all) => app.fetch(...all) });
else if (app.listen) app.listen(app.ready ? { port, host: "0.0.0.0" } : port);
else createServer(app).listen(port);
"""


def find(folder: Folder) -> str | None:
    """Return the file that exports an app, if nothing starts a server."""
    if any(folder.scripts.get(name, "").strip() for name in PRODUCTION):
        return None
    if not any(name in folder.node_packages for name in PACKAGES):
        return None
    main = (folder.package or {}).get("main")
    names = (*([main] if isinstance(main, str) else []), *NODE_FILES, *TYPESCRIPT_FILES, *PLACES)
    for name in names:
        text = folder.find_text(name) or ""
        if _LISTENS.search(text):
            return None
        if _EXPORTS.search(text) and any(re.search(rf"['\"]{package}['\"/]", text) for package in PACKAGES):
            return name
    return None


def start(folder: Folder) -> str:
    name = find(folder) or ""
    program = _PROGRAM % f'"./{name.removeprefix("./")}"'
    return f"node --import tsx --input-type=module -e {shlex.quote(' '.join(program.split()))}" if name else ""


def server(folder: Folder) -> str:
    """Return the packages that the start command imports and the project does not list."""
    is_fetched = any(name in folder.node_packages for name in ("hono", "elysia", "h3"))
    return "tsx @hono/node-server" if is_fetched else "tsx"
