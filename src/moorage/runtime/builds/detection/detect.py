"""Detect the kind of a project by the table of detectors, and plan its build.

Settings of the user take precedence. Everything else is detected, and each decision is a sentence in the log.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import replace

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.detection import (
    assets,
    go,
    managers,
    python_managers,
    secret_names,
    shells,
    site_scripts,
    starts,
    workspaces,
)
from moorage.runtime.builds.detection.python_managers import find_manager, python_manager
from moorage.runtime.builds.detection.python_packages import companions, imports
from moorage.runtime.builds.detection.reading import Folder, folder_inside, without_links
from moorage.runtime.builds.detection.shells import MANIFESTS
from moorage.runtime.builds.detection.table import ROWS, deno, front_ends, functions, node, other, python, sites
from moorage.runtime.builds.detection.table.row import Row
from moorage.runtime.builds.detection.values import additions
from moorage.runtime.builds.ports import DEFAULT_CMD, DEFAULT_DIR, BuildFailed, BuildRequest, Kind, Plan

LANGUAGES = {"nodejs": "Node.js", "python": "Python", "go": "Go", "docker": "Docker"}
MAX_NAMES = 12
MAX_BESIDE = 4  # apps of a repository of which one is the front end
_ADD = {
    "npm": "npm install --no-save --no-audit --no-fund",
    "pnpm": "pnpm add --config.node-linker=hoisted --config.ignore-workspace-root-check=true",
    "yarn": "yarn add",
    "bun": "bun add --no-save",
}


@dataclass(frozen=True, slots=True)
class Match:
    row: Row
    why: str  # files and packages that the row recognised


@dataclass(frozen=True, slots=True)
class Decision:
    plan: Plan
    match: Match | None  # None where only settings of the user decide
    before: tuple[Row, ...]  # rows that were considered and do not match
    after: tuple[Row, ...]  # rows that come later in the table


def open_base(request: BuildRequest) -> Folder:
    """Return the base folder, at a path without links; raises BuildFailed if it is not inside the repository."""
    return Folder(request.source, without_links(request.source, _choose_base(request).base))


def _choose_base(request: BuildRequest) -> Folder:
    base = folder_inside(request.source, request.base_dir, "baseDir")
    folder = Folder(request.source, base)
    if not os.path.isdir(folder.path):  # False for a name that is too long, where Path.is_dir raises OSError
        raise BuildFailed(f"baseDir {request.base_dir!r} is not a folder of the repository; {listed(request, '')}")
    is_chosen = base or request.start_cmd.strip() or request.entry_point.strip() or not request.is_default_build
    if is_chosen or request.language == "docker":
        return folder
    place, _ = starts.enters(starts.procfile_web(folder))
    if place and not folder.has(*MANIFESTS) and any(folder.has(f"{place}/{each}") for each in MANIFESTS):
        return Folder(request.source, folder_inside(request.source, place, "the folder in the Procfile"))
    if place := shells.find_app(folder):
        return Folder(request.source, folder_inside(request.source, place, "the folder in the script `build`"))
    app = workspaces.choose_app(folder)
    return app if app.base else _only_app(folder)


def _only_app(folder: Folder) -> Folder:
    """Return the only sub-folder with an app, or the front end of several, where the folder itself has none.

    Raises BuildFailed where several are equal: their Python files would make the folder look like one app.
    """
    apps = _apps_below(folder)
    if len(apps) > 1 and folder.has(*other.DOCKERFILES):
        return folder
    if len(apps) > 1:
        chosen = front_ends.choose(apps) or _only_front_end(folder, apps)
        apps = [chosen] if chosen and _is_whole(Folder(folder.root, chosen)) else apps
    if len(apps) > 1:
        raise BuildFailed(f"there are several apps, in {', '.join(apps[:MAX_NAMES])}: set baseDir to the folder of one")
    if not apps and folder.has(*other.SETTINGS) and not folder.has(*other.DOCKERFILES):
        images = other.composed(folder) if _is_unknown(folder) else []
        apps = images if len(images) == 1 else []
    if not apps and not any(row.sign.find(folder) for row in ROWS) and not other.refused_below(folder):
        pages = sites.page_folders(folder)
        apps = pages if len(pages) == 1 else []
    return Folder(folder.root, apps[0]) if apps else folder


def _only_front_end(folder: Folder, apps: list[str]) -> str:
    """Return the only site that is built with Node.js, where all others are servers; or ""."""
    if len(apps) > MAX_BESIDE:
        return ""
    rows = {place: _row(Folder(folder.root, place)) for place in apps}
    pages = [place for place, row in rows.items() if row and row.kind == "static" and row.language == "nodejs"]
    return pages[0] if len(pages) == 1 and all(row and not row.refusal for row in rows.values()) else ""


def _row(folder: Folder) -> Row | None:
    return next((row for row in ROWS if _find(row, folder, needs_start=True) is not None), None)


def _is_whole(folder: Folder) -> bool:
    """Return whether a row recognises more of a folder than its manifest."""
    row = _row(folder)
    return row is not None and not row.refusal and row not in (*node.LAST, *other.DOCKER)


def _is_unknown(folder: Folder) -> bool:
    return next((row in other.DOCKER for row in ROWS if row.sign.find(folder) is not None), True)


def _apps_below(folder: Folder) -> list[str]:
    """Return the sub-folders with an app, else those one level deeper; [] where the folder itself is one."""
    known = (*deno.ROWS, *functions.ROWS, *sites.HUGO_THEMES, *sites.ROWS)
    rows = (row for row in ROWS if (row.language != "python" or row in known) and row not in other.DOCKER)
    is_shell = shells.is_shell(folder)
    if not is_shell and (
        folder.has(*MANIFESTS, "Procfile") or folder.glob("*.py") or any(row.sign.find(folder) for row in rows)
    ):
        return []
    return _nested_apps(folder)


def make_plan(request: BuildRequest, folder: Folder) -> Plan:
    """Return the build plan; raises BuildFailed where the kind cannot be detected."""
    return decide(request, folder).plan


def decide(request: BuildRequest, folder: Folder) -> Decision:
    """Return the build plan and its reasons; raises BuildFailed where there is none."""
    folder_inside(folder.path, request.build_dir, "buildDir")
    if request.language == "docker" and request.wanted != "static":
        return Decision(additions.with_database(_image_plan(request, folder), folder), None, (), ())
    start = starts.chosen(folder, request)
    kind = _chosen_kind(request, start)
    rows = [row for row in ROWS if _is_candidate(row, request, kind, has_start=bool(start))]
    # One at a time: a broken manifest counts only for the rows that read it.
    match = next((match for row in rows if (match := _find(row, folder, needs_start=not start)) is not None), None)
    if match is not None and match.row.language == "python" and (sentence := other.template(folder)):
        raise BuildFailed(sentence)
    if match is not None and _is_image(match.row, folder):
        match = Match(other.DOCKERFILE, other.DOCKERFILE.sign.find(folder) or "")
        at = rows.index(other.DOCKERFILE)
        plan = additions.with_database(_image_plan(request, folder), folder)
        return Decision(plan, match, tuple(rows[:at]), tuple(rows[at + 1 :]))
    if match is not None and match.row.refusal:
        apps = _nested_apps(folder) if match.row in other.DOCKER else []
        raise BuildFailed(_several(apps) if apps else match.row.text(match.row.refusal, folder))
    if kind == "static" or (match is not None and kind is None and match.row.kind == "static"):
        plan = _static_plan(request, folder, match)
    else:
        plan = _container_plan(request, folder, match, start)
    is_own_build = not request.is_default_build and bool(request.build_cmd.strip())
    if not is_own_build:
        plan = replace(plan, assets=assets.find(folder, plan))
    plan = workspaces.complete(plan, folder, is_own_build=is_own_build)
    plan = additions.with_variables(request, additions.with_examples(plan, folder), folder)
    plan = additions.with_database(plan, folder)
    at = rows.index(match.row) if match else len(rows)
    notes = (*plan.notes, *_notes(folder, match, plan.keys))
    if folder.base and not folder_inside(request.source, request.base_dir, "baseDir"):
        notes = (_place_note(folder), *notes)
    return Decision(replace(plan, notes=notes), match, tuple(rows[:at]), tuple(rows[at + 1 :]))


def _place_note(folder: Folder) -> str:
    """Return the reason why a folder of the repository was chosen."""
    root = Folder(folder.root, "")
    others = [each.base for each in workspaces.apps_of(root) if each.base != folder.base]
    if starts.enters(starts.procfile_web(root))[0] == folder.base:
        why = f"the Procfile enters {folder.base}"
    elif shells.find_app(root) == folder.base:
        why = f"the script `build` of package.json builds {folder.base}"
    elif others:
        why = f"the main app of the workspace is in {folder.base} (others: {', '.join(others[:MAX_NAMES])})"
    elif len(apps := _apps_below(root)) > 1:
        names = ", ".join(apps[:MAX_NAMES])
        return f"{folder.base} is deployed, of the apps in {names}; another project with baseDir deploys another one"
    else:
        why = f"the only app is in {folder.base}"
    return f"{why}, which is deployed; baseDir chooses another folder"


def describe(plan: Plan, health_path: str | None = None) -> list[str]:
    """Return the plan as lines for the log; a health path, "" by default, for apps that serve."""
    kind = "static site" if plan.kind == "static" else "container app"
    other_name = "plain files" if plan.kind == "static" else "a program"
    lines = [f"detected: {kind}, {plan.framework or LANGUAGES.get(plan.language, other_name)}"]
    lines += [f"install:  {plan.install}"] if plan.install else []
    lines += [f"build:    {', '.join(plan.packages)} first"] if plan.packages else []
    if plan.assets is not None:
        commands = " && ".join(filter(None, (plan.assets.install, plan.assets.build)))
        lines.append(f"assets:   {commands}" + (f" in {plan.assets.folder}" if plan.assets.folder else ""))
    lines += [f"build:    {plan.build}"] if plan.build else []
    if plan.language == "docker":
        lines.append(f"start:    {plan.start or 'the command of the image'}")
    elif plan.kind == "static":
        lines.append(f"publish:  {plan.output_dir or 'the folder itself'}")
    elif plan.start:
        lines.append(f"start:    {plan.start}")
        if health_path is not None:
            lines.append("port:     the variable PORT")
            lines.append(f"health:   GET {health_path}, 2xx or 3xx" if health_path else "health:   GET /, below 500")
    return [*lines, *plan.notes]


def explain(decision: Decision, folder: Folder) -> list[str]:
    """Return the reasons of a plan: the row, what it recognised, and the other rows."""
    if decision.match is None:
        return ["row:      none; the settings decide"]
    lines = [f"row:      {decision.match.row.name}", f"because:  {decision.match.why}"]
    with contextlib.suppress(BuildFailed):
        for row in decision.after:
            if also := _find(row, folder, needs_start=True):
                lines.append(f"also:     {row.name} ({also.why}), later in the table")
    names = dict.fromkeys(row.name for row in decision.before)
    return [*lines, f"not:      {', '.join(names)}"] if names else lines


def listed(request: BuildRequest, below: str) -> str:
    """List the existing folders for the error message of a missing one."""
    folders = (request.source / below).iterdir()
    names = sorted(path.name for path in folders if path.is_dir() and path.name != ".git")
    if not names:
        return "there are no folders"
    shown = ", ".join(names[:20])
    return f"there are: {shown}" + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _chosen_kind(request: BuildRequest, start: str) -> Kind | None:
    """Return the kind that settings of the user decide, else None."""
    if request.wanted != "auto":
        return request.wanted
    if request.start_cmd.strip() or request.entry_point.strip() or request.language not in ("", "auto"):
        return "container"
    if not request.is_default_build and request.build_dir.strip() not in ("", DEFAULT_DIR):
        return "static"
    return "container" if start else None


def _is_candidate(row: Row, request: BuildRequest, kind: Kind | None, *, has_start: bool) -> bool:
    if kind is None:
        return not row.is_asked
    if kind == "static":
        return row.kind == "static"
    if request.language in LANGUAGES and row.language != request.language:
        return False
    if row is other.DOCKERFILE and has_start:  # The program is in the repository.
        return False
    if has_start:  # The row says how to install and build; how to start is known.
        return not row.refusal and not row.is_asked and (row.kind == "container" or row.language == "nodejs")
    return row.kind == "container"


def _find(row: Row, folder: Folder, *, needs_start: bool) -> Match | None:
    why = row.sign.find(folder)
    if why is None:
        return None
    starts_itself = bool(row.refusal) or row is other.DOCKERFILE
    if needs_start and row.kind == "container" and not starts_itself and not row.text(row.start, folder):
        return None
    return Match(row, why)


def _is_image(row: Row, folder: Folder) -> bool:
    """Return whether a Dockerfile is all that can build a repository."""
    is_refused = bool(row.refusal) and row not in other.DOCKER
    if row is other.DOCKERFILE or other.DOCKERFILE.sign.find(folder) is None:
        return row is other.DOCKERFILE
    # Python files of several apps below, none of which is installed in the base folder.
    is_part = row in python.APPS and not folder.has(*MANIFESTS, "Procfile") and len(_nested_apps(folder)) > 1
    return is_refused or is_part


def _image_plan(request: BuildRequest, folder: Folder) -> Plan:
    return Plan("container", "docker", "Dockerfile", start=request.start_cmd.strip(), base=folder.base)


# Static sites.


def _static_plan(request: BuildRequest, folder: Folder, match: Match | None) -> Plan:
    command = request.build_cmd.strip()
    is_own = bool(command) and not request.is_default_build and command != DEFAULT_CMD
    row = match.row if match is not None else None
    language = row.language if row else "nodejs" if folder.package is not None else _language(folder)
    plan = Plan("static", language, row.name if row else "")
    command = command if is_own else _build(row, folder) if row else ""
    if not command:
        return _plan_without_build(request, folder, row, plan)
    needed = _missing(row, folder) if row and not is_own and language == "python" else ""
    install = ""
    if folder.package is not None and language in ("nodejs", "") and plan.framework != sites.JEKYLL:
        install, plan = managers.node_manager(folder).label, replace(plan, language="nodejs")
    elif language == "python":
        install = python_manager(folder)
        if not find_manager(folder).kind:
            needed = " ".join(dict.fromkeys([*needed.split(), *imports.find(folder)]))
    is_chosen = not request.is_default_build and bool(request.build_dir.strip())
    output = folder_inside(folder.path, request.build_dir, "buildDir") if is_chosen else ""
    output = output or (row.text(row.output, folder) if row else "") or DEFAULT_DIR
    return replace(
        plan, install=install, build=command, output_dir=output, server=needed, notes=_site_notes(folder, row)
    )


def _plan_without_build(request: BuildRequest, folder: Folder, row: Row | None, plan: Plan) -> Plan:
    """Publish the folder that the user chose, else the one with the index page, else the base folder."""
    is_default = request.is_default_build or not request.build_dir.strip()
    why = "there is no package.json" if folder.package is None else "package.json has no `build` script"
    output = folder_inside(folder.path, request.build_dir or DEFAULT_DIR, "buildDir")
    if is_default and row is not None:
        output = row.text(row.output, folder)
    elif is_default and not folder.has_folder(output):
        output = ""
    return replace(plan, language="", output_dir=output, notes=(f"{why}: nothing is built",))


def _site_notes(folder: Folder, row: Row | None) -> tuple[str, ...]:
    if row is None or row.name != node.SITE:
        return ()
    server = next((each for each in node.FULL_STACK if each.sign.find(folder) and not each.is_asked), None)
    return (f"{server.name} is not configured to build a static site",) if server else ()


# Container apps.


def _container_plan(request: BuildRequest, folder: Folder, match: Match | None, start: str) -> Plan:
    row = match.row if match is not None else None
    language = request.language if request.language in LANGUAGES else row.language if row else _language(folder)
    if row is None and not start:
        raise BuildFailed(_cannot_start(folder, language))
    plan = Plan("container", language, row.name if row else "", base=folder.base)
    keys = dict.fromkeys((*(row.keys if row else ()), *secret_names.find(folder, language)))
    plan = replace(plan, start=start or (row.text(row.start, folder) if row else ""), keys=tuple(keys))
    command = "" if request.is_default_build else request.build_cmd.strip()
    command = command or (_build(row, folder) if row else "")
    needed = _missing(row, folder) if row and not start else ""
    if language == "go" and start and request.is_default_build:
        command, start = go.build_for(folder, start, command)
        plan = replace(plan, start=start)
    if language == "nodejs" and workspaces.install_folder(folder).package is not None:
        plan = replace(plan, install=managers.node_manager(folder).label)
    elif language == "python":
        needed = needed or starts.missing_servers(folder, start)
        install = python_manager(folder)
        if not find_manager(folder).kind:
            needed = " ".join(dict.fromkeys([*needed.split(), *imports.find(folder)]))
        notes = (f"{needed} is installed as well: the app does not list it",) if needed else ()
        notes = (*notes, *python_managers.find_manager(folder).notes)
        if bounds := companions.bounds(folder):
            notes = (*notes, f"newer versions do not fit to this project: {', '.join(bounds)}")
        if fixed := companions.fixed(folder):
            notes = (
                *notes,
                f"a pinned version is too old for this Python: {', '.join(fixed)} is installed in its place",
            )
        if companions.has_old_psycopg2(folder):
            notes = (*notes, "psycopg2 is too old for this Python: a current psycopg2-binary is installed in its place")
        plan = replace(plan, install=install, server=needed, notes=notes)
    return replace(plan, build=command)


def _cannot_start(folder: Folder, language: str) -> str:
    if not language:
        return _unknown(folder)
    if apps := _nested_apps(folder):
        return _several(apps)
    more = " or a `start` script in package.json" if language == "nodejs" else ""
    return f"nothing says how to start this app: set startCmd, or add a Procfile with a `web:` line{more}"


def _several(apps: list[str]) -> str:
    if len(apps) == 1:
        return f"the base folder is no app, and there is one in {apps[0]}: set baseDir to that folder"
    return f"there are several apps, in {', '.join(apps[:MAX_NAMES])}: set baseDir to the folder of one"


def _nested_apps(folder: Folder) -> list[str]:
    """Return the sub-folders with a manifest, else those one level deeper."""
    places = folder.folders()
    for level in (places, [inner for place in places for inner in folder.folders(place)]):
        if apps := [place for place in level if any(folder.has(f"{place}/{each}") for each in MANIFESTS)]:
            return apps
    return []


def _unknown(folder: Folder) -> str:
    names = [name for name in folder.names() if name != ".git"]
    if not names:
        return "the repository has no files: commit some and push again"
    if sentence := other.refused_below(folder):
        return sentence
    if sentence := sites.without_index(folder):
        return sentence
    shown = ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")
    return (
        f"cannot tell what this project is: its base folder has {shown}, and no package.json, requirements.txt, "
        "pyproject.toml, go.mod, index.html, main.py, server.js, Procfile or Dockerfile; set baseDir to the folder of "
        "the app, startCmd to its command, or buildDir to the folder with the pages"
    )


def _build(row: Row, folder: Folder) -> str:
    """Return the build command of a row; a script of package.json comes before the tool itself."""
    if row.language != "nodejs" or folder.package is None:
        return row.text(row.build, folder)
    manager = managers.node_manager(folder).name
    script = next((name for name in row.scripts if folder.scripts.get(name, "").strip()), "")
    command = row.text(row.build, folder)
    script = script or (site_scripts.find(folder, command) if row.kind == "static" else "")
    command = f"{manager} run {script}" if script else command
    missing = _missing(row, folder)
    parts = (f"{_ADD[manager]} {missing}" if missing else "", command, row.text(row.after, folder))
    return " && ".join(part for part in parts if part)


def _missing(row: Row, folder: Folder) -> str:
    """Return the packages that the commands of a row need and the project does not list.

    One with an upper bound is returned in any case: a project that names no version would get one that is too new.
    """
    listed = set(folder.node_packages) if row.language == "nodejs" else folder.python_packages
    words = row.text(row.server, folder).split()
    names = [re.sub(r"[\[<>=~!].*", "", word) for word in words]
    return " ".join(word for word, name in zip(words, names, strict=True) if name not in listed or "<" in word)


def _language(folder: Folder) -> str:
    """Return the language by its manifest, else by files of the base folder; "" if unknown."""
    manifests = (("nodejs", ("package.json",)), ("python", python.MANIFESTS), ("go", ("go.mod",)))
    endings = (("python", ("*.py",)), ("nodejs", ("*.js", "*.mjs", "*.cjs")), ("go", ("*.go",)))
    rules = (*manifests, *endings)
    return next((language for language, names in rules if any(folder.glob(name) for name in names)), "")


def _notes(folder: Folder, match: Match | None, keys: tuple[str, ...]) -> tuple[str, ...]:
    notes = [note] if match is not None and (note := match.row.text(match.row.note, folder)) else []
    if keys:
        has, them = ("have random values", "them") if len(keys) > 1 else ("has a random value", "it")
        notes.append(f"{', '.join(keys)} {has} of this project, unless a variable or a secret sets {them}")
    if folder.has("Dockerfile"):
        notes.append("the Dockerfile is not used: the project is built from its sources (language docker builds it)")
    return tuple(notes)
