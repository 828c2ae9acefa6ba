"""Workspaces of npm, pnpm and yarn: repositories with several packages and one installation at their root."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import PurePosixPath

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table import front_ends, node
from moorage.runtime.builds.detection.table.node_starts import has_server
from moorage.runtime.builds.detection.table.sites import INDEX
from moorage.runtime.builds.ports import BuildFailed, Plan

MAX_PACKAGES = 400
MAX_FOLDERS = 20_000  # visited in search of packages
MAX_DEPTH = 8  # of a package below the workspace root
MAX_PATTERNS = 100
MAX_SHOWN = 12
# Names of apps that accompany another one: documentation, previews of components, clients that are not web pages.
COMPANIONS = frozenset(
    {
        *("docs", "doc", "documentation", "storybook", "workshop", "playground", "example", "examples", "demo", "e2e"),
        *("mobile", "native", "expo", "ios", "android", "desktop", "electron", "extension", "cli", "email", "emails"),
        *("mock", "mocks"),
    }
)
_EXAMPLES = frozenset({"example", "examples", "demo", "e2e", "playground"})
_LOCAL = re.compile(r"(?:file|link|portal|workspace):(\.{1,2}/.*|\.{1,2})")
_ALIAS = re.compile(r"workspace:((?:@[\w.-]+/)?[\w.-]+)@")
_DEFAULT_BUILD = re.compile(r"(?:npm|pnpm|yarn|bun) run ([\w:.-]+)(?=$| && )")
# Commands that run scripts of packages.
_DELEGATES = re.compile(
    r"\b(?:turbo|nx|lerna|workspaces?)\b|(?:^|\s)(?:-w|-ws|-r|--recursive|--filter|--cwd|--prefix|-C)\b"
)
# Commands that run several apps at the same time, for development.
_TOGETHER = re.compile(r"\b(?:concurrently|npm-run-all|run-[ps])\b|--parallel\b|\bturbo\s+(?:run\s+)?dev\b")
_OF_PACKAGE = re.compile(r"(?:--filter|--workspace|-w|-F|\bworkspace)[ =]+['\"]?((?:@[\w.-]+/)?[\w.-]+)")
_IN_FOLDER = re.compile(r"(?:--cwd|--prefix|-C)[ =]+['\"]?(?:\./)?([\w./-]+)")
_PACKAGE_NAME = re.compile(r"(?:@[\w.~-]+/)?[\w.~-]+")


@dataclass(frozen=True)
class Workspace:
    root: Folder

    @cached_property
    def packages(self) -> dict[str, Folder]:
        """Packages by their folder below the root."""
        packages: dict[str, Folder] = {}
        patterns = patterns_of(self.root)
        for path in _folders(self.root):
            if _matches(path, patterns) and (package := _readable(self.root, path)) is not None:
                packages[path] = package
                if len(packages) > MAX_PACKAGES:
                    raise BuildFailed(f"this workspace has more than {MAX_PACKAGES} packages")
        return packages

    @cached_property
    def _paths(self) -> dict[str, str]:
        """Folders of the packages by package name."""
        names = {path: (package.package or {}).get("name") for path, package in self.packages.items()}
        return {name: path for path, name in names.items() if isinstance(name, str)}

    def dependencies(self, path: str) -> list[str]:
        """Return the packages that a package depends on, each after its own dependencies.

        The package itself is among them only as part of a cycle.
        """
        order: list[str] = []
        self._visit(path, set(), order)
        is_cyclic = any(path in self._direct(each) for each in order[:-1])
        return order if is_cyclic else order[:-1]

    def _visit(self, path: str, seen: set[str], order: list[str]) -> None:
        seen.add(path)
        for other in self._direct(path):
            if other not in seen:
                self._visit(other, seen, order)
        order.append(path)

    def _direct(self, path: str) -> list[str]:
        package = self.packages.get(path)
        fields = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
        wanted: dict[str, object] = {}
        for field in fields:
            value = ((package.package if package else None) or {}).get(field)
            wanted |= value if isinstance(value, dict) else {}
        paths = (self._locate(path, name, str(version)) for name, version in sorted(wanted.items()))
        return [each for each in dict.fromkeys(paths) if each is not None and each != path]

    def _locate(self, path: str, name: str, version: str) -> str | None:
        """Return the folder of a dependency inside the workspace, or None."""
        if local := _LOCAL.match(version):
            target = os.path.normpath(PurePosixPath(path, local[1]))
            return target if target in self.packages else None
        alias = _ALIAS.match(version)
        return self._paths.get(alias[1] if alias else name)


def find_workspace(folder: Folder) -> tuple[Workspace, str] | None:
    """Return the workspace that a folder is a package of, and its path there; or None.

    The nearest parent whose patterns match counts, and never a folder outside of the repository. A folder without a
    package.json, such as an example, has the packages of the nearest parent with one, where Node.js finds them.
    """
    if not folder.base:
        return None
    parts = PurePosixPath(folder.base).parts
    for depth in reversed(range(len(parts))):
        root, path = Folder(folder.root, "/".join(parts[:depth])), "/".join(parts[depth:])
        if folder.package is None and root.has("package.json"):
            return None if patterns_of(root) else (Workspace(root), path)
        if folder.package is not None and _matches(path, patterns_of(root)):
            return Workspace(root), path
    return None


def install_folder(folder: Folder) -> Folder:
    """Return the folder where packages are installed: the workspace root, or the folder itself."""
    location = find_workspace(folder)
    return location[0].root if location else folder


def patterns_of(root: Folder) -> list[str]:
    """Return the patterns of the packages' folders; empty if it is no workspace root."""
    text = root.find_text("pnpm-workspace.yaml")
    if text is not None:
        return _yaml_list(text, "packages")[:MAX_PATTERNS]
    package = _readable(root, "")
    wanted = (package.package or {}).get("workspaces") if package else None
    wanted = wanted.get("packages") if isinstance(wanted, dict) else wanted
    return [each for each in wanted if isinstance(each, str)][:MAX_PATTERNS] if isinstance(wanted, list) else []


