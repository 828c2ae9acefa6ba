"""Base folders that are no app themselves: their manifests only run, or only test, the apps of sub-folders."""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table import python
from moorage.runtime.builds.detection.table.node_starts import NODE_FILES
from moorage.runtime.builds.ports import BuildFailed

MANIFESTS = ("package.json", *python.MANIFESTS, "go.mod", "manage.py", "mkdocs.yml", "mkdocs.yaml")
# npm packages of a package.json that only runs the apps below it.
_TOOLS = frozenset(
    {
        *("concurrently", "npm-run-all", "npm-run-all2", "cross-env", "husky", "lint-staged", "prettier", "eslint"),
        *("wait-on", "cypress", "@playwright/test"),
    }
)
# Python packages that check the apps of sub-folders; requests is the client of their tests.
_CHECKS = re.compile(
    r"black|coverage|flake8(?:-.+)?|isort|mypy|nox|pre-commit|pylint|pytest(?:-.+)?|requests|ruff|tox|yapf"
)
_SETTINGS = ("requirements.txt", "setup.cfg", "pyproject.toml")
_CHECK_FILES = frozenset({"noxfile.py", "conftest.py", "setup.py", "noxfile_config.py"})
_ENTERS = re.compile(r"cd\s+(?:\./)?([\w./-]+)")
_RUNS = re.compile(r"(?:npm|pnpm|yarn|bun)\s")
_IN_FOLDER = re.compile(r"\s(?:--prefix|--cwd|--dir|-C)[ =](?:\./)?([\w./-]+)")


def is_shell(folder: Folder) -> bool:
    """Return whether a package.json only starts the apps of sub-folders together, or requirements only test them."""
    if _is_test_shell(folder):
        return True
    names = set(folder.scripts) & {"start", "build", "heroku-postbuild", "start:prod", "serve"}
    return _has_only_tools(folder) and not names


def find_app(folder: Folder) -> str:
    """Return the only sub-folder that the scripts `build` and `start` of a package.json without packages run; or ""."""
    if not folder.scripts.get("build", "").strip() or not _has_only_tools(folder):
        return ""
    places = {_place(folder.scripts[name]).strip("/") for name in ("build", "start") if name in folder.scripts}
    place = places.pop() if len(places) == 1 else ""
    return place if place and ".." not in place and folder.has(f"{place}/package.json") else ""


def _has_only_tools(folder: Folder) -> bool:
    package = folder.package or {}
    is_own = bool(package.get("workspaces")) or not set(folder.node_packages) <= _TOOLS
    files = folder.has(*MANIFESTS[1:], "Procfile", *NODE_FILES, "index.html") or folder.glob("*.py")
    return bool(package) and not is_own and not files


def _is_test_shell(folder: Folder) -> bool:
    """Return whether Python manifests have only settings and packages of checks, beside apps in sub-folders."""
    if not folder.has(*_SETTINGS) or folder.has(*(name for name in MANIFESTS if name not in _SETTINGS), "Procfile"):
        return False
    if folder.has(*NODE_FILES) or not set(folder.glob("*.py")) <= _CHECK_FILES:
        return False
    if not any(folder.has(*(f"{place}/{name}" for name in MANIFESTS)) for place in folder.folders()):
        return False
    try:
        return _has_only_checks(folder)
    except BuildFailed:  # A broken manifest counts only for the rows that read it.
        return False


def _has_only_checks(folder: Folder) -> bool:
    tools = folder.project.get("tool")
    has_poetry = isinstance(tools, dict) and "poetry" in tools
    is_project = has_poetry or not {"project", "build-system"}.isdisjoint(folder.project)
    is_package = re.search(r"^\[(?:metadata|options)", folder.find_text("setup.cfg") or "", re.MULTILINE)
    return not is_project and not is_package and all(map(_CHECKS.fullmatch, folder.python_packages))


def _place(script: str) -> str:
    """Return the only folder in which a script runs package managers; "" for other commands."""
    here, places = "", set()
    for step in map(str.strip, script.split("&&")):
        if entered := _ENTERS.fullmatch(step):
            here = entered[1]
            continue
        named = _IN_FOLDER.search(step)
        places.add(named[1] if named else here if _RUNS.match(step) else "")
    return places.pop() if len(places) == 1 else ""
