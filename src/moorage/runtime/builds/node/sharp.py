"""Replace versions of sharp that could not be installed.

Versions before 0.33 download their library from another host than the package registry. Where that host cannot be
reached, the package is installed without it, or not at all if it is an optional dependency, and its first use fails.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from moorage.runtime.builds.environment import Layout, Retry, Step

PACKAGE = "sharp@0.33"
NOTE = "sharp could not be installed in the version of the project: a version that brings its library replaces it"
MAX_PACKAGES = 20_000  # folders that are searched
_MISSING = re.compile(
    r"failed to resolve import \"sharp\"|Could not find Sharp|Cannot find (?:package|module) 'sharp'"
    r"|Something went wrong installing the \"sharp\" module|Could not load the \"sharp\" module"
    r"|Cannot find module '[^'\n]*\bsharp(?:-[\w.-]+)?\.node'"
)
_OWN_LIBRARY = (0, 33)  # first version that has its library in packages of the registry


def retry(build: str, layout: Layout) -> Retry:
    """Return the build with another sharp, for a build that failed without its library."""
    script = f"{_script(layout, [])} && {build}"
    return Retry(_MISSING, NOTE, "the build command with another sharp", ["/bin/sh", "-c", script])


def repair(modules: Path, layout: Layout) -> Step | None:
    """Return the step that replaces each sharp without its library in a folder of packages; None without one."""
    found = [str(path.relative_to(modules.parent)) for path in _broken(modules)]
    if not found:
        return None
    script = _script(layout, found)
    return Step(f"npm install {PACKAGE}", ["/bin/sh", "-c", script], is_optional=True, is_quiet=True)


def _script(layout: Layout, places: list[str]) -> str:
    """Return the commands that put sharp and all its dependencies into folders of packages.

    With its dependencies inside, the folder can be copied next to packages of any package manager.
    """
    fresh = f"{layout.tmp}/moorage-sharp"
    own = shlex.quote(layout.root or layout.base)
    install = f"npm install --prefix {fresh} --no-audit --no-fund --no-package-lock --loglevel=error {PACKAGE}"
    pack = f"mv {fresh}/node_modules/sharp {fresh}/sharp && mv {fresh}/node_modules {fresh}/sharp/node_modules"
    listed = " ".join(map(shlex.quote, places)) if places else "node_modules/sharp"
    copy = f'for place in {listed}; do rm -rf "$place" && mkdir -p "$place" && cp -R {fresh}/sharp/. "$place"; done'
    return f"rm -rf {fresh} && mkdir {fresh} && {install} && {pack} && (cd {own} && {copy})"


def _broken(modules: Path) -> Iterator[Path]:
    parents = [modules, *_nested(modules)]
    for path in (parent / "sharp" for parent in parents):
        try:
            version = json.loads((path / "package.json").read_text()).get("version", "")
        except (OSError, ValueError, AttributeError):
            continue
        match = re.match(r"(\d{1,4})\.(\d{1,4})\.", str(version))
        is_old = match is not None and (int(match[1]), int(match[2])) < _OWN_LIBRARY
        if is_old and not path.is_symlink() and not any(path.glob("build/Release/*.node")):
            yield path


def _nested(modules: Path) -> list[Path]:
    """Return the folders of packages inside of packages, one level deep."""
    found = [*modules.glob("*/node_modules"), *modules.glob("@*/*/node_modules")]
    return [path for path in found[:MAX_PACKAGES] if path.is_dir() and not path.is_symlink()]