def choose_app(root: Folder) -> Folder:
    """Return the only app of a workspace whose root is none itself, beside its documentation; else the root.

    Raises BuildFailed where the workspace has several apps.
    """
    if not patterns_of(root) or _is_root_app(root):
        return root
    if named := _started(root):
        return named
    apps = apps_of(root)
    start = root.scripts.get("start", "")
    if not apps or (len(apps) > 1 and start and not _TOGETHER.search(start)):
        return root
    main = [each for each in apps if COMPANIONS.isdisjoint(_words_of(each.base))]
    # Of a library with examples, the documentation is what visitors see.
    main = main or [each for each in apps if _EXAMPLES.isdisjoint(_words_of(each.base))]
    if len(apps) == 1 or len(main) == 1:
        return (main or apps)[0]
    names = [each.base for each in apps]
    if chosen := front_ends.choose(names):
        return next(each for each in apps if each.base == chosen)
    shown = ", ".join(names[:MAX_SHOWN]) + (f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else "")
    raise BuildFailed(f"this workspace has several apps, {shown}: set baseDir to the one that is deployed")


def _words_of(path: str) -> set[str]:
    """Return the names of the folders of a path, and their parts: `backend-mock` is a mock."""
    parts = PurePosixPath(path).parts
    return {*parts, *(word for part in parts for word in part.split("-"))}


