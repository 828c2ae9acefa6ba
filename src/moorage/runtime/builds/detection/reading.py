"""Read regular files of an untrusted repository without leaving it."""

from __future__ import annotations

import codecs
import fnmatch
import json
import os
import re
import stat
import tomllib
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.ports import BuildFailed

_LONG_BLANKS = re.compile(r"\s{100,}")
MAX_FILE_BYTES = 2**20  # more than any manifest or configuration of a project has
MAX_ENTRIES = 2000  # of a folder that are looked at
MAX_PYTHON_FILES = 400
MAX_PYTHON_BYTES = 8 * 2**20  # of all Python files together
MAX_MODULE_BYTES = 2**18
MAX_REQUIREMENTS = 20  # files
REQUIREMENTS = ("requirements.txt", "requirements.in", "requirements/*.txt")
PYTHON_DEPTH = 4  # folders below the base folder in which Python files are searched
# Folders that have no code of the app.
NOT_SOURCES = frozenset(
    {"node_modules", "venv", "env", "tests", "test", "testing", "migrations", "alembic", "examples", "example", "docs"}
)


def folder_inside(root: Path, name: str, what: str) -> str:
    """Normalize a user's path below a folder ("" is the folder); it need not exist.

    Raises BuildFailed for a path that leaves the folder, by `..` or by a link.
    """
    path = PurePosixPath(name.strip())
    if path.is_absolute() or ".." in path.parts or "\x00" in name:
        raise BuildFailed(f"{what} {name!r} should be a folder inside the repository, such as `site` or `packages/web`")
    if is_outside(root, root / path):
        raise BuildFailed(f"{what} {name!r} is a link that leads out of the repository")
    return "" if str(path) == "." else str(path)


def without_links(root: Path, name: str) -> str:
    """Return the path to which a path below a folder leads over its links."""
    path = Path(os.path.realpath(root / name)).relative_to(os.path.realpath(root)).as_posix()
    return "" if path == "." else path


