"""Start commands of Node.js projects, from their scripts and files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table import front_ends

PRODUCTION = ("start:prod", "start:production", "start", "prod", "production")
DEVELOPMENT = ("serve", "server", "dev", "develop", "start:dev", "dev:server")
NODE_FILES = (
    *("server.js", "server.mjs", "index.js", "index.mjs", "app.js", "main.js", "app.mjs", "src/index.js"),
    *("src/server.js", "src/app.js", "src/main.js", "src/index.mjs", "server/index.js", "bin/www", "index.cjs"),
    *("server/server.js", "server/app.js", "server/main.js", "backend/server.js", "backend/index.js", "backend/app.js"),
    *("app/server.js", "src/server/index.js"),
)
TYPESCRIPT_FILES = (
    *("server.ts", "index.ts", "app.ts", "main.ts", "src/index.ts", "src/server.ts", "src/app.ts", "src/main.ts"),
    *("server/index.ts",),
)
SERVERS = frozenset(
    {
        *("express", "fastify", "koa", "@hapi/hapi", "hapi", "restify", "polka", "h3", "hono", "@hono/node-server"),
        *("socket.io", "ws", "micro", "@feathersjs/feathers", "sails", "apollo-server", "@apollo/server"),
        *("json-server", "graphql-yoga", "@trpc/server", "@loopback/core", "uwebsockets.js", "elysia"),
        *("@nestjs/core", "@adonisjs/core", "@strapi/strapi", "strapi"),
    }
)
# Often the data of a front end in development, which has a `build` script.
_MOCK = "json-server"
PREVIEWS = frozenset({"browser-sync", "live-server", "lite-server", "webpack-dev-server", "gulp-connect"})
# Development servers of front ends: a project that starts one is a static site.
_DEV_SERVER = re.compile(
    r"\b(?:react-scripts|craco|react-app-rewired|vite|ng|vue-cli-service|parcel|webpack(?:-dev-server)?|rsbuild|gatsby|"
    r"ember|preact|gulp|grunt|live-server|lite-server|browser-sync|http-server|serve|expo|astro|nuxt|nuxi|svelte-kit|"
    r"next dev|eleventy|docusaurus|vitepress|vuepress|hexo|vinxi|remix dev|react-router dev|sirv|snowpack|stencil|"
    r"brunch|polymer|sanity|storybook|start-storybook|scripts/start\.js|nest start --watch|sass|tailwindcss|tsc)\b"
)
_RUNS_FILE = re.compile(
    r"(?:^|&&|;)\s{0,20}(?:[A-Z_]{1,50}=\S{1,100}\s{1,20}){0,10}(?:cross-env\s{1,20}(?:\w{1,50}=\S{1,100}\s{1,20}){0,10})?"
    r"(?:npx\s{1,20})?(node|nodemon|tsx|ts-node|ts-node-dev|tsnd|bun|pm2|pm2-runtime|node-dev|babel-node)\s{1,20}(.{0,2000})$"
)
# A start that enters a folder: `cd server && npm start`, `npm start --prefix server`.
_ENTERS = re.compile(r"(?:^|&&|;)\s*cd\s+([\w./-]+)\s*&&|\s--(?:prefix|cwd)[ =]([\w./-]+)")
_BEFORE_START = ("preinstall", "install", "postinstall", "prepare", "heroku-postbuild", "build", "prestart")
_FILE = re.compile(r"(?:^|\s)(?!-)([\w./@-]+?(?:\.[cm]?[jt]sx?)?)(?=\s|$)")
# Programs that tutorials install globally, and their packages.
_GLOBAL = {
    **{name: name for name in ("nodemon", "pm2", "cross-env", "ts-node", "tsx", "bun", "ts-node-dev", "forever")},
    "pm2-runtime": "pm2",
    "tsnd": "ts-node-dev",
    "concurrently": "concurrently",
    "json-server": "json-server",
}
MAX_SCRIPT_CHARS = 2000  # that are looked at: patterns take quadratic time
MAX_SCRIPTS = 4  # that only run another one
_BUILT = ("dist/", "build/", "lib/", "out/")


def find_start(folder: Folder) -> str:
    """Return the start command of a Node.js server, or ""."""
    name = next((each for each in PRODUCTION if folder.scripts.get(each, "").strip()), "")
    if name:
        return _without_nodemon(folder.scripts[name]) or ("npm start" if name == "start" else f"npm run {name}")
    main = (folder.package or {}).get("main")
    if isinstance(main, str) and (is_there(folder, main) or _is_built(folder, main)):
        return f"node {shlex.quote(main)}"
    if file := next((each for each in server_files(folder) if folder.has(each)), ""):
        return f"node {file}"
    return _from_development(folder)


def _from_development(folder: Folder) -> str:
    for name in DEVELOPMENT:
        if file := _started_file(folder, folder.scripts.get(name, "")):
            return f"{_runner(folder, file)} {shlex.quote(file)}"
    if file := next((each for each in TYPESCRIPT_FILES if folder.has(each)), ""):
        return f"{_runner(folder, file)} {file}"
    return next((f"npm run {name}" for name in DEVELOPMENT if has_server(folder) and name in folder.scripts), "")


def script_or(fallback: str, *names: str) -> Callable[[Folder], str]:
    """Return the script that starts a server, unless it is the framework's development server."""

    def start(folder: Folder) -> str:
        for name in names or PRODUCTION:
            text = folder.scripts.get(name, "")[:MAX_SCRIPT_CHARS]
            is_dev = _DEV_SERVER.search(text) and not re.search(
                r"\b(?:next start|nuxt start|[\w-]{1,60}-serve)\b", text
            )
            if text.strip() and not is_dev and not re.search(r"\bnest start\b", text):
                return "npm start" if name == "start" else f"npm run {name}"
        return fallback

    return start


