"""The plan of a deployment: the kind of a folder, and the way in which it is sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from moorage.cli.deploy.snapshot import is_repository
from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.ports import BuildFailed, request_of_folder

Way = Literal["zip", "git", "function"]

_NAME = re.compile(r"[^a-z0-9]+")
_NODE_MAIN = re.compile(
    r"exports\.main\b|module\.exports\s*=\s*\{[^}]*\bmain\b|export\s+(async\s+)?(function|const)\s+main\b"
)
_PYTHON_MAIN = re.compile(r"^(async\s+)?def main\(", re.MULTILINE)
MAX_NAME = 63


class NotDeployable(Exception):
    """A folder from which nothing can be deployed; the text says why."""


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """`kind` is `static`, `container` or `function`; `lines` describe the build."""

    folder: Path
    kind: str
    way: Way
    lines: tuple[str, ...]
    runtime: str = ""  # of a function


def make(
    folder: Path, *, base_dir: str = "./", start_cmd: str = "", kind: Literal["auto", "static", "container"] = "auto"
) -> FolderPlan:
    """Detect the kind of a folder; raises NotDeployable."""
    if not folder.is_dir():
        raise NotDeployable(f"{folder} is not a folder")
    if kind == "auto" and (runtime := _function_runtime(folder)):
        return FolderPlan(folder, "function", "function", (f"detected: {runtime} function",), runtime)
    request = request_of_folder(folder, wanted=kind, base_dir=base_dir, start_cmd=start_cmd)
    try:
        base = detect.open_base(request)
        plan = detect.decide(request, base).plan
    except BuildFailed as error:
        raise NotDeployable(str(error)) from error
    is_plain = plan.kind == "static" and not plan.build and not plan.install
    way: Way = "zip" if is_plain and not is_repository(folder) and base_dir in ("", ".", "./") else "git"
    return FolderPlan(folder, plan.kind, way, tuple(detect.describe(plan, "")))


def project_name(folder: Path) -> str:
    """Return the name of a project for a folder; empty where the folder's name has no usable character."""
    return _NAME.sub("-", folder.resolve().name.lower()).strip("-")[:MAX_NAME].strip("-")


def _function_runtime(folder: Path) -> str:
    """Return `nodejs` or `python` for a folder whose only entry point is a function called `main`."""
    if any((folder / name).exists() for name in ("index.html", "Procfile", "Dockerfile", "manage.py", "server.js")):
        return ""
    if _matches(folder / "__main__.py", _PYTHON_MAIN):
        return "python"
    return "nodejs" if _matches(folder / "index.js", _NODE_MAIN) else ""


def _matches(path: Path, pattern: re.Pattern[str]) -> bool:
    try:
        return path.is_file() and pattern.search(path.read_text(encoding="utf-8", errors="replace")) is not None
    except OSError:
        return False
