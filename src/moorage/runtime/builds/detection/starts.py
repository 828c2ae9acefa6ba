"""Start command of a container app: set by the user, else detected from its files."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed

# Expanded by the shell that starts the app.
HOST, PORT = "${HOST:-0.0.0.0}", "${PORT:-8080}"
# Longer than the gateway's keep-alive, so that the app never closes a connection that the gateway is about to reuse.
KEEP_ALIVE_S = 150
_UVICORN = f"--host {HOST} --port {PORT} --timeout-keep-alive {KEEP_ALIVE_S}"
# One process, as with uvicorn, because apps scale by replicas. `WEB_CONCURRENCY` makes both start several.
_GUNICORN = f"--bind {HOST}:{PORT} --threads 8 --keep-alive {KEEP_ALIVE_S}"
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
    framework: str = ""
    server: str = ""  # package that the command needs and the app does not list


def find_start(folder: Folder, language: str, start_cmd: str, entry_point: str) -> Start:
    """Return the start of an app; raises BuildFailed where none is set or detected."""
    detected = _detect(folder, language)
    if start_cmd.strip():
        return Start(start_cmd.strip(), detected.framework if detected else "")
    if entry_point.strip():
        return _from_entry_point(folder, entry_point.strip(), language)
    if web := procfile_web(folder):
        return Start(web, detected.framework if detected else "")
    if detected is None:
        raise BuildFailed(
            "nothing says how to start this app: set startCmd, or add a Procfile with a `web:` line"
            + (" or a `start` script in package.json" if language == "nodejs" else "")
        )
    return detected


def procfile_web(folder: Folder) -> str:
    match = re.search(r"^web[ \t]*:[ \t]*(\S.*?)\s*$", folder.find_text("Procfile") or "", re.MULTILINE)
    return match[1] if match else ""


def find_python_app(folder: Folder) -> Start | None:
    """Return the start of an app of FastAPI, Flask or Django, or None."""
    packages = folder.python_packages
    for package, kind, server in (("fastapi", "FastAPI", "uvicorn"), ("flask", "Flask", "gunicorn")):
        app = _find_app_object(folder, kind) if package in packages else None
        if app is None:
            continue
        options = _UVICORN if server == "uvicorn" else _GUNICORN
        return Start(f"{server} {app} {options}", kind, _missing(packages, server))
    if "django" in packages and (project := _django_project(folder)):
        return Start(f"gunicorn {project}.wsgi {_GUNICORN}", "Django", _missing(packages, "gunicorn"))
    return None


def _missing(packages: frozenset[str], server: str) -> str:
    return "" if server in packages else server


def _detect(folder: Folder, language: str) -> Start | None:
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


def _from_entry_point(folder: Folder, entry: str, language: str) -> Start:
    """Return the start of an entry point: a file, or `module:app` of a Python server."""
    if language == "python" and re.fullmatch(r"[\w.]+:\w+", entry):
        return Start(f"uvicorn {entry} {_UVICORN}", server=_missing(folder.python_packages, "uvicorn"))
    if language in ("python", "nodejs"):
        return Start(f"{'python' if language == 'python' else 'node'} {shlex.quote(entry)}")
    return Start(shlex.quote(entry if "/" in entry else f"./{entry}"))


def _find_app_object(folder: Folder, kind: str) -> str | None:
    """Return `module:variable` of the app object."""
    pattern = re.compile(_APP.format(kind), re.MULTILINE)
    for module in MODULES:
        if match := pattern.search(folder.find_text(f"{module}.py") or ""):
            return f"{module.removesuffix('/__init__').replace('/', '.')}:{match[1]}"
    return None


def django_settings(folder: Folder) -> str:
    """Return the settings module that manage.py names, or ""."""
    match = re.search(r"DJANGO_SETTINGS_MODULE['\"]\s*,\s*['\"]([\w.]+)", folder.find_text("manage.py") or "")
    return match[1] if match else ""


def _django_project(folder: Folder) -> str | None:
    """Return the package of the settings in manage.py, else one with a wsgi.py."""
    package = re.match(r"([\w.]+)\.settings\b", django_settings(folder))
    if package and folder.has(f"{package[1].replace('.', '/')}/wsgi.py"):
        return package[1]
    return next((name for name in folder.names() if name.isidentifier() and folder.has(f"{name}/wsgi.py")), None)
