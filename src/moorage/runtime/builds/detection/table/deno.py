"""Rows for Deno, which a Python package of the same name brings."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table.row import Row, Sign, file

SETTINGS = ("deno.json", "deno.jsonc")
FILES = tuple(
    f"{folder}{stem}.{ending}"
    for folder in ("", "src/")
    for stem in ("main", "server", "index", "app", "mod")
    for ending in ("ts", "tsx", "js")
)
# Modules are part of the release, and Deno asks no questions. The address is that of the first `Deno.serve`.
_CACHE = "DENO_DIR=.deno DENO_NO_PROMPT=1 DENO_NO_UPDATE_CHECK=1 DENO_TLS_CA_STORE=mozilla,system"
_SERVED = f"{_CACHE} DENO_SERVE_ADDRESS=tcp:0.0.0.0:$PORT"
_OWN_API = re.compile(r"\bDeno\.(?:serve|listen|env)\b|['\"](?:https://deno\.land/|jsr:|npm:)")
_EXPORTED = re.compile(r"^export default\b", re.MULTILINE)
_LISTENS = re.compile(r"\bserve\s{0,3}\(|\.listen\(|\bDeno\.listen\b")
_RUNS = re.compile(r"(?:^|\s)deno\s")
_COMMENT = re.compile(r"^[^\S\n]*//.*$", re.MULTILINE)


def _entry(folder: Folder) -> str:
    return next((name for name in FILES if folder.has(name)), "")


def _tasks(folder: Folder) -> dict[str, Any]:
    """Return the tasks of the settings, by name; {} where they cannot be read."""
    text = next((text for name in SETTINGS if (text := folder.find_text(name)) is not None), "{}")
    text = re.sub(r",(\s*[}\]])", r"\1", _COMMENT.sub("", text))
    try:
        tasks = json.loads(text).get("tasks")
    except (ValueError, AttributeError, RecursionError):
        return {}
    return tasks if isinstance(tasks, dict) else {}


def _file_of_deno(folder: Folder) -> str | None:
    """Return a program that uses Deno's own interface, in a repository without any settings."""
    name = _entry(folder)
    return name if name and _OWN_API.search(folder.find_text(name) or "") else None


def _without_script(folder: Folder) -> str | None:
    """Return the program of a repository whose package.json starts nothing, or starts it with Deno."""
    is_other = bool(folder.scripts.get("start")) and not any(_RUNS.search(text) for text in folder.scripts.values())
    return None if is_other or not folder.has(*SETTINGS) else _file_of_deno(folder)


def _is_compiled(folder: Folder) -> bool:
    """Return whether the tasks make one program of the sources, which would fetch a second copy of Deno."""
    return "deno compile" in str(_tasks(folder).get("build")) and bool(_entry(folder))


def _start(folder: Folder) -> str:
    for name in ("start", "serve"):
        if name in _tasks(folder) and not _is_compiled(folder):
            return f"{_SERVED} deno task {name}"
    if not (name := _entry(folder)):
        return next((f"{_SERVED} deno task {each}" for each in ("preview", "dev") if each in _tasks(folder)), "")
    text, quoted = folder.find_text(name) or "", shlex.quote(name)
    if _EXPORTED.search(text) and not _LISTENS.search(text):
        return f"{_CACHE} deno serve -A --host 0.0.0.0 --port $PORT {quoted}"
    return f"{_SERVED} deno run -A {quoted}"


def _build(folder: Folder) -> str:
    entry = _entry(folder)
    cached = f"{_CACHE} deno cache {shlex.quote(entry)}" if entry else ""
    is_built = "build" in _tasks(folder) and not _is_compiled(folder)
    return " && ".join(filter(None, (cached, f"{_CACHE} deno task build" if is_built else "")))


DENO = Sign(
    f"{file(*SETTINGS, 'deno.lock').words}, or a program that uses Deno's interface",
    lambda folder: file(*SETTINGS, "deno.lock").find(folder) or _file_of_deno(folder),
) & (
    ~file("package.json")
    | Sign("no `start` script of Node.js and a program that uses Deno's interface", _without_script)
)
ROWS = (
    Row("Deno", "container", "python", DENO, start=_start, build=_build, server="deno"),
    Row("Deno without a program", "container", "python", DENO,
        refusal="deno.json has no `start` task, and there is no main.ts: add one of them"),
)  # fmt: skip
