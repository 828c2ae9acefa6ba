"""Programs on the PATH of builds and apps: npm, npx, pnpm, yarn, bun and python."""

from __future__ import annotations

import hashlib
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path

from moorage.core.kit import folders
from moorage.core.kit.records import dataclass
from moorage.runtime.builds.detection.managers import BUN_PACKAGE, PNPM_PACKAGE, YARN_PACKAGE, NodeManager
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.workers import toolchain, zygotes
from moorage.runtime.workers.runtimes import Runtime, installed, resolve

BIN = "/opt/moorage/bin"
_PACKAGES = {"pnpm": PNPM_PACKAGE, "yarn": YARN_PACKAGE, "bun": BUN_PACKAGE}
# Folders of sandboxes, with other files than the machine's.
_COVERED = ("/tmp/", "/work/", "/cache/", "/data/")  # noqa: S108
# A virtual environment or the app may have programs of these names, which come first in PATH.
_PYTHONS = ("python", "python3")


@dataclass(frozen=True, slots=True)
class Tools:
    """Runtimes of one build or app. Paths are as its commands see them."""

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
        executable = self.python_runtime.executable
        return f"{self._moved}/bin/{executable.name}" if self._moved else str(executable)

    @property
    def _moved(self) -> str:
        """Where a sandbox has a Python whose own folder it covers; "" for the path outside."""
        is_covered = self.is_sandboxed and str(self.python_runtime.executable).startswith(_COVERED)
        return f"/opt/{self.python_runtime.name.replace(':', '-')}" if is_covered else ""

    @property
    def node_headers(self) -> dict[str, str]:
        """The variable that makes node-gyp use the headers beside Node instead of downloading them."""
        if not (self.node_runtime.executable.parents[1] / "include/node/node.h").is_file():
            return {}
        program = toolchain.npm_folder(self.node_runtime) / "node_modules/node-gyp/lib/node-gyp.js"
        # Newer versions of npm warn about the old name.
        is_new = program.is_file() and "npm_package_config_node_gyp_" in program.read_text()
        name = "npm_package_config_node_gyp_nodedir" if is_new else "npm_config_nodedir"
        return {name: str(Path(self.node).parents[1])}

    def binds(self, folder: Path) -> dict[str, str]:
        """Return the mounts for runtimes and programs: path inside -> path outside."""
        runtimes = (self.node_runtime,) if self._moved else (self.node_runtime, self.python_runtime)
        binds = zygotes.binds({each.name: each for each in runtimes})
        binds |= {self._moved: str(self.python_runtime.executable.parents[1])} if self._moved else {}
        return binds | {toolchain.NPM: str(toolchain.npm_folder(self.node_runtime)), BIN: str(folder)}

    def write(self, folder: Path) -> None:
        """Write wrapper scripts: npm's own scripts depend on their location."""
        for name, line in self._lines().items():
            write_wrapper(folder / name, line)

    def ensure(self, parent: Path) -> Path:
        """Return the shared, immutable folder of these programs. Safe to run concurrently."""
        digest = hashlib.sha256("\n".join(self._lines().values()).encode()).hexdigest()[:16]
        target = parent / f"tools-{digest}"
        if target.is_dir():
            return target
        parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        fresh = parent / f".tools-{secrets.token_hex(8)}"
        fresh.mkdir()
        fresh.chmod(0o755)  # regardless of the umask: apps run as other users
        self.write(fresh)
        try:
            fresh.rename(target)
        except OSError:
            folders.remove(fresh)
            if not target.is_dir():  # else a concurrent call created it
                raise
        return target

    def _lines(self) -> dict[str, str]:
        node, npm, npx = map(shlex.quote, (self.node, f"{self.npm}/bin/npm-cli.js", f"{self.npm}/bin/npx-cli.js"))
        lines = {"npm": f"{node} {npm}", "npx": f"{node} {npx}"}
        lines |= dict.fromkeys(_PYTHONS, shlex.quote(self.python))
        for name, package in _PACKAGES.items():
            option = f'--package="${{{_variable(name)}:-{package}}}"'
            lines[name] = f"{node} {npm} exec --yes --loglevel=error {option} -- {name}"
        return dict(sorted(lines.items()))


def write_wrapper(path: Path, command: str) -> None:
    """Write a script that executes a shell command with its own arguments."""
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)


def find_tools(*, is_sandboxed: bool, python: Runtime | None = None, node: Runtime | None = None) -> Tools:
    """Return the runtimes, by default the machine's; raises BuildFailed if one is missing."""
    return Tools(node or _runtime("nodejs"), python or _runtime("python"), is_sandboxed)


def choice(manager: NodeManager | None) -> Mapping[str, str]:
    """Return the variable that selects the project's version of `pnpm`, `yarn` or `bun`."""
    if manager is None or _PACKAGES.get(manager.name, manager.package) == manager.package:
        return {}
    return {_variable(manager.name): manager.package}


def _variable(name: str) -> str:
    return f"MOORAGE_{name.upper()}"


def _runtime(requested: str) -> Runtime:
    name = resolve(requested)
    if name is None:
        raise BuildFailed(f"{requested} is not installed on this machine")
    return installed()[name]
