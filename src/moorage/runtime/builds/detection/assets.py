"""Pages, styles and scripts that npm packages build for a server in Python or Go, or for a Hugo site."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator

from moorage.runtime.builds.detection import managers
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table import front_ends, go, sites
from moorage.runtime.builds.ports import Assets, Plan

_SCRIPTS = ("heroku-postbuild", "build", "build:prod", "production", "prod")
_EMBEDDED = re.compile(r"^//go:embed[ \t]+(.+)$", re.MULTILINE)
_HUGO = re.compile(r"\bhugo\b")
_RUNS = re.compile(r"\b(?:npm|pnpm|yarn|bun)(?: run)? ([\w:.-]+)|\b(?:run-[sp]|npm-run-all)\b([\w:.* -]+)")
_MAX_SCRIPTS = 50


def find(folder: Folder, plan: Plan) -> Assets | None:
    """Return what is built before a plan; None where package.json of no folder builds something for it."""
    if plan.framework == sites.HUGO_SITE and folder.node_packages:
        script = next(iter(_names(folder)), "")
        return _assets(folder, "" if _runs_hugo(folder, script) else script)
    if plan.kind != "container" or plan.language not in ("python", "go"):
        return None
    for place in (folder, *_beside(folder, plan.language)):
        if script := next(iter(_names(place)), ""):
            return _assets(place, script)
    return None


def _assets(place: Folder, script: str) -> Assets:
    manager = managers.node_manager(place)
    return Assets(place.base, manager.label, f"{manager.name} run {script}" if script else "")


def _names(place: Folder) -> list[str]:
    return [name for name in _SCRIPTS if place.scripts.get(name, "").strip()]


def _beside(folder: Folder, language: str) -> Iterator[Folder]:
    """Return the sub-folders with a front end whose built files the code reads."""
    if language == "python":
        names = front_ends.built(folder, folder.python_files.values())
    else:
        names = [*front_ends.built(folder, go.texts(folder).values()), *_embedded(folder)]
    return (Folder(folder.root, f"{folder.base}/{name}".lstrip("/")) for name in names)


def _embedded(folder: Folder) -> list[str]:
    """Return the folders with a front end that contain files which Go embeds."""
    paths: dict[str, None] = {}
    for name, text in go.texts(folder).items():
        for words in _EMBEDDED.findall(text):
            for word in words.split():
                target = word.strip('"`').removeprefix("all:")
                parts = os.path.normpath(f"{os.path.dirname(name)}/{target}".lstrip("/")).split("/")
                paths |= {"/".join(parts[:depth]): None for depth in range(1, len(parts)) if ".." not in parts}
    return [each for each in paths if folder.has(f"{each}/package.json")]


def _runs_hugo(folder: Folder, script: str) -> bool:
    """Return whether a script runs Hugo, itself or by other scripts."""
    pending = [script]
    for name in pending:  # grows
        text = folder.scripts.get(name, "")
        if _HUGO.search(text):
            return True
        words = [word for match in _RUNS.finditer(text) for word in (match[1] or match[2]).split()]
        named = [each for word in words for each in folder.scripts if fnmatch.fnmatchcase(each, word)]
        pending += [each for each in dict.fromkeys(named) if each not in pending][: _MAX_SCRIPTS - len(pending)]
    return False
