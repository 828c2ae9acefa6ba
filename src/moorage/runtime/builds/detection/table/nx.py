"""Rows for Nx workspaces, whose apps have no package.json of their own: `nx build` at the root builds each of them."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table.row import Row, Sign, file, npm
from moorage.runtime.builds.ports import Kind

MAX_APPS = 50
MAX_SHOWN = 8
PLACES = ("apps", "packages")  # folders of projects, also one level deeper
OLD_SETTINGS = ("workspace.json", "angular.json")  # all projects in one file
_NAME = re.compile(r"[\w@][\w@./-]{0,100}")
_OWN = r"@(?:nx|nrwl)/"
_NODE = re.compile(rf"{_OWN}(?:esbuild:esbuild|node:build|node:webpack|js:tsc|nest:build)")
_NEXT = re.compile(rf"{_OWN}next:build")
_BUNDLE = re.compile(rf"{_OWN}(?:webpack:webpack|rspack:rspack|vite:build)")  # for Node.js or for browsers
_PAGES = re.compile(
    rf"{_OWN}(?:web:build|web:webpack|react:build|angular:[\w-]+)|@angular-devkit/build-angular:[\w-]+"
    r"|@angular/build:application"
)
_VITE_OUTPUT = re.compile(r"outDir\s*:\s*['\"`]([\w./-]+)")
_WEBPACK_OUTPUT = re.compile(r"path\s*:\s*join\(__dirname,\s*['\"]([\w./-]+)['\"]")
_VITE = ("vite.config.ts", "vite.config.mts", "vite.config.js", "vite.config.mjs")


class NxApp(NamedTuple):
    name: str
    kind: Kind
    output: str  # folder below the root
    start: str = ""


def apps(folder: Folder) -> list[NxApp]:
    """Return the apps of an Nx workspace: the root itself, else the projects below it."""
    own = _app(folder, "", _parsed(folder.find_text("project.json")))
    # A root with pages is left to the row of its framework.
    if own is not None or folder.has("project.json"):
        return [own] if own is not None and own.kind == "container" else []
    nx_apps = {app.name: app for place, project in _projects(folder) if (app := _app(folder, place, project))}
    return list(nx_apps.values())[:MAX_APPS]


def _projects(folder: Folder) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the projects with their folders."""
    for top in PLACES:
        for place in (each for outer in folder.folders(top) for each in (outer, *folder.folders(outer))):
            if text := folder.find_text(f"{place}/project.json"):
                yield place, _parsed(text)
    for name in OLD_SETTINGS:
        projects = _parsed(folder.find_text(name)).get("projects")
        for key, project in (projects if isinstance(projects, dict) else {}).items():
            if isinstance(project, dict):
                yield str(project.get("root", "")).strip("/"), {"name": key, **project}


def _app(folder: Folder, place: str, project: dict[str, Any]) -> NxApp | None:
    name = project.get("name") or posixpath.basename(place)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.endswith("-e2e"):
        return None
    if project.get("projectType", "library") != "application":
        return None
    targets = project.get("targets") or project.get("architect")
    build = targets.get("build") if isinstance(targets, dict) else None
    if not isinstance(build, dict):
        return _inferred(folder, place, name)
    options = build.get("options")
    return _built(
        name, str(build.get("executor") or build.get("builder")), options if isinstance(options, dict) else {}
    )


def _built(name: str, executor: str, options: dict[str, Any]) -> NxApp | None:
    path = options.get("outputPath")
    path = path.get("base") if isinstance(path, dict) else path
    output = posixpath.normpath(path.strip("/")) if isinstance(path, str) and path.strip("/") else f"dist/apps/{name}"
    if output.startswith(".."):
        return None
    is_node = "node" in (options.get("target"), options.get("platform"))
    if _NODE.fullmatch(executor) or (is_node and _BUNDLE.fullmatch(executor)):
        return _node_app(name, output)
    if _NEXT.fullmatch(executor):
        return NxApp(name, "container", output, f"next start {shlex.quote(output)}")
    if _PAGES.fullmatch(executor) or _BUNDLE.fullmatch(executor):
        return NxApp(name, "static", output + ("/browser" if executor.endswith(":application") else ""))
    return None


def _inferred(folder: Folder, place: str, name: str) -> NxApp | None:
    """Return the app of a project without a `build` target, which plugins of Nx add by the files of its bundler."""
    texts = (folder.find_text(f"{place}/{each}") for each in _VITE)
    pages = next((each for each in texts if each), "")
    bundle = folder.find_text(f"{place}/webpack.config.js") or ""
    is_node = not pages and re.search(r"target\s*:\s*['\"]node", bundle) is not None
    if not pages and not is_node:
        return None
    match = _WEBPACK_OUTPUT.search(bundle) if is_node else _VITE_OUTPUT.search(pages)
    output = posixpath.normpath(f"{place}/{match[1] if match else 'dist'}")
    if output.startswith(".."):
        return None
    return _node_app(name, output) if is_node else NxApp(name, "static", output)


def _node_app(name: str, output: str) -> NxApp:
    return NxApp(name, "container", output, f"node {shlex.quote(output)}/main.js")


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _only(folder: Folder, kind: Kind) -> NxApp | None:
    nx_apps = apps(folder)
    return nx_apps[0] if len(nx_apps) == 1 and nx_apps[0].kind == kind else None


def _build(folder: Folder) -> str:
    if folder.has("project.json") and folder.scripts.get("build", "").strip():
        return "npm run build"
    app = _only(folder, "container") or _only(folder, "static")
    return f"nx build {shlex.quote(app.name)}" if app else ""


def _start(folder: Folder) -> str:
    app = _only(folder, "container")
    return app.start if app else ""


def _output(folder: Folder) -> str:
    app = _only(folder, "static")
    return app.output if app else ""


def _refusal(folder: Folder) -> str:
    nx_apps = apps(folder)
    names = ", ".join(each.name for each in nx_apps[:MAX_SHOWN])
    app = next((each for each in nx_apps if each.kind == "container"), nx_apps[0])
    rest = f"startCmd to `{app.start}`" if app.start else f"buildDir to `{app.output}`"
    return (
        f"nx.json has several apps, {names}: set buildCmd to `nx build {app.name}` and {rest}, or to those of another"
    )


_NX = file("nx.json") & npm("nx", "@nrwl/workspace", "@nrwl/cli", "@nrwl/schematics")
ROWS = (
    Row("Nx", "container", "nodejs", _NX & Sign("one app for Node.js", lambda folder: (
        None if (app := _only(folder, "container")) is None else f"the app {app.name}")), build=_build, start=_start),
    Row("Nx (static)", "static", "nodejs", _NX & Sign("one app with pages", lambda folder: (
        None if (app := _only(folder, "static")) is None else f"the app {app.name}")), build=_build, output=_output),
    Row("Nx with several apps", "container", "nodejs", _NX & Sign("several apps", lambda folder: (
        f"{len(nx_apps)} apps" if len(nx_apps := apps(folder)) > 1 else None)), refusal=_refusal),
)  # fmt: skip
