"""From a start command to what a shell is told.

`npm start` takes half a second and 50 MB to find a line in package.json and hand it to a shell; that is done here.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import NamedTuple

from moorage.runtime.builds.detection import managers
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed

DEEPEST = 8  # scripts that do nothing but run another
_RUN = re.compile(r"(npm|pnpm|yarn)[ \t]+(?:(run|run-script)[ \t]+)?([A-Za-z0-9][\w:.-]*)")
# What these do without `run` is their own, whatever scripts there are.
_OF_NPM = frozenset({"start", "test"})
_ASSIGNMENTS = re.compile(r"(?:[A-Za-z_]\w*=(?:\"[^\"]*\"|'[^']*'|[^\s\"'])*[ \t]+)*")
_LAST = re.compile(r"(.*(?:&&|;)[ \t]*)(.+)")
_OF_SHELL = frozenset(
    (
        *("!", "{", "}", "if", "while", "until", "for", "case", "function", "select", "time", "[", "[[", ":", "."),
        *("alias", "bg", "break", "cd", "command", "continue", "eval", "exec", "exit", "export", "fg", "getopts"),
        *("hash", "jobs", "local", "read", "readonly", "return", "set", "shift", "source", "trap", "type", "ulimit"),
        *("umask", "unalias", "unset", "wait", "then", "else", "elif", "fi", "do", "done", "in", "esac"),
    )
)


@dataclass(frozen=True, slots=True)
class Script:
    command: str  # for a shell
    env: dict[str, str] = field(default_factory=dict)


class _Event(NamedTuple):
    name: str
    text: str


def resolve(command: str, folder: Folder, place: str) -> Script:
    """Return what starts an app whose files are at a place, as its commands see it."""
    try:
        events = _events(command.strip(), folder)
    except BuildFailed:  # The build may have left a package.json that is none; whoever reads it next will say so.
        events = []
    if not events:
        return Script(replacing(command.strip()))
    *before, last = events
    first = [f"npm_lifecycle_event={shlex.quote(each.name)} /bin/sh -c {shlex.quote(each.text)}" for each in before]
    main = replacing(last.text)
    if first:
        main = " && ".join([*first, f"exec /bin/sh -c {shlex.quote(main)}"])
    return Script(main, _told(folder, place, last))


def replacing(command: str) -> str:
    """Let the last of some commands take the place of its shell: signals are for the app, not for one that waits."""
    if "\n" in command:
        return command
    match = _LAST.fullmatch(command)
    for before, last in (("", command), *([match.groups()] if match else [])):
        start = _ASSIGNMENTS.match(last)
        at = start.end() if start else 0
        is_sure = "\\" not in before + last[:at] and _words(before) is not None
        if is_sure and _is_single(last[at:]):
            return f"{before}{last[:at]}exec {last[at:]}"
    return command


def _is_single(command: str) -> bool:
    found = _words(command)
    if not found or any(set(word) <= set("();<>|&") for word in found):
        return False
    return found[0] not in _OF_SHELL and not set(found[0]) & set("$`=")


def _words(command: str) -> list[str] | None:
    """Return the words and operators of a command, None where a quote is not closed."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.commenters = ""
    try:
        return list(words)
    except ValueError:
        return None


def _events(command: str, folder: Folder, depth: int = 0) -> list[_Event]:
    """Return the scripts that a package manager would run for a command, in order; none where it is no such command."""
    match = _RUN.fullmatch(command)
    if match is None or depth > DEEPEST or folder.package is None:
        return []
    manager, run, name = match.groups()
    if (manager == "npm" and not run and name not in _OF_NPM) or (run == "run-script" and manager == "yarn"):
        return []
    text = folder.scripts.get(name)
    if text is None and command == "npm start" and folder.has("server.js"):
        text = "node server.js"
    before = folder.scripts.get(f"pre{name}") if _runs_before(folder) else None
    if text is None or not text.strip() or not _is_sayable(text + (before or "")):
        return []
    inner = _events(text.strip(), folder, depth + 1)
    return [*([_Event(f"pre{name}", before)] if before else []), *(inner or [_Event(name, text.strip())])]


def _runs_before(folder: Folder) -> bool:
    """Yarn has given up scripts that run before others."""
    return not managers.node_manager(folder).package.startswith("@yarnpkg/")


def _is_sayable(text: str) -> bool:
    """Tell whether a text of a JSON file can be told to a program."""
    return "\x00" not in text and text.encode(errors="replace").decode() == text


def _told(folder: Folder, place: str, event: _Event) -> dict[str, str]:
    """Return what package managers tell scripts."""
    package = folder.package or {}
    named = {f"npm_package_{key}": package.get(key) for key in ("name", "version")}
    return {
        "npm_lifecycle_event": event.name,
        "npm_package_json": f"{place}/package.json",
        "INIT_CWD": place,
        **{name: value for name, value in named.items() if isinstance(value, str) and _is_sayable(value)},
    }
