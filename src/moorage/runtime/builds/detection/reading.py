"""Read regular files of an untrusted repository without leaving it."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from moorage.runtime.builds.ports import BuildFailed

MAX_FILE_BYTES = 2**20  # more than any manifest or configuration of a project has


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

    def find_text(self, name: str) -> str | None:
        """Return the text of a regular file in the repository, or None."""
        if is_outside(self.root, self.path / name):
            return None
        try:
            file = os.open(
                os.path.realpath(self.path / name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except (OSError, ValueError):
            return None
        with open(file, "rb") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            return opened.read(MAX_FILE_BYTES).decode("utf-8-sig", "replace")

    def has(self, *names: str) -> bool:
        """Return whether one of these is a regular file."""
        return any(self.find_text(name) is not None for name in names)

    def has_folder(self, name: str) -> bool:
        return not is_outside(self.root, self.path / name) and (self.path / name).is_dir()

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))

    @cached_property
    def package(self) -> dict[str, Any] | None:
        """Parsed package.json, or None."""
        text = self.find_text("package.json")
        if text is None:
            return None
        try:
            package = json.loads(text)
        except (ValueError, RecursionError):
            raise BuildFailed("package.json is not valid JSON") from None
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
        except (tomllib.TOMLDecodeError, RecursionError):
            raise BuildFailed("pyproject.toml is not valid TOML") from None

    @cached_property
    def python_packages(self) -> frozenset[str]:
        """Normalized names of a Python app's dependencies."""
        lines = (self.find_text("requirements.txt") or "").splitlines()
        project = self.project.get("project")
        if isinstance(project, dict) and isinstance(project.get("dependencies"), list):
            lines += [line for line in project["dependencies"] if isinstance(line, str)]
        names = (re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line) for line in lines)
        locked = re.findall(r'^name = "([^"]+)"', self.find_text("uv.lock") or "", re.MULTILINE)
        return frozenset(re.sub("[-_.]+", "-", name).lower() for name in [*(m[1] for m in names if m), *locked])


def _texts(value: object) -> dict[str, str]:
    return {key: text for key, text in value.items() if isinstance(text, str)} if isinstance(value, dict) else {}