def has_start_script(folder: Folder) -> str | None:
    text = _production(folder)
    is_dev = _DEV_SERVER.search(text) is not None and _RUNS_FILE.search(text) is None
    return "script `start` of package.json" if text and not is_dev and not _has_preview(folder) else None


def _has_preview(folder: Folder) -> bool:
    """Return whether a site has a build, and a server of files for its development."""
    packages = folder.node_packages.keys()
    return "build" in folder.scripts and not PREVIEWS.isdisjoint(packages) and SERVERS.isdisjoint(packages)


def _production(folder: Folder) -> str:
    """Return the command of the start script; one that only runs another script is followed."""
    text = next((folder.scripts[name] for name in PRODUCTION if folder.scripts.get(name, "").strip()), "")
    for _ in range(MAX_SCRIPTS):
        text = _script_of(folder, text.strip()) or text
    return text[:MAX_SCRIPT_CHARS]


def server_files(folder: Folder) -> list[str]:
    """Return the usual names of files; one in a sub-folder with its own package.json belongs to another app."""
    return [name for name in NODE_FILES if "/" not in name or not folder.has(f"{name.rpartition('/')[0]}/package.json")]


def listens(folder: Folder) -> str | None:
    """Find a file of a usual name that starts a server."""
    main = (folder.package or {}).get("main")
    for name in (*([main] if isinstance(main, str) else []), *server_files(folder)):
        if re.search(r"\.listen\(|createServer\(|\bserve\(", folder.find_text(name) or ""):
            return f"a server in {name}"
    return None


def has_server(folder: Folder) -> str | None:
    """Find a server package that the start script or a file uses."""
    packages = sorted(SERVERS & folder.node_packages.keys())
    package = next(iter(packages), None)
    if package is None:
        return None
    text = _production(folder)
    if packages == [_MOCK] and "build" in folder.scripts and _MOCK not in text:
        return listens(folder)
    if text:
        is_site = _DEV_SERVER.search(text) is not None and _RUNS_FILE.search(text) is None
        return None if is_site and package != _MOCK else f"{package} in package.json"
    dependencies = (folder.package or {}).get("dependencies")
    if isinstance(dependencies, dict) and not SERVERS.isdisjoint(dependencies):
        return f"{package} in package.json"
    return listens(folder)


def server_build(folder: Folder) -> str:
    """Build the pages of a folder beside the server, and compile TypeScript, where there is no `build` script."""
    file = started_file(folder, find_start(folder))
    needs = file.removeprefix("./").startswith(_BUILT) and not is_there(folder, file)
    compiler = "tsc" if needs and "typescript" in folder.node_packages and folder.has("tsconfig.json") else ""
    return " && ".join(filter(None, (front_ends.build(folder), compiler)))


