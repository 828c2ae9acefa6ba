"""How a container app is started: as its user says, else as its files do."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed

# A shell starts the app, with these two in its environment.
HOST, PORT = "${HOST:-0.0.0.0}", "${PORT:-8080}"
# A connection that the gateway keeps open for the next request must not be closed by the app just then, so the app
# keeps it longer than the gateway does.
KEEP_S = 150
_UVICORN = f"--host {HOST} --port {PORT} --timeout-keep-alive {KEEP_S}"
# One process, as with uvicorn: replicas are what there are more of. `WEB_CONCURRENCY` makes both start several.
_GUNICORN = f"--bind {HOST}:{PORT} --threads 8 --keep-alive {KEEP_S}"
MODULES = (
    *("main", "app", "server", "api", "asgi", "wsgi", "application", "index", "run"),
    *("app/main", "app/__init__", "app/app", "src/main", "src/app", "api/main", "api/index", "server/main"),
)
PYTHON_MAINS = ("main.py", "app.py", "server.py", "__main__.py")
NODE_FILES = ("server.js", "server.mjs", "index.js", "index.mjs", "app.js", "main.js", "src/index.js", "src/server.js")
_APP = r"^(\w+)\s*(?::\s*[\w.]+\s*)?=\s*(?:\w+\.)?{}\("


@dataclass(frozen=True, slots=True)
class Start:
    command: str
    framework: str = ""  # what it was found by
    server: str = ""  # a package that it needs and the app does not name


def find_start(folder: Folder, language: str, start_cmd: str, entry_point: str) -> Start:
    """Return how the app is started; raises BuildFailed where nothing says it."""
    found = _detected(folder, language)
    if start_cmd.strip():
        return Start(start_cmd.strip(), found.framework if found else "")
    if entry_point.strip():
        return _by_entry(folder, entry_point.strip(), language)
    if web := procfile_web(folder):
        return Start(web, found.framework if found else "")
    if found is None:
        raise BuildFailed(
            "nothing says how to start this app: set startCmd, or add a Procfile with a `web:` line"
            + (" or a `start` script in package.json" if language == "nodejs" else "")
        )
    return found


def procfile_web(folder: Folder) -> str:
    match = re.search(r"^web[ \t]*:[ \t]*(\S.*?)\s*$", folder.find_text("Procfile") or "", re.MULTILINE)
    return match[1] if match else ""


def find_python_app(folder: Folder) -> Start | None:
    """Return how the app of a known Python framework is served."""
    named = folder.python_packages
    for package, kind, server in (("fastapi", "FastAPI", "uvicorn"), ("flask", "Flask", "gunicorn")):
        place = _place_of(folder, kind) if package in named else None
        if place is None:
            continue
        options = _UVICORN if server == "uvicorn" else _GUNICORN
        return Start(f"{server} {place} {options}", kind, _missing(named, server))
    if "django" in named and (project := _django_project(folder)):
        return Start(f"gunicorn {project}.wsgi {_GUNICORN}", "Django", _missing(named, "gunicorn"))
    return None


def _missing(named: frozenset[str], server: str) -> str:
    return "" if server in named else server


def _detected(folder: Folder, language: str) -> Start | None:
    if language == "nodejs":
        return _node_start(folder)
    if language == "python":
        return find_python_app(folder) or next((Start(f"python {name}") for name in _mains(folder)), None)
    return Start("./app") if language == "go" else None


def _mains(folder: Folder) -> list[str]:
    return [name for name in PYTHON_MAINS if folder.has(name)]


def _node_start(folder: Folder) -> Start | None:
    if "start" in folder.scripts:
        return Start("npm start")
    main = (folder.package or {}).get("main")
    for name in (*([main] if isinstance(main, str) else []), *NODE_FILES):
        if folder.has(name):
            return Start(f"node {shlex.quote(name)}")
    return None


def _by_entry(folder: Folder, entry: str, language: str) -> Start:
    """An entry point is a file, or `module:app` for a Python server."""
    if language == "python" and re.fullmatch(r"[\w.]+:\w+", entry):
        return Start(f"uvicorn {entry} {_UVICORN}", server=_missing(folder.python_packages, "uvicorn"))
    if language in ("python", "nodejs"):
        return Start(f"{'python' if language == 'python' else 'node'} {shlex.quote(entry)}")
    return Start(shlex.quote(entry if "/" in entry else f"./{entry}"))


def _place_of(folder: Folder, kind: str) -> str | None:
    """Return `module:variable` of the app object."""
    pattern = re.compile(_APP.format(kind), re.MULTILINE)
    for module in MODULES:
        if match := pattern.search(folder.find_text(f"{module}.py") or ""):
            return f"{module.removesuffix('/__init__').replace('/', '.')}:{match[1]}"
    return None


def django_settings(folder: Folder) -> str:
    """Return the module of settings that manage.py names, "" where it names none."""
    match = re.search(r"DJANGO_SETTINGS_MODULE['\"]\s*,\s*['\"]([\w.]+)", folder.find_text("manage.py") or "")
    return match[1] if match else ""


def _django_project(folder: Folder) -> str | None:
    """Return the package that manage.py sets up, else the one that has a wsgi.py."""
    package = re.match(r"([\w.]+)\.settings\b", django_settings(folder))
    if package and folder.has(f"{package[1].replace('.', '/')}/wsgi.py"):
        return package[1]
    return next((name for name in folder.names() if name.isidentifier() and folder.has(f"{name}/wsgi.py")), None)
