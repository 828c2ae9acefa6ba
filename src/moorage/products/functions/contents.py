"""Contents of a function's folder: the main file, and whether its dependencies are there.

The platform applies these rules to an unpacked archive, and the command line to the folder of a user. The module
imports only the standard library, because a client-only installation has nothing else.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from moorage.runtime.workers.runtimes import LANGUAGES, MAIN_FILES

LABELS = {"nodejs": "Node.js", "python": "Python"}
# Folders of bundled dependencies in a Python package, other than the folder of the main file.
VENDORED = ("packages", "virtualenv", ".venv", "lib/python*")


class BadPackage(Exception):
    """The package cannot be deployed; the message is for its author."""


def find_main(folder: Path, runtime: str) -> str:
    """Return the main file of a package, relative to its folder; raises BadPackage."""
    language = _language(runtime)
    main = _main_of(folder, language)
    if main is not None:
        return main
    for other in LANGUAGES:
        if other != language and (other_main := _main_of(folder, other)) is not None:
            raise BadPackage(f"is a {LABELS[other]} package ({other_main}), and the function's runtime is {runtime}")
    raise BadPackage(f"has no main file: {MAIN_FILES[language][0]} should be at its root, or in its only top folder")


def find_language(folder: Path) -> str | None:
    """Return the language whose main file a package has; raises BadPackage."""
    return next((language for language in LANGUAGES if _main_of(folder, language) is not None), None)


def needs_install(folder: Path, runtime: str) -> bool:
    """Return whether a package lists dependencies but lacks them; raises BadPackage."""
    if _language(runtime) == "nodejs":
        return bool(_manifest(folder).get("dependencies")) and not (folder / "node_modules").is_dir()
    names = _requirements(folder)
    return bool(names) and not _has_environment(folder) and not all(_is_at_root(folder, name) for name in names)


def _language(runtime: str) -> str:
    return runtime.partition(":")[0]


def _main_of(folder: Path, language: str) -> str | None:
    candidates = [*_named_mains(folder)] if language == "nodejs" else []
    for name in (*candidates, *MAIN_FILES[language]):
        if os.path.isfile(folder / name):  # False for a name that is too long, where Path.is_file raises OSError
            return name
    return None


def _named_mains(folder: Path) -> list[str]:
    """Return the files that Node.js tries for `main` of package.json, in order."""
    named = _manifest(folder).get("main")
    if not isinstance(named, str) or "\x00" in named or "\\" in named:
        return []
    name = os.path.normpath(named)
    if name == "." or PurePosixPath(name).is_absolute() or name.split("/")[0] == "..":
        return []
    return [name, *(name + ending for ending in (".js", ".cjs", ".mjs", "/index.js"))]


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "package.json"
    if not path.is_file():
        return {}
    try:
        manifest = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise BadPackage("has a package.json that is not valid JSON") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("dependencies", {}), dict):
        raise BadPackage("has a package.json that is not an object, or whose `dependencies` are not one")
    return manifest


def _requirements(folder: Path) -> list[str]:
    """Return the names in requirements.txt; a line without a name is kept whole."""
    path = folder / "requirements.txt"
    lines = path.read_bytes().decode("utf-8-sig", "replace").splitlines() if path.is_file() else []
    requirements = [re.sub(r"(^|\s)#.*", "", line).strip() for line in lines]
    return [_name_in(line) for line in requirements if line and not re.match(r"-(?!r|e|-req|-edit)", line)]


def _name_in(requirement: str) -> str:
    match = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*($|[\[<>=!~;@(\\ ])", requirement)
    return match[1] if match else requirement


def _has_environment(folder: Path) -> bool:
    patterns = (*VENDORED, "*.dist-info", "*.egg-info")
    return any(path.is_dir() for pattern in patterns for path in folder.glob(pattern))


def _is_at_root(folder: Path, requirement: str) -> bool:
    """Return whether a requirement is at the root, as after `pip install --target`."""
    name = re.sub(r"[-_.]+", "_", requirement).lower()
    modules = (path for path in folder.iterdir() if path.is_dir() or path.suffix in (".py", ".so"))
    return any(re.sub(r"[-_.]+", "_", path.name.partition(".")[0]).lower() == name for path in modules)
