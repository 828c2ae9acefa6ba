"""Detect how a Python project lists its dependencies, and install from its lock."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Literal

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.detection.python_packages import conda, pipfiles, poetry, portable
from moorage.runtime.builds.detection.reading import Folder

REQUIREMENTS = (
    "requirements.txt",
    "requirements/prod.txt",
    "requirements/production.txt",
    "requirements/base.txt",
    "requirements/common.txt",
    "requirements/requirements.txt",
    "requirements-prod.txt",
    "requirements.in",
)
LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "Pipfile.lock")
# Names of the files with generated requirements and constraints.
GENERATED = "requirements.txt"
CONSTRAINTS = "constraints.txt"
_SETTINGS = ("pyproject.toml", "uv.toml", "poetry.toml", "pdm.toml")
_INCLUDE = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[ =]*(\S+)")
# A line of a requirements file whose result depends only on the line: options, versions, URLs of archives.
_FIXED = re.compile(
    r"\s*(?:(?:#.*|-(?!e\b|-editable\b).*|[A-Za-z0-9][\w.-]*(?:\s*\[[^]]*\])?(?:\s*(?:[<>=!~;(,#\\].*|@\s*https?:.*))?|\\)\s*)?",
    re.DOTALL,
)
# Packages of a lock that are folders or files of the repository, other than the project itself.
_LOCAL_IN_LOCK = re.compile(
    r'source = \{ (?:editable|directory|path|virtual) = "(?!\.")|^type = "(?:directory|file)"|^path = "', re.MULTILINE
)
MAX_INCLUDED = 50


@dataclass(frozen=True, slots=True)
class PythonManager:
    """Source of a project's dependencies."""

    kind: Literal["uv", "pip", ""]  # "": there are no dependencies
    label: str  # for the log
    files: tuple[str, ...] = ()  # arguments of `-r`
    generated: str = ""  # requirements made from another format
    constraints: str = ""  # versions and hashes of a lock
    is_package: bool = False  # The project itself may be installed as well.
    notes: tuple[str, ...] = ()  # for the log


def find_manager(folder: Folder) -> PythonManager:
    """Return the manager of a project: by lock, else by what lists its dependencies."""
    project = folder.project
    is_package = is_installable(project)
    if project and (folder.has("uv.lock") or _in_uv_workspace(folder)):
        return PythonManager("uv", "uv sync --frozen", is_package=is_package)
    if lock := next((name for name in ("poetry.lock", "pdm.lock") if project and folder.has(name)), None):
        manager = _of_project(folder, f"pip install ({lock})", is_package)
        return replace(manager, constraints=poetry.constraints(folder, lock))
    if folder.has("pylock.toml"):
        return PythonManager("pip", "uv pip install -r pylock.toml", ("pylock.toml",), is_package=is_package)
    if folder.has("Pipfile.lock"):
        return PythonManager("pip", "pip install (Pipfile.lock)", generated=pipfiles.from_lock(folder))
    if name := next((name for name in REQUIREMENTS[:-1] if folder.has(name)), None):
        if changed := portable.requirements(folder, name):
            note = f"{name} has lines of another machine: {', '.join(changed.changes)}"
            return PythonManager("pip", f"pip install -r {name}", generated=changed.text, notes=(note,))
        return PythonManager("pip", f"pip install -r {name}", (name,))
    if folder.has("Pipfile"):
        return PythonManager("pip", "pip install (Pipfile)", generated=pipfiles.from_pipfile(folder))
    return _without_lock(folder, is_package)


