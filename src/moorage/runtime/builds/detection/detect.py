"""Detect the kind of a project from its files, and plan its build.

Settings of the user take precedence. Everything else is detected, and each decision is a sentence in the log.
"""

from __future__ import annotations

import shutil
from dataclasses import replace

from moorage.runtime.builds.detection import managers
from moorage.runtime.builds.detection.frameworks import Framework, find_framework, is_node_server
from moorage.runtime.builds.detection.reading import Folder, folder_inside
from moorage.runtime.builds.detection.starts import (
    NODE_FILES,
    PYTHON_MAINS,
    find_python_app,
    find_start,
    procfile_web,
)
from moorage.runtime.builds.ports import DEFAULT_CMD, DEFAULT_DIR, BuildFailed, BuildRequest, Plan
from moorage.runtime.workers import toolchain

LANGUAGES = {"nodejs": "Node.js", "python": "Python", "go": "Go", "docker": "Docker"}
PYTHON_FILES = ("requirements.txt", "pyproject.toml", "uv.lock", "manage.py")
HUGO_FILES = ("hugo.toml", "hugo.yaml", "hugo.json")
NO_IMAGES = (
    "this machine cannot build images, so a Dockerfile is of no use here: choose the language nodejs, python or go and "
    "the app is built from its sources, or run the platform with a Docker engine"
)
GO_PATH = f"{toolchain.SYSTEM_PATH}:/usr/local/go/bin"


def open_base(request: BuildRequest) -> Folder:
    """Return the base folder; raises BuildFailed if it is not inside the repository."""
    base = folder_inside(request.source, request.base_dir, "baseDir")
    folder = Folder(request.source, base)
    if not folder.path.is_dir():
        raise BuildFailed(f"baseDir {request.base_dir!r} is not a folder of the repository; {listed(request, '')}")
    return folder


def make_plan(request: BuildRequest, folder: Folder) -> Plan:
    """Return the build plan; raises BuildFailed where the kind cannot be detected."""
    folder_inside(folder.path, request.build_dir, "buildDir")
    if _is_static(request, folder):
        return _static_plan(request, folder)
    return _container_plan(request, folder)


def describe(plan: Plan) -> list[str]:
    """Return the plan as lines for the log."""
    kind = "static site" if plan.kind == "static" else "container app"
    framework = plan.framework or LANGUAGES.get(plan.language, "plain files")
    lines = [f"detected: {kind}, {framework}"]
    lines += [f"install:  {plan.install}"] if plan.install else []
    lines += [f"build:    {plan.build}"] if plan.build else []
    if plan.kind == "static":
        lines.append(f"publish:  {plan.output_dir or 'the folder itself'}")
    elif plan.start:
        lines.append(f"start:    {plan.start}")
    return [*lines, *plan.notes]


def listed(request: BuildRequest, below: str) -> str:
    """List the existing folders for the error message of a missing one."""
    folders = (request.source / below).iterdir()
    names = sorted(path.name for path in folders if path.is_dir() and path.name != ".git")
    if not names:
        return "there are no folders"
    shown = ", ".join(names[:20])
    return f"there are: {shown}" + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _is_static(request: BuildRequest, folder: Folder) -> bool:
    if request.wanted != "auto":
        return request.wanted == "static"
    if request.start_cmd.strip() or request.entry_point.strip() or request.language not in ("", "auto"):
        return False
    if not request.is_default_build and request.build_dir.strip() not in ("", DEFAULT_DIR):
        return True
    if procfile_web(folder):
        return False
    if folder.package is not None:
        return _is_front_end(folder)
    if folder.has(*PYTHON_FILES):
        return find_python_app(folder) is None and folder.has("index.html")
    if folder.has("go.mod"):
        return False
    if any(name.endswith((".html", ".htm")) for name in folder.names()) or folder.has(*HUGO_FILES):
        return True
    if folder.has("Dockerfile", *PYTHON_MAINS, *NODE_FILES):
        return False
    raise BuildFailed(
        "cannot tell what this project is: there is no package.json, requirements.txt, pyproject.toml, go.mod, "
        "Dockerfile, Procfile, HTML page, main.py or server.js in its base folder"
    )


def _is_front_end(folder: Folder) -> bool:
    framework = find_framework(folder)
    if is_node_server(folder):
        return False
    if framework is not None:
        return framework.is_site
    if "start" in folder.scripts:
        return False
    return "build" in folder.scripts or folder.has("index.html")


# Static sites.


