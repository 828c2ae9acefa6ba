"""Input files of a dependency install, and their cache key.

An install gets its own folder with exactly the files that it may read. The key is a hash of these files, the
organization and the operator's settings, so that two installs with the same key have the same input from the tenant.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from moorage.core.kit.records import dataclass

REQUIREMENTS = "requirements.txt"
NPM_LOCKS = ("npm-shrinkwrap.json", "package-lock.json")  # npm reads the first one that exists
MAX_FILES = 1_000
FORMAT = b"moorage function dependencies, format 2\n"
# npm runs these scripts of the package itself when it installs.
_INSTALL_SCRIPTS = frozenset(
    ("preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare", "dependencies")
)
_PINNED = re.compile(r"\s*[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*==[^*,]+\Z")
# pip accepts abbreviations of long options, and a value directly after a short one.
_FILE_OPTION = re.compile(r"-[rc](?P<short>.*)|--(?:req|con)[a-z]*(?:=(?P<long>.*))?", re.DOTALL)
_LINKS_OPTION = re.compile(r"-f(?P<short>.*)|--fi[a-z-]*(?:=(?P<long>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files that an install may read, as paths below the upload."""

    names: tuple[str, ...]
    is_fixed: bool  # equal files give an equal result, so the result may be cached

    def copy(self, upload: Path, target: Path) -> None:
        for name in self.names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(upload / name, target / name)

    def key(self, upload: Path, org_id: int, runtime: str, env: Mapping[str, str]) -> str:
        """Return the cache key: the organization id and a hash of all install inputs."""
        settings = json.dumps([org_id, runtime, os.uname().machine, sorted(env.items())])
        digest = hashlib.sha256(FORMAT + settings.encode())
        for name in sorted(self.names):
            content = hashlib.sha256((upload / name).read_bytes()).hexdigest()
            digest.update(json.dumps([name, content]).encode())
        return f"{org_id}-{digest.hexdigest()}"


def of_python(upload: Path) -> Inputs:
    """Return requirements.txt, the files of its -r and -c options, and local wheels."""
    reader = _Requirements(upload)
    reader.read(REQUIREMENTS)
    return Inputs(tuple(reader.names), reader.is_fixed)


def of_node(upload: Path) -> Inputs | None:
    """Return the dependency files; None if the install may run scripts.

    Scripts can read every file of the upload and write any file, so such an install gets the whole upload and is never
    cached. Without a lock file the result depends on the registry's state and is not cached either.
    """
    if not _runs_no_script(upload):
        return None
    names = ("package.json", *NPM_LOCKS, ".npmrc")
    return Inputs(tuple(name for name in names if _is_inside(upload, name)), is_fixed=True)


class _Requirements:
    """Parses requirement files like pip, to find the files that they refer to."""

    def __init__(self, upload: Path) -> None:
        self._upload = upload
        self.names: dict[str, None] = {}
        self.is_fixed = True

    def read(self, name: str) -> None:
        if name in self.names or not self._add(name):
            return
        for line in _logical_lines((self._upload / name).read_bytes().decode("utf-8-sig", "replace")):
            self._parse_line(line, os.path.dirname(name))

    def _parse_line(self, line: str, folder: str) -> None:
        words = _words(line)
        if not words or not words[0].startswith("-"):
            is_wheel = bool(words) and words[0].endswith(".whl") and self._add(os.path.normpath(words[0]))
            self.is_fixed &= is_wheel or bool(_PINNED.match(line.partition(";")[0]))
            return
        while words:
            word = words.pop(0)
            if match := _FILE_OPTION.fullmatch(word):
                self.read(os.path.normpath(os.path.join(folder, _value(match, words))))
                continue
            if match := _LINKS_OPTION.fullmatch(word):
                self._add_wheels(os.path.normpath(os.path.join(folder, _value(match, words))))
            self.is_fixed &= word == "--require-hashes"  # Other options set an index, for example.

    def _add_wheels(self, folder: str) -> None:
        if _is_below(folder) and os.path.isdir(self._upload / folder):
            for path in sorted((self._upload / folder).glob("*.whl")):
                self._add(os.path.join(folder, path.name))

    def _add(self, name: str) -> bool:
        if not _is_inside(self._upload, name) or len(self.names) >= MAX_FILES:
            self.is_fixed = False
            return False
        self.names[os.path.normpath(name)] = None
        return True


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments; a backslash at the end continues a line."""
    pending = ""
    for line in text.splitlines():
        stripped = re.sub(r"(^|\s)#.*", "", line)
        if stripped.rstrip().endswith("\\"):
            pending += stripped.rstrip()[:-1] + " "
            continue
        if whole := (pending + stripped).strip():
            yield whole
        pending = ""
    if pending.strip():
        yield pending.strip()


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # an unclosed quote, which pip reports
        return []


def _value(match: re.Match[str], words: list[str]) -> str:
    """Return the value of an option, from the same word or the next one."""
    return match["short"] or match["long"] or (words.pop(0) if words else "")


def _is_below(name: str) -> bool:
    return not os.path.isabs(name) and os.path.normpath(name).split("/")[0] != ".." and "\x00" not in name


def _is_inside(upload: Path, name: str) -> bool:
    """Return whether a name is a file of the upload, reached without symbolic links."""
    # os.path.isfile is False for a name that is too long, where Path.is_file raises OSError.
    if not _is_below(name) or not os.path.isfile(upload / name):
        return False
    return Path(os.path.realpath(upload / name)) == Path(os.path.realpath(upload), os.path.normpath(name))


def _runs_no_script(upload: Path) -> bool:
    """Return whether npm can install from the lock file without running scripts."""
    package = _json(upload / "package.json")
    lock = next((_json(upload / name) for name in NPM_LOCKS if (upload / name).is_file()), {})
    scripts, packages = package.get("scripts", {}), lock.get("packages")
    if not isinstance(scripts, dict) or not isinstance(packages, dict) or "workspaces" in package:
        return False
    if not _INSTALL_SCRIPTS.isdisjoint(scripts) or (upload / "binding.gyp").exists():
        return False
    return all(_is_plain_download(path, entry) for path, entry in packages.items() if path)


def _is_plain_download(path: str, entry: Any) -> bool:
    if not isinstance(entry, dict) or not path.startswith("node_modules/"):
        return False
    if entry.get("link") or entry.get("hasInstallScript"):
        return False
    resolved, integrity = entry.get("resolved"), entry.get("integrity")
    is_download = isinstance(resolved, str) and resolved.startswith(("https://", "http://")) and bool(integrity)
    return is_download or bool(entry.get("inBundle"))


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