def is_outside(root: Path, path: Path) -> bool:
    """Return whether a path, after resolving links, is outside of a folder."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


@dataclass(frozen=True)
class Folder:
    """Base folder of a project in its repository."""

    root: Path
    base: str

    @property
    def path(self) -> Path:
        return self.root / self.base

    def find_text(self, name: str, limit: int = MAX_FILE_BYTES) -> str | None:
        """Return the text of a regular file in the repository, or None.

        Long runs of blanks and empty lines are shortened: regular expressions could take hours for them.
        """
        text = self.find_exact_text(name, limit)
        return None if text is None else _LONG_BLANKS.sub(lambda run: "\n" if "\n" in run[0] else " ", text)

    def find_exact_text(self, name: str, limit: int = MAX_FILE_BYTES) -> str | None:
        """Return the text of a regular file in the repository as it is, or None."""
        if is_outside(self.root, self.path / name):
            return None
        try:
            file = os.open(
                os.path.realpath(self.path / name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            return None
        with open(file, "rb") as opened:
            data = opened.read(limit)
        # PowerShell writes files such as requirements.txt in UTF-16.
        is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return data.decode("utf-16" if is_wide else "utf-8-sig", "replace")

    def has(self, *names: str) -> bool:
        """Return whether one of these is a regular file."""
        return any(self._is_file(name) for name in names)

    def _is_file(self, name: str) -> bool:
        try:
            path = os.path.realpath(self.path / name)
            return stat.S_ISREG(os.lstat(path).st_mode) and not is_outside(self.root, Path(path))
        except (OSError, ValueError):
            return False

    def has_folder(self, name: str) -> bool:
        return not is_outside(self.root, self.path / name) and os.path.isdir(self.path / name)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))

    def glob(self, pattern: str) -> list[str]:
        """Return the regular files that match; `*` may stand in the last part of the path only."""
        parent, _, last = pattern.rpartition("/")
        if "*" not in last:
            return [pattern] if self.has(pattern) else []
        if not self.has_folder(parent):
            return []
        names = (f"{parent}/{name}".lstrip("/") for name in sorted(os.listdir(self.path / parent))[:MAX_ENTRIES])
        return [name for name in names if fnmatch.fnmatchcase(name, pattern) and self.has(name)]

    def folders(self, parent: str = "") -> list[str]:
        """Return the sub-folders of a folder, without hidden ones and dependencies."""
        if not self.has_folder(parent):
            return []
        names = (name for name in sorted(os.listdir(self.path / parent))[:MAX_ENTRIES] if name[0] not in "._")
        paths = (f"{parent}/{name}".lstrip("/") for name in names if name not in NOT_SOURCES)
        return [path for path in paths if self.has_folder(path)]

    @cached_property
    def package(self) -> dict[str, Any] | None:
        """Parsed package.json, or None."""
        text = self.find_text("package.json")
        if text is None:
            return None
        try:
            package = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BuildFailed(f"package.json is not valid JSON{_place(error)}: correct it") from None
        if not isinstance(package, dict):
            raise BuildFailed("package.json should hold an object")
        return package

    @cached_property
    def scripts(self) -> dict[str, str]:
        return _texts((self.package or {}).get("scripts"))

    @cached_property
    def node_packages(self) -> dict[str, str]:
        """Dependencies of package.json, including devDependencies."""
        package = self.package or {}
        return _texts(package.get("devDependencies")) | _texts(package.get("dependencies"))

    @cached_property
    def project(self) -> dict[str, Any]:
        """Parsed pyproject.toml; empty without one."""
        text = self.find_text("pyproject.toml")
        try:
            return tomllib.loads(text or "")
        except (ValueError, RecursionError) as error:
            raise BuildFailed(f"pyproject.toml is not valid TOML{_place(error)}: correct it") from None

    @cached_property
    def python_files(self) -> dict[str, str]:
        """Texts of the app's Python files by name, those of upper folders first."""
        names, level = self.glob("*.py"), self.folders()
        for _ in range(PYTHON_DEPTH):
            names += [name for folder in level for name in self.glob(f"{folder}/*.py")]
            level = [inner for folder in level for inner in self.folders(folder)][:MAX_ENTRIES]
        texts: dict[str, str] = {}
        left = MAX_PYTHON_BYTES
        for name in names[:MAX_PYTHON_FILES]:
            texts[name] = self.find_text(name, min(left, MAX_MODULE_BYTES)) or ""
            left -= len(texts[name])
        return texts

    @cached_property
    def python_packages(self) -> frozenset[str]:
        """Normalized names of a Python app's dependencies, from all manifests and the locks of uv and Poetry."""
        texts = [self.find_text(name) or "" for name in ("uv.lock", "poetry.lock", "pdm.lock")]
        names = [name for text in texts for name in re.findall(r'^name = "([^"]+)"', text, re.MULTILINE)]
        matches = (re.match(r"\s*(?:-\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)", line) for line in self.dependency_lines)
        names += [match[1] for match in matches if match]
        return frozenset(re.sub("[-_.]+", "-", name).lower() for name in names)

    @cached_property
    def dependency_lines(self) -> list[str]:
        """Requirements of all manifests; those of Poetry and Pipenv without their versions."""
        lines = self._requirements()
        lines += _items(self.project.get("project"), "dependencies")
        lines += _keys(self.project.get("tool"), "poetry", "dependencies")
        try:
            lines += _keys(tomllib.loads(self.find_text("Pipfile") or ""), "packages")
        except (ValueError, RecursionError) as error:
            raise BuildFailed(f"Pipfile is not valid TOML{_place(error)}: correct it") from None
        return lines + (self.find_text("environment.yml") or "").splitlines()

    def _requirements(self) -> list[str]:
        """Return the lines of the requirements files and of the files that they include."""
        pending = [file for name in REQUIREMENTS for file in self.glob(name)][:MAX_REQUIREMENTS]
        lines: list[str] = []
        for name in pending:  # grows
            own = (self.find_text(name) or "").splitlines()
            lines += own
            for match in (re.match(r"\s*(?:-r|--requirement)[\s=]*(\S+)", line) for line in own):
                included = os.path.normpath(f"{os.path.dirname(name)}/{match[1]}").lstrip("/") if match else name
                if included not in pending and len(pending) < MAX_REQUIREMENTS:
                    pending.append(included)
        return lines


def without_comments(text: str) -> str:
    """Return the text of a Python file without lines that are only a comment, such as settings that are left out."""
    return re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE)


def _place(error: Exception) -> str:
    match = re.search(r"line \d+,? column \d+", str(error))
    return f" ({match[0]})" if match else ""


def _items(table: object, key: str) -> list[str]:
    items = table.get(key) if isinstance(table, dict) else None
    return [item for item in items if isinstance(item, str)] if isinstance(items, list) else []


def _keys(table: object, *path: str) -> list[str]:
    for key in path:
        table = table.get(key) if isinstance(table, dict) else None
    return list(table) if isinstance(table, dict) else []


def _texts(value: object) -> dict[str, str]:
    return {key: text for key, text in value.items() if isinstance(text, str)} if isinstance(value, dict) else {}
