"""Start command of a container app that its user set."""

from __future__ import annotations

import re
import shlex

from moorage.runtime.builds.detection.python_apps import UVICORN
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildRequest

# Servers of Python apps, by the program that starts them.
_SERVERS = {
    **{name: name for name in ("gunicorn", "uvicorn", "daphne", "hypercorn", "granian", "streamlit", "chainlit")},
    "waitress-serve": "waitress",
}
# Programs of languages that are not supported: without them, the files decide between a refusal and a Dockerfile.
_FOREIGN = re.compile(
    r"(?:\w+=\S+\s+|exec\s+)*(?:\S*/)?(?:heroku-php-\w+|php|bundle|rails|puma|rackup|ruby|java|sbt|lein|mvnw?|gradlew?|mix|"
    r"elixir|iex|dotnet)(?:\s|$)"
)


def chosen(folder: Folder, request: BuildRequest) -> str:
    """Return startCmd, entryPoint or the `web` line of the Procfile, in this order; "" without one."""
    if request.wanted == "static":
        return ""
    if request.start_cmd.strip():
        return request.start_cmd.strip()
    if request.entry_point.strip():
        return _from_entry_point(folder, request.entry_point.strip(), request.language)
    own = _without_foreign(procfile_web(folder))
    place, command = enters(procfile_web(Folder(folder.root, ""))) if folder.base and not own else ("", "")
    return command if place and place == folder.base else own


def _without_foreign(command: str) -> str:
    return "" if _FOREIGN.match(command) else command


def enters(command: str) -> tuple[str, str]:
    """Return the folder and the rest of a command such as `cd backend && uvicorn main:app`; ("", "") for others."""
    match = re.fullmatch(r"cd\s+(?:\./)?([\w.-]+(?:/[\w.-]+)*)/?\s*&&\s*(\S.*)", command)
    return (match[1], match[2]) if match else ("", "")


def procfile_web(folder: Folder) -> str:
    match = re.search(r"^web[ \t]*:[ \t]*(\S.*)$", folder.find_text("Procfile") or "", re.MULTILINE)
    return match[1].strip() if match else ""


def missing_servers(folder: Folder, start: str) -> str:
    """Return the packages of servers that a command starts and the app does not list."""
    needed = {_SERVERS[word] for word in start.split() if word in _SERVERS}
    return " ".join(sorted(needed - folder.python_packages))


def _from_entry_point(folder: Folder, entry: str, language: str) -> str:
    """Return the start of an entry point: a file, or `module:app` of a Python server."""
    is_python = language == "python" or (language in ("", "auto") and folder.package is None)
    if is_python and re.fullmatch(r"[\w.]+:\w+", entry):
        return f"uvicorn {entry} {UVICORN}"
    program = {"py": "python", "js": "node", "mjs": "node", "cjs": "node"}.get(entry.rpartition(".")[2], "")
    program = program or {"python": "python", "nodejs": "node"}.get(language, "")
    if program:
        return f"{program} {shlex.quote(entry)}"
    return shlex.quote(entry if "/" in entry else f"./{entry}")