def _static_plan(request: BuildRequest, folder: Folder) -> Plan:
    framework = find_framework(folder) if folder.package is not None else None
    command, notes = _static_command(request, folder, framework)
    plan = Plan("static", "nodejs" if folder.package is not None else "", framework.name if framework else "")
    if not command:
        return _plan_without_build(request, folder, plan, notes)
    install = ""
    if folder.package is not None:
        install = managers.node_manager(folder).label
    elif folder.has(*PYTHON_FILES):
        install, plan = managers.python_manager(folder), replace(plan, language="python")
    if framework is not None and not framework.is_site:
        notes.append(f"{framework.name} is not configured to build a static site")
    return replace(
        plan, install=install, build=command, output_dir=_output(request, folder, framework), notes=tuple(notes)
    )


def _static_command(request: BuildRequest, folder: Folder, framework: Framework | None) -> tuple[str, list[str]]:
    """Return the build command, "" without a build, and notes for the log."""
    command = request.build_cmd.strip()
    is_custom = bool(command) and not request.is_default_build
    if is_custom and command != DEFAULT_CMD:
        return command, []
    if framework and framework.script in folder.scripts:
        return f"npm run {framework.script}", []
    if "build" in folder.scripts:
        return DEFAULT_CMD, []
    if folder.package is None and folder.has(*HUGO_FILES):
        return _hugo(folder), []
    why = "there is no package.json" if folder.package is None else "package.json has no `build` script"
    return "", [f"{why}: nothing is built"]


def _hugo(folder: Folder) -> str:
    if shutil.which("hugo", path=toolchain.SYSTEM_PATH):
        return "hugo --minify"
    if folder.has("index.html"):
        return ""
    raise BuildFailed("this is a Hugo site, and hugo is not installed on this machine; push the built site instead")


def _output(request: BuildRequest, folder: Folder, framework: Framework | None) -> str:
    if request.is_default_build or not request.build_dir.strip():
        if folder.package is None and folder.has(*HUGO_FILES):
            return "public"
        return framework.output if framework else DEFAULT_DIR
    return folder_inside(folder.path, request.build_dir, "buildDir")


def _plan_without_build(request: BuildRequest, folder: Folder, plan: Plan, notes: list[str]) -> Plan:
    """Publish the output folder if the repository has it, else the base folder."""
    output = folder_inside(folder.path, request.build_dir or DEFAULT_DIR, "buildDir")
    is_default = request.is_default_build or not request.build_dir.strip()
    if is_default and not folder.has_folder(output):
        notes.append(
            f"there is no folder {output} either: the folder {folder.base or 'of the repository'} is published"
        )
        output = ""
    return replace(plan, language="", output_dir=output, notes=tuple(notes))


# Container apps.


def _container_plan(request: BuildRequest, folder: Folder) -> Plan:
    language = request.language if request.language in LANGUAGES else _language(folder)
    if language == "docker":
        raise BuildFailed(NO_IMAGES)
    start = find_start(folder, language, request.start_cmd, request.entry_point)
    framework = start.framework
    if language == "nodejs" and (detected := find_framework(folder)):
        framework = detected.name
    plan = Plan("container", language, framework, start=start.command, server=start.server, base=folder.base)
    notes = [f"{start.server} is installed as well, for the app names no server"] if start.server else []
    command = "" if request.is_default_build else request.build_cmd.strip()
    if language == "nodejs" and folder.package is not None:
        manager = managers.node_manager(folder)
        command = command or (f"{manager.name} run build" if "build" in folder.scripts else "")
        plan = replace(plan, install=manager.label)
    elif language == "python":
        needed = f"pip install {start.server}" if start.server else ""
        plan = replace(plan, install=managers.python_manager(folder) or needed)
    elif language == "go":
        command = command or _go_command()
    return replace(plan, build=command, notes=tuple(notes))


def _go_command() -> str:
    if shutil.which("go", path=GO_PATH) is None:
        raise BuildFailed("this is a Go app, and no Go toolchain is installed on this machine")
    return "go build -o app ."


def _language(folder: Folder) -> str:
    if folder.package is not None:
        return "nodejs"
    if folder.has(*PYTHON_FILES):
        return "python"
    if folder.has("go.mod"):
        return "go"
    names = folder.names()
    for language, endings in (("python", (".py",)), ("nodejs", (".js", ".mjs", ".cjs")), ("go", (".go",))):
        if any(name.endswith(endings) for name in names):
            return language
    if folder.has("Dockerfile"):
        return "docker"
    raise BuildFailed(
        "cannot tell the language of this app: there is no package.json, requirements.txt, pyproject.toml, go.mod "
        "or Dockerfile in its base folder"
    )