def _without_lock(folder: Folder, is_package: bool) -> PythonManager:
    project = folder.project
    if is_package or _declared(folder) or "poetry" in _table(project, "tool"):
        label = "pip install ." if is_package else "pip install (dependencies of pyproject.toml)"
        return _of_project(folder, label, is_package)
    if folder.has("requirements.in"):
        return PythonManager("pip", "pip install -r requirements.in", ("requirements.in",))
    if name := next((name for name in conda.FILES if folder.has(name)), None):
        return PythonManager("pip", f"pip install ({name})", generated=conda.requirements(folder, name))
    if folder.has("setup.py") or "install_requires" in (folder.find_text("setup.cfg") or ""):
        return PythonManager("pip", "pip install .", is_package=True)
    return PythonManager("", "python -m venv")


def _of_project(folder: Folder, label: str, is_package: bool) -> PythonManager:
    if _declared(folder) or "project" in folder.project:
        return PythonManager("pip", label, ("pyproject.toml",), is_package=is_package)
    return PythonManager("pip", label, generated=poetry.requirements(folder), is_package=is_package)


def python_manager(folder: Folder) -> str:
    """Return the install command of a Python app for the log."""
    return find_manager(folder).label


def is_installable(project: dict[str, Any]) -> bool:
    """Return whether a pyproject.toml describes a package."""
    tool = _table(project, "tool")
    is_application = _table(tool, "poetry").get("package-mode") is False or _table(tool, "uv").get("package") is False
    return "build-system" in project and not is_application


def named_dependencies(folder: Folder) -> list[str]:
    """Return the dependencies of a pyproject.toml."""
    return [each for each in _declared(folder) if not each.lstrip().startswith("-")]


def inputs(folder: Folder) -> dict[str, str] | None:
    """Return the files on which the installed dependencies depend; None for others."""
    manager = find_manager(folder)
    texts = {name: text for name in (*LOCKS, *_SETTINGS) if (text := folder.find_text(name)) is not None}
    if _LOCAL_IN_LOCK.search("\n".join(texts.get(name, "") for name in ("uv.lock", "poetry.lock", "pdm.lock"))):
        return None
    if manager.kind == "uv":
        return texts if "uv.lock" in texts else None
    lines = manager.generated.splitlines()
    for name in (*manager.files, *(match[1] for match in map(_INCLUDE.match, lines) if match)):
        included = _included(folder, name)
        texts |= included
        lines += [] if name.endswith(".toml") else [line for text in included.values() for line in text.splitlines()]
    is_computed = "dynamic" in _table(folder.project, "project") and "pyproject.toml" in manager.files
    if is_computed or (manager.kind and not manager.files and not manager.generated):
        return None  # a build that may read any file finds the dependencies
    if "path = " in texts.get("pylock.toml", "") or "tool.uv.sources" in texts.get("pyproject.toml", ""):
        return None
    return texts | {"": manager.generated} if all(_FIXED.fullmatch(line) for line in lines) else None


def _included(folder: Folder, name: str) -> dict[str, str]:
    """Return the text of a requirements file, then of each file that it includes."""
    texts: dict[str, str] = {}
    pending = [name]
    while pending and len(texts) < MAX_INCLUDED:
        path = pending.pop()
        text = folder.find_text(path)
        if path in texts or text is None:
            continue
        texts[path] = text
        names = [match[1] for match in map(_INCLUDE.match, text.splitlines()) if match]
        pending += [str(PurePosixPath(path).parent / name) for name in names]
    return texts


def _in_uv_workspace(folder: Folder) -> bool:
    """Return whether a folder above has the lock of a uv workspace."""
    above = PurePosixPath(folder.base).parents if folder.base else ()
    roots = (Folder(folder.root, "" if str(path) == "." else str(path)) for path in above)
    return any(root.has("uv.lock") and "workspace" in _table(_table(root.project, "tool"), "uv") for root in roots)


def _declared(folder: Folder) -> list[str]:
    dependencies = _table(folder.project, "project").get("dependencies")
    return [each for each in dependencies if isinstance(each, str)] if isinstance(dependencies, list) else []


def _table(value: dict[str, Any], name: str) -> dict[str, Any]:
    table = value.get(name)
    return table if isinstance(table, dict) else {}