def _started(root: Folder) -> Folder | None:
    """Return the only package that the scripts of a root run in production, by its name or folder."""
    names = ("start",) if "start" in root.scripts else ("prod", "production")
    text = next((root.scripts[name] for name in names if root.scripts.get(name)), "")
    names_of, folders = _OF_PACKAGE.findall(text), _IN_FOLDER.findall(text)
    if len({*names_of, *folders}) != 1 or re.search(r"\bnode\s", text):
        return None
    packages = Workspace(root).packages
    named = (each for each in packages.values() if (each.package or {}).get("name") in names_of)
    return next(named, None) or packages.get(folders[0].rstrip("/") if folders else "")


def apps_of(root: Folder) -> list[Folder]:
    """Return the packages of a workspace that look like apps."""
    apps = [package for package in Workspace(root).packages.values() if _is_app(package)]
    return sorted(apps, key=lambda each: each.base)


def _is_app(folder: Folder) -> bool:
    """Return whether a package looks like an app, and not like a library."""
    if folder.has("Procfile") or "start" in folder.scripts:
        return True
    is_library = any(field in (folder.package or {}) for field in ("main", "module", "exports", "types"))
    # Often the root alone lists the bundler.
    return "build" in folder.scripts and not is_library and (_has_framework(folder) or folder.has(INDEX))


def _has_framework(folder: Folder) -> bool:
    rows = (*node.FULL_STACK, *node.GENERATORS, *node.BUNDLERS)
    return any(row.sign.find(folder) is not None for row in rows)


def _is_root_app(root: Folder) -> bool:
    """Return whether a workspace root is an app itself: its scripts do more than run those of its packages."""
    if root.has("Procfile") or has_server(root) is not None:
        return True
    start, build = root.scripts.get("start"), root.scripts.get("build")
    if start and not _DELEGATES.search(start) and not _TOGETHER.search(start):
        return True
    return _has_framework(root) and build is not None and not _DELEGATES.search(build)


def complete(plan: Plan, folder: Folder, *, is_own_build: bool = False) -> Plan:
    """Return the plan of a package with what its workspace adds to it; a command of the user builds what it needs."""
    location = find_workspace(folder) if plan.language == "nodejs" else None
    if location is None:
        return plan
    workspace, path = location
    plan = replace(plan, base=workspace.root.base, workdir=path)
    plain = (_DEFAULT_BUILD.fullmatch if is_own_build else _DEFAULT_BUILD.match)(plan.build)
    if plan.build and not plain:
        return plan
    needed = [each for each in workspace.dependencies(path) if each != path]
    built = [each for each in needed if workspace.packages[each].scripts.get("build")]
    if (built or plan.build) and (command := _task_runner(workspace, path, plain[1] if plain else "build")):
        return replace(plan, build=command + (plan.build[plain.end() :] if plain else ""))
    return replace(plan, packages=tuple(PurePosixPath(workspace.root.base, each).as_posix() for each in built))


def _task_runner(workspace: Workspace, path: str, task: str) -> str:
    """Return the command of turbo or nx that builds a package after its dependencies, or ""."""
    root, package = workspace.root, workspace.packages.get(path)
    name = (package.package or {}).get("name") if package else None
    if package is None or not isinstance(name, str) or not _PACKAGE_NAME.fullmatch(name):
        return ""
    if "turbo" in root.node_packages:
        settings = _relaxed_json(root, "turbo.json")
        tasks = settings.get("tasks") or settings.get("pipeline")
        if isinstance(tasks, dict) and (task in tasks or f"{name}#{task}" in tasks):
            return f"turbo run {task} --filter={shlex.quote(f'{name}...')}"
    if "nx" in root.node_packages and task in package.scripts:  # Without a task of its own, nx builds no dependencies.
        defaults = _relaxed_json(root, "nx.json").get("targetDefaults")
        target = defaults.get(task) if isinstance(defaults, dict) else None
        before = target.get("dependsOn") if isinstance(target, dict) else None
        project = _relaxed_json(package, "project.json").get("name") or name
        if isinstance(before, list) and f"^{task}" in before and _PACKAGE_NAME.fullmatch(str(project)):
            return f"nx run-many -t {task} -p {shlex.quote(str(project))}"
    return ""