def inner_install(folder: Folder) -> str:
    """Return the commands that prepare a server in a folder with a package.json of its own; "" where scripts do it.

    The `start` script of the base folder enters that folder, or runs a file in it.
    """
    text = _production(folder)
    match = _ENTERS.search(text)
    name = next(filter(None, match.groups())) if match else _started_file(folder, text).rpartition("/")[0]
    parts = [part for part in name.split("/") if part not in ("", ".")]
    places = ("/".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    place = next((each for each in places if ".." not in each and folder.has(f"{each}/package.json")), "")
    others = (folder.scripts.get(each, "") for each in _BEFORE_START)
    if not place or "workspaces" in (folder.package or {}) or any(place in each for each in others):
        return ""
    inner, quoted = Folder(folder.root, f"{folder.base}/{place}".lstrip("/")), shlex.quote(place)
    if not (inner.package or {}).get("dependencies"):
        return ""
    is_built = "build" in inner.scripts and _started_file(inner, _production(inner)).startswith(_BUILT)
    install = f"npm install --prefix {quoted} --no-audit --no-fund {missing_tools(inner, 'npm start')}".rstrip()
    return f"{install} && npm run build --prefix {quoted}" if is_built else install


def missing_tools(folder: Folder, start: str) -> str:
    """Return the npm packages of programs that a start command runs and package.json does not list."""
    text = (_script_of(folder, start) or start)[:MAX_SCRIPT_CHARS]
    words = [word for part in re.split(r"&&|;|\|\|", text) for word in part.split()[:4]]
    programs = [word for word in words if "=" not in word and not word.startswith("-")]
    needed = {_GLOBAL[word] for word in programs if word in _GLOBAL}
    return " ".join(sorted(needed - set(folder.node_packages)))


def started_file(folder: Folder, start: str) -> str:
    """Return the file that a start command runs with Node.js, through its script; "" if unknown."""
    return _started_file(folder, _script_of(folder, start) or start)


def loop(folder: Folder, start: str) -> str:
    """Return the names of scripts that run each other in a circle, or ""."""
    names: list[str] = []
    while match := re.fullmatch(r"(?:npm|pnpm|yarn|bun) (?:run )?([\w:.-]+)", start.strip()):
        if match[1] in names:
            return " and ".join(f"`{name}`" for name in names)
        names.append(match[1])
        start = folder.scripts.get(match[1], "")
    return ""


def is_there(folder: Folder, name: str) -> bool:
    """Return whether Node.js finds a file: with an ending, or as a folder's index."""
    endings = ("", ".js", ".cjs", ".mjs", ".json", "/index.js", "/index.cjs", "/index.mjs", "/package.json", ".ts")
    return any(folder.has(f"{name.rstrip('/')}{ending}") for ending in endings)


def _is_built(folder: Folder, name: str) -> bool:
    can_build = "build" in folder.scripts or "typescript" in folder.node_packages
    return can_build and name.removeprefix("./").startswith(_BUILT)


def _script_of(folder: Folder, start: str) -> str:
    match = re.fullmatch(r"npm (?:run )?([\w:.-]+)", start)
    return folder.scripts.get(match[1], "") if match else ""


def _started_file(folder: Folder, text: str) -> str:
    match = _RUNS_FILE.search(text[:MAX_SCRIPT_CHARS])
    if match is None or re.search(r"[|<>`$]|(?:^|\s)-[epr]\s|--(?:exec|import|require|eval|loader)\b", match[2]):
        return ""
    words = [word for word in _FILE.findall(match[2]) if word not in ("watch", "run", "start")]
    file = next((word for word in words if re.search(r"\.[cm]?[jt]sx?$", word)), words[0] if words else "")
    return file if not file.startswith("-") else ""


def _runner(folder: Folder, file: str) -> str:
    if not re.search(r"\.[cm]?tsx?$", file):
        return "node"
    return "ts-node" if "ts-node" in folder.node_packages and "tsx" not in folder.node_packages else "tsx"


def _without_nodemon(text: str) -> str:
    """Return `node x.js` for `nodemon x.js`: nothing changes in a release."""
    match = re.fullmatch(r"(?:npx\s+)?nodemon\s+([\w./-]+)", text.strip())
    return f"node {match[1]}" if match else ""
