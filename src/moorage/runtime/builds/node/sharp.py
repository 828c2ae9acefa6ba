"""Replace versions of sharp that could not be installed.

Versions before 0.33 download their library from another host than the package registry. Where that host cannot be
reached, the package is installed without it, or not at all if it is an optional dependency, and its first use fails.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout, Retry, Step
from moorage.runtime.builds.install import NODE_MODULES

PACKAGE = "sharp@0.33"
NOTE = "sharp could not be installed in the version of the project: a version that brings its library replaces it"
MAX_PACKAGES = 20_000  # folders that are searched
_MISSING = re.compile(
    r"failed to resolve import \"sharp\"|Could not find Sharp|Cannot find (?:package|module) 'sharp'"
    r"|Something went wrong installing the \"sharp\" module|Could not load the \"sharp\" module"
    r"|Cannot find module '[^'\n]*\bsharp(?:-[\w.-]+)?\.node'"
)
_VERSION = re.compile(r'"version" ?: ?"(\d{1,4})\.(\d{1,4})\.')
_OWN_LIBRARY = (0, 33)  # first version that has its library in packages of the registry


def retry(layout: Layout) -> Retry:
    """Return the build with another sharp, for a build that failed without its library."""
    return Retry(_MISSING, NOTE, "the build command with another sharp", prepare=_script(layout, []))


def repair(folder: Folder, layout: Layout) -> Step | None:
    """Return the step that replaces each sharp without its library in `node_modules`; None without one."""
    places = [place for place in _places(folder) if _is_broken(folder, place)]
    if not places:
        return None
    script = _script(layout, places)
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
    patch = f"sed -i {shlex.quote(_loading_by_path(layout))} {fresh}/sharp/lib/sharp.js"
    return f"rm -rf {fresh} && mkdir {fresh} && {install} && {pack} && {patch} && (cd {own} && {copy})"


def _loading_by_path(layout: Layout) -> str:
    """Return the script of sed that lets sharp load its library by its path.

    Gatsby bundles the code of sharp, and refuses bundles that import a package.
    """
    name = "sharp-${runtimePlatform}"
    own = f"{layout.root or layout.base}/{NODE_MODULES}/sharp/{NODE_MODULES}/@img/{name}/lib/{name}.node"
    load = f"const own = {{ exports: {{}} }}; process.dlopen(own, `{own}`); sharp = own.exports"
    return f"s|^if (sharp) {{|if (!sharp) try {{ {load}; }} catch (err) {{ errors.push(err); }}\\n&|"


def _places(folder: Folder) -> Iterator[str]:
    """Yield the paths at which package managers put sharp."""
    yield f"{NODE_MODULES}/sharp"
    for name in _names(folder, NODE_MODULES):
        if name == ".pnpm":
            stored = (each for each in _names(folder, f"{NODE_MODULES}/.pnpm") if each.startswith("sharp@"))
            yield from (f"{NODE_MODULES}/.pnpm/{each}/{NODE_MODULES}/sharp" for each in stored)
            continue
        packages = [f"{name}/{each}" for each in _names(folder, f"{NODE_MODULES}/{name}")] if name[0] == "@" else [name]
        yield from (f"{NODE_MODULES}/{package}/{NODE_MODULES}/sharp" for package in packages)


def _names(folder: Folder, parent: str) -> list[str]:
    return os.listdir(folder.path / parent)[:MAX_PACKAGES] if folder.has_folder(parent) else []


def _is_broken(folder: Folder, place: str) -> bool:
    text = folder.find_text(f"{place}/package.json")
    if text is None or (folder.path / place).is_symlink():
        return False
    match = _VERSION.search(text)
    is_old = match is not None and (int(match[1]), int(match[2])) < _OWN_LIBRARY
    return is_old and not folder.glob(f"{place}/build/Release/*.node")