def _relaxed_json(folder: Folder, name: str) -> dict[str, object]:
    """Parse JSON with comments and trailing commas; {} for anything else than an object."""
    text = folder.find_text(name) or "{}"
    # A string or a comment; those without an end extend to that of the text, so that the search takes linear time.
    text = re.sub(
        r'("(?:[^"\\]|\\.)*"?)|//[^\n]*|/\*.*?(?:\*/|\Z)', lambda match: match[1] or "", text, flags=re.DOTALL
    )
    try:
        value = json.loads(re.sub(r",(\s*[}\]])", r"\1", text))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _readable(root: Folder, path: str) -> Folder | None:
    """Return a folder below another if it has a valid package.json, or None."""
    folder = Folder(root.root, "/".join(filter(None, (root.base, path))))
    try:
        return folder if folder.package is not None else None
    except BuildFailed:  # A package that is not deployed may be invalid, for example a template.
        return None


def _folders(root: Folder) -> Iterator[str]:
    """Yield the folders below a workspace root that may be packages, without following links."""
    pending, visited = [""], 0
    while pending:
        parent = pending.pop()
        names: list[str] = []
        with contextlib.suppress(OSError), os.scandir(root.path / parent) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        for name in names:
            path = f"{parent}/{name}".lstrip("/")
            visited += 1
            if name == "node_modules" or name.startswith(".") or visited > MAX_FOLDERS:
                continue
            yield path
            if path.count("/") + 1 < MAX_DEPTH:
                pending.append(path)


def _matches(path: str, patterns: list[str]) -> bool:
    """Return whether a path matches a pattern, and none that begins with `!`."""
    names = path.split("/")

    def is_among(wanted: list[str]) -> bool:
        return any(_match(names, each) for pattern in wanted for each in _expand(pattern))

    return is_among([each for each in patterns if not each.startswith("!")]) and not is_among(
        [each[1:] for each in patterns if each.startswith("!")]
    )


def _match(names: list[str], pattern: str) -> bool:
    """Match a path by a pattern in which `**` stands for any number of folders."""
    ends = {0}  # numbers of names that the parts of the pattern up to here can match
    for part in (each for each in pattern.split("/") if each not in ("", ".")):
        if part == "**":
            ends = set(range(min(ends, default=len(names) + 1), len(names) + 1))
        else:
            ends = {end + 1 for end in ends if end < len(names) and fnmatch.fnmatchcase(names[end], part)}
    return len(names) in ends


def _expand(pattern: str) -> list[str]:
    """Return the alternatives of a pattern such as `{apps,packages}/*`."""
    expanded = [pattern]
    while len(expanded) < MAX_PATTERNS and (match := re.search(r"\{([^{}]*)\}", expanded[0])):
        before, after = expanded[0][: match.start()], expanded[0][match.end() :]
        expanded = [*expanded[1:], *(f"{before}{each}{after}" for each in match[1].split(",", MAX_PATTERNS))]
    return expanded[:MAX_PATTERNS]


def _yaml_list(text: str, key: str) -> list[str]:
    """Return a list of strings at the top level of a YAML file, in block or flow style."""
    match = re.search(rf"^{key}[ \t]*:[ \t]*(?:#.*)?(\[[^\]]*\]|(?:\n(?:[ \t]*(?:#.*)?$|[ \t]*-[ \t].*))*)", text, re.M)
    if match is None:
        return []
    body = match[1]
    items = body[1:-1].split(",") if body.startswith("[") else re.findall(r"^[ \t]*-[ \t]+(.*)$", body, re.MULTILINE)
    values = (re.fullmatch(r"\s*+(?:\"([^\"]*)\"|'([^']*)'|([^\s#]*))\s*+(?:#.*)?", each) for each in items)
    return [value for match in values if match and (value := match[1] or match[2] or match[3])]
