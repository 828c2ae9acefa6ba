"""Resolve a start command such as `npm start` to the shell command of its script.

npm itself takes half a second and 50 MB to read the script from package.json and pass it to a shell.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import field
from typing import NamedTuple

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.detection import managers
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed

MAX_DEPTH = 8  # of scripts that only run another script
MAX_PARTS = 50  # of a command, joined by `&&`, that are compared with the build
_RUN = re.compile(r"(npm|pnpm|yarn|bun)[ \t]+(?:(run|run-script)[ \t]+)?([A-Za-z0-9][\w:.-]*)")
# Scripts that npm runs without `run`; other words are npm's own commands.
_NPM_SHORTCUTS = frozenset({"start", "test"})
_ASSIGNMENTS = re.compile(r"(?:[A-Za-z_]\w*=(?:\"[^\"]*\"|'[^']*'|[^\s\"'])*[ \t]+)*")
_ENV_FILE = re.compile(r"[ \t]--env-file(?:=|[ \t]+)(?:\"([^\"\n]+)\"|([^\s\"';|&]+))")
# pm2 leaves the app to a daemon and exits, and the platform would stop both; pm2-runtime of the same package waits.
_DAEMON = re.compile(r"\bpm2[ \t]+start\b(?![^;&|\n]{0,500}--no-daemon)")
_LAST = re.compile(r"(.*(?:&&|;)[ \t]*)(.+)", re.DOTALL)
_SHELL_WORDS = frozenset(
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


def resolve(command: str, folder: Folder, place: str, build: str = "") -> Script:
    """Return the command and variables that start an app at the path `place`.

    A `pre` script, or a first part of the script, that only repeats the command `build`, with which the release was
    built, is left out: compilers need more memory than most apps have.
    """
    try:
        events = [
            each
            for each in _events(command.strip(), folder)
            if not (each.name.startswith("pre") and _repeats(each.text, build, folder))
        ]
    except BuildFailed:  # The build may have left an invalid package.json; the package manager reports that.
        events = []
    if not events:
        return Script(replacing(_prepared(command.strip(), folder)))
    *before, last = (each._replace(text=_prepared(each.text, folder)) for each in events)
    first = [f"npm_lifecycle_event={shlex.quote(each.name)} /bin/sh -c {shlex.quote(each.text)}" for each in before]
    main = replacing(_without_build(last.text, build, folder))
    if first:
        main = " && ".join([*first, f"exec /bin/sh -c {shlex.quote(main)}"])
    return Script(main, _variables(folder, place, last))


def _prepared(command: str, folder: Folder) -> str:
    return _DAEMON.sub("pm2-runtime start", without_missing_env_files(command, folder))


def without_missing_env_files(command: str, folder: Folder) -> str:
    """Leave out `--env-file` of files that do not exist: Node.js would exit, and the platform sets the variables."""
    return _ENV_FILE.sub(lambda match: match[0] if folder.has(match[1] or match[2]) else "", command)


def replacing(command: str) -> str:
    """Prefix the last command with `exec`: signals must reach the app, not a shell."""
    if "\n" in command:
        return command
    match = _LAST.fullmatch(command)
    for before, last in (("", command), *([match.groups()] if match else [])):
        start = _ASSIGNMENTS.match(last)
        at = start.end() if start else 0
        is_safe = "\\" not in before + last[:at] and _words(before) is not None
        if is_safe and _is_single(last[at:]):
            return f"{before}{last[:at]}exec {last[at:]}"
    return command


def _is_single(command: str) -> bool:
    words = _words(command)
    if not words or any(set(word) <= set("();<>|&") for word in words):
        return False
    return words[0] not in _SHELL_WORDS and not set(words[0]) & set("$`=")


def _words(command: str) -> list[str] | None:
    """Return the words and operators of a command; None if a quote is not closed."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return None


def _events(command: str, folder: Folder, depth: int = 0) -> list[_Event]:
    """Return the scripts that a package manager runs for a command; [] for others."""
    match = _RUN.fullmatch(command)
    if match is None or depth > MAX_DEPTH or folder.package is None:
        return []
    manager, run, name = match.groups()
    if (manager == "npm" and not run and name not in _NPM_SHORTCUTS) or (manager == "bun" and not run):
        return []
    if run == "run-script" and manager in ("yarn", "bun"):
        return []
    text = folder.scripts.get(name)
    if text is None and command == "npm start" and folder.has("server.js"):
        text = "node server.js"
    before = folder.scripts.get(f"pre{name}") if _runs_pre_scripts(folder) else None
    if text is None or not text.strip() or not _is_valid_argument(text + (before or "")):
        return []
    inner = _events(text.strip(), folder, depth + 1)
    return [*([_Event(f"pre{name}", before)] if before else []), *(inner or [_Event(name, text.strip())])]


def _repeats(text: str, build: str, folder: Folder) -> bool:
    """Return whether a script does nothing but clean up and run the scripts that the build has run."""
    built = set(re.findall(r"\b(?:npm|pnpm|yarn|bun) run ([\w:.-]+)", build))
    texts, seen, is_repeated = [text], {"clean"}, False
    while texts:
        for part in texts.pop().split("&&"):
            match = _RUN.fullmatch(part.strip())
            if match is None:
                return False
            if match[3] in built:
                is_repeated = True
            elif match[3] not in seen:
                seen.add(match[3])
                texts.append(folder.scripts.get(match[3], ""))
    return is_repeated


def _without_build(text: str, build: str, folder: Folder) -> str:
    """Return a command without first parts that repeat the build, as in `npm run build && node dist/app.js`."""
    names = re.findall(r"\b(?:npm|pnpm|yarn|bun) run ([\w:.-]+)", build)
    commands = {build, *(folder.scripts.get(name, "").strip() for name in names)} - {""}
    parts = text.split("&&")
    for number in range(len(parts) - 1 if len(parts) <= MAX_PARTS else 0, 0, -1):
        first, rest = "&&".join(parts[:number]).strip(), "&&".join(parts[number:]).strip()
        if rest and (first in commands or _repeats(first, build, folder)):
            return rest
    return text


def _runs_pre_scripts(folder: Folder) -> bool:
    """Return whether `pre` scripts run; Yarn does not support them since version 2."""
    return not managers.node_manager(folder).package.startswith("@yarnpkg/")


def _is_valid_argument(text: str) -> bool:
    """Return whether a JSON string can be an argument or variable of a process."""
    return "\x00" not in text and text.encode(errors="replace").decode() == text


def _variables(folder: Folder, place: str, event: _Event) -> dict[str, str]:
    """Return the variables that package managers set for scripts."""
    package = folder.package or {}
    fields = {f"npm_package_{key}": package.get(key) for key in ("name", "version")}
    return {
        "npm_lifecycle_event": event.name,
        "npm_package_json": f"{place}/package.json",
        "INIT_CWD": place,
        **{name: value for name, value in fields.items() if isinstance(value, str) and _is_valid_argument(value)},
    }
