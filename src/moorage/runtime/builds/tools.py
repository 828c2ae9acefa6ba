"""The programs that apps and their builds call by name, and where each is: as they see it, and on this machine."""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.builds.detection.detect import GO_PATH
from moorage.runtime.builds.detection.managers import PNPM_PACKAGE, YARN_PACKAGE, NodeManager
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.workers import toolchain, zygotes
from moorage.runtime.workers.runtimes import Runtime, installed, resolve

BIN = "/opt/moorage/bin"
_PACKAGES = {"pnpm": PNPM_PACKAGE, "yarn": YARN_PACKAGE}
# Beside their own commands, a virtual environment or the app may have others of these names, which come first.
_PYTHONS = ("python", "python3")


@dataclass(frozen=True, slots=True)
class Tools:
    """The runtimes of one build or app. Paths are as its commands see them."""

    node_runtime: Runtime
    python_runtime: Runtime
    is_sandboxed: bool

    @property
    def node(self) -> str:
        return zygotes.inside(self.node_runtime) if self.is_sandboxed else str(self.node_runtime.executable)

    @property
    def npm(self) -> str:
        return toolchain.NPM if self.is_sandboxed else str(toolchain.npm_folder(self.node_runtime))

    @property
    def python(self) -> str:
        return str(self.python_runtime.executable)

    def binds(self, folder: Path) -> dict[str, str]:
        """Return what has to be mounted, with the programs in a folder: path inside -> path outside."""
        binds = zygotes.binds({each.name: each for each in (self.node_runtime, self.python_runtime)})
        binds |= {toolchain.NPM: str(toolchain.npm_folder(self.node_runtime)), BIN: str(folder)}
        if (go := shutil.which("go", path=GO_PATH)) is not None:
            root = Path(os.path.realpath(go)).parents[1]
            binds |= {str(root): str(root)} if not str(root).startswith("/usr/lib") else {}
        return binds

    def write(self, folder: Path) -> None:
        """Write programs into a folder: npm's own start relative to a folder that is elsewhere."""
        for name, text in self._texts().items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def ensure(self, parent: Path) -> Path:
        """Return a folder of programs that all apps share, which is written once and never changed. Safe to race."""
        named = hashlib.sha256("".join(self._texts().values()).encode()).hexdigest()[:16]
        target = parent / f"tools-{named}"
        if target.is_dir():
            return target
        parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        fresh = parent / f".tools-{secrets.token_hex(8)}"
        fresh.mkdir()
        fresh.chmod(0o755)  # Whatever the umask is: apps are other users.
        self.write(fresh)
        try:
            fresh.rename(target)
        except OSError:
            folders.remove(fresh)
            if not target.is_dir():  # Otherwise somebody else was faster.
                raise
        return target

    def _texts(self) -> dict[str, str]:
        node, npm, npx = map(shlex.quote, (self.node, f"{self.npm}/bin/npm-cli.js", f"{self.npm}/bin/npx-cli.js"))
        lines = {"npm": f'{node} {npm} "$@"', "npx": f'{node} {npx} "$@"'}
        lines |= dict.fromkeys(_PYTHONS, f'{shlex.quote(self.python)} "$@"')
        for name, package in _PACKAGES.items():
            fetched = f'--package="${{{_variable(name)}:-{package}}}"'
            lines[name] = f'{node} {npm} exec --yes --loglevel=error {fetched} -- {name} "$@"'
        return {name: f"#!/bin/sh\nexec {line}\n" for name, line in sorted(lines.items())}


def find_tools(*, is_sandboxed: bool, python: str = "python") -> Tools:
    """Return what this machine has; raises BuildFailed where something is missing."""
    return Tools(_runtime("nodejs"), _runtime(python), is_sandboxed)


def choice(manager: NodeManager | None) -> Mapping[str, str]:
    """Return the variable that makes `pnpm` or `yarn` the version that a project asks for."""
    if manager is None or _PACKAGES.get(manager.name, manager.package) == manager.package:
        return {}
    return {_variable(manager.name): manager.package}


def _variable(name: str) -> str:
    return f"MOORAGE_{name.upper()}"


def _runtime(asked: str) -> Runtime:
    name = resolve(asked)
    if name is None:
        raise BuildFailed(f"{asked} is not installed on this machine")
    return installed()[name]
