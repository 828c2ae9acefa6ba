"""Commands that create an app's virtual environment and install its dependencies.

uv installs them, because it is several times faster than pip, which is the fallback. Other managers are not run: uv
installs the versions and hashes of their locks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from moorage.runtime.builds.detection import python_managers
from moorage.runtime.builds.detection.python_managers import CONSTRAINTS, GENERATED, PythonManager
from moorage.runtime.builds.detection.python_packages import companions, imports
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout, Retry, Step
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.builds.python import old_names

VENV = ".venv"
PYTHON = f"{VENV}/bin/python"
_OTHER_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_RELATIVE = re.compile(r"^(-[rc] )(?!/)|^((?:-e )?)(?=\.\.?/)", re.MULTILINE)
# Up to Python 3.11 a new environment has setuptools, and older packages import its pkg_resources without listing it.
USUAL = "setuptools<81; python_version < '3.12'"
# Folders of packages that apps seldom import, a third of the files of pandas and its like; they work without bytecode.
TESTS = "/site-packages/.*/tests?/"
OVERRIDES = "overrides.txt"
COMPANIONS = "companions.txt"
FIXED = "fixed.txt"
BUILD_TOOLS = "build-tools.txt"
WHEELS, RAISED = "wheels.txt", "raised.txt"
NEWER = "newer-"  # begins the names of lock files in which newer versions of compiled packages are allowed
_CANNOT_COMPILE = re.compile(rf"Failed to build `(?:{'|'.join(map(re.escape, companions.COMPILED))})\b")
_NO_WHEELS = re.compile(rf"has no (?:usable )?wheels|Failed to build `(?:{'|'.join(companions.SMALL)})\b")
# Last versions with which older source packages can be built, such as PyYAML 5.4.
_OLD_BUILD_TOOLS = "setuptools<58\ncython<3\n"
_NEEDS_OLD_TOOLS = re.compile(
    r"'build_ext' object has no attribute 'cython_sources'|use_2to3 is invalid"
    r"|cannot import name '\w+' from 'setuptools'"
)
# Packages that cannot be compiled without libraries of the machine, and compiled packages with the same modules.
_COMPILED = {"psycopg2": "psycopg2-binary>=2.9.5", "uwsgi": "pyuwsgi"}
_FAILED = {
    "psycopg2": re.compile(r"pg_config executable not found|fatal error: libpq-fe\.h|Failed to build `psycopg2\b"),
    "uwsgi": re.compile(r"Failed to build `uwsgi\b", re.IGNORECASE),
}
# Installs the packages of modules that the code imports and that are not installed, one at a time: a module may be
# optional, so that the failure of its package fails neither the build nor the other packages.
_INSTALL_UNLISTED = """
import importlib.util, subprocess, sys
uv, *pairs = sys.argv[1:]
modules = dict(each.split("=") for each in pairs)
for package in sorted({package for name, package in modules.items() if importlib.util.find_spec(name) is None}):
    print(f"{package} is installed as well: the code imports it, and no file lists it", flush=True)
    subprocess.run([uv, "pip", "install", "--quiet", package])
"""
_SYNC = ("sync", "--frozen", "--no-dev", "--no-editable", "--inexact")


def steps(plan: Plan, folder: Folder, layout: Layout) -> list[Step]:
    """Return the commands; those of the dependencies come first and can be cached."""
    manager = python_managers.find_manager(folder)
    # Without access to packages of the machine or the platform.
    create = [layout.python, "-m", "venv", "--clear", "--copies", "--without-pip", VENV]
    commands = [Step("python -m venv", create, without=_OTHER_PYTHON, is_cached=True, is_quiet=True)]
    commands += _with_uv(manager, plan, folder, layout) if layout.uv else _with_pip(manager, plan, folder, layout)
    repair = Step(old_names.LABEL, old_names.argv(PYTHON), without=_OTHER_PYTHON, is_optional=True, is_quiet=True,
                  is_cached=True)  # fmt: skip
    compile_all = compiling(f"{layout.base}/{VENV}/lib", "-x", TESTS)
    number = sum(step.is_cached for step in commands)
    return [*commands[:number], *([repair] if number > 1 else []), compile_all, *commands[number:]]


def write_requirements(folder: Folder, target: Path, base: str) -> None:
    """Write the requirements and constraints that the project has in another format.

    Paths in them are below the base folder, which commands see at `base`.
    """
    manager = python_managers.find_manager(folder)
    for package, compiled in _COMPILED.items():
        # A condition that is never met leaves a package out.
        (target / f"{package}-{OVERRIDES}").write_text(f"{package} ; python_version < '0'\n{compiled}\n")
    large = [name for name in companions.COMPILED if name not in companions.SMALL]
    (target / WHEELS).write_text("".join(f"--only-binary={name}\n" for name in large))
    (target / RAISED).write_text("".join(f"{each}\n" for each in companions.raised(folder)))
    (target / BUILD_TOOLS).write_text(_OLD_BUILD_TOOLS)
    (target / FIXED).write_text("".join(f"{each}\n" for each in companions.fixed(folder)))
    (target / COMPANIONS).write_text("".join(f"{bound}\n" for bound in companions.bounds(folder)))
    for name, text in ((GENERATED, manager.generated), (CONSTRAINTS, manager.constraints)):
        if text:
            text = companions.fixed_lock(_RELATIVE.sub(lambda match: f"{match[1] or match[2] or ''}{base}/", text))
            (target / name).write_text(text)
            newer = companions.loosened(text)
            (target / f"{NEWER}{name}").write_text(newer)
            changed = sorted(set(newer.splitlines()) - set(text.splitlines()))
            with (target / f"{NEWER}{OVERRIDES}").open("a") as file:
                file.writelines(f"{line}\n" for line in changed)


def compiling(path: str, *options: str) -> Step:
    """Return the command that compiles Python files.

    Artifacts keep no modification times, by which Python validates its bytecode, so it would compile everything at each
    start. Unchecked hashes avoid that; `-f` replaces the bytecode that earlier steps have written.
    """
    argv = [PYTHON, "-m", "compileall", "-qq", "-f", "-j", "2", "--invalidation-mode", "unchecked-hash", *options, path]
    return Step("python -m compileall", argv, without=_OTHER_PYTHON, is_optional=True, is_quiet=True, is_cached=True)


def _with_uv(manager: PythonManager, plan: Plan, folder: Folder, layout: Layout) -> list[Step]:
    venv = f"{layout.base}/{VENV}"
    env = {"VIRTUAL_ENV": venv, "UV_PROJECT_ENVIRONMENT": venv, "UV_PYTHON": f"{layout.base}/{PYTHON}"}
    pip = [layout.uv, "pip", "install"]
    server = plan.server.split()
    project = [*pip, "--no-deps", "."]
    if manager.kind == "uv":
        dependencies, project = [layout.uv, *_SYNC, "--no-install-project"], [layout.uv, *_SYNC]
    elif files := _files(manager, layout):
        dependencies, server = [*pip, *files, *server], []
    else:
        dependencies = []
        project = [*pip, "."]  # setup.py: only its build knows the dependencies
    retries: tuple[Retry, ...] = ()
    if dependencies[:3] == pip:
        dependencies, retries = _with_retries(dependencies, manager.label, folder, layout)
    commands = []
    if dependencies:
        # First, so that the version of the project replaces it.
        usual = [*pip, USUAL]
        commands.append(Step("pip install setuptools", usual, env, _OTHER_PYTHON, is_optional=True, is_quiet=True,
                             is_cached=True))  # fmt: skip
        commands.append(Step(manager.label, dependencies, env, _OTHER_PYTHON, is_cached=True, retries=retries))
        commands += _unlisted(folder, layout, env)
    if server:
        bounded = [f"--constraint={layout.bin}/{COMPANIONS}"] if not dependencies and companions.bounds(folder) else []
        commands.append(
            Step(f"pip install {plan.server}", [*pip, *server, *bounded], env, _OTHER_PYTHON, is_cached=True)
        )
    if manager.is_package:
        # The folder of an application need not be a package, though its pyproject.toml says so.
        label = "pip install ." if dependencies else manager.label
        commands.append(Step(label, project, env, _OTHER_PYTHON, is_optional=bool(dependencies)))
    return commands


def _unlisted(folder: Folder, layout: Layout, env: dict[str, str]) -> list[Step]:
    pairs = [f"{name}={package}" for name, package in imports.find_modules(folder).items()]
    argv = [PYTHON, "-c", _INSTALL_UNLISTED, layout.uv, *pairs]
    step = Step("pip install of imports", argv, env, _OTHER_PYTHON, is_optional=True, is_quiet=True, is_cached=True)
    return [step] if pairs else []


def _with_retries(
    install: list[str], label: str, folder: Folder, layout: Layout
) -> tuple[list[str], tuple[Retry, ...]]:
    """Return an installation with the versions that fit to the pinned ones, and its retries."""
    bounds, raised = companions.bounds(folder), companions.raised(folder)
    if companions.has_old_psycopg2(folder):
        install = _replacing("psycopg2", install, layout)
    if companions.fixed(folder):
        install = [*install, f"--override={layout.bin}/{FIXED}"]
    bounded = [*install, *([f"--constraint={layout.bin}/{COMPANIONS}"] if bounds else [])]
    # Compiling takes minutes, and needs libraries that most machines lack.
    first = [*bounded, *([f"--requirement={layout.bin}/{WHEELS}"] if raised else [])]
    second = [*first, *([f"--override={layout.bin}/{RAISED}"] if raised else [])]
    retries = [
        *_newer_than_lock(bounded, label, layout),
        *([_with_wheels(second, raised, layout, label)] if raised else []),
        *_compiled(second, layout, label),
        _with_old_tools(second, layout, label),
        *([_without_bounds(install, layout, label)] if bounds or raised else []),
    ]
    return first, tuple(retries)


def _with_wheels(install: list[str], raised: tuple[str, ...], layout: Layout, label: str) -> Retry:
    return Retry(
        _NO_WHEELS,
        f"a pinned version has no binaries for this version of Python: newer ones are installed ({', '.join(raised)})",
        "pip install with newer versions of compiled packages",
        install,
        more=(*_compiled(install, layout, label), _with_old_tools(install, layout, label)),
    )


def _newer_than_lock(install: list[str], label: str, layout: Layout) -> list[Retry]:
    """Return the installation with newer versions of the compiled packages that a lock pins, if there is a lock."""
    files = {f"{layout.bin}/{name}": f"{layout.bin}/{NEWER}{name}" for name in (GENERATED, CONSTRAINTS)}
    newer = [f"{option}={files.get(path, path)}" if path else option for option, _, path in _parts(install)]
    note = "a locked version cannot be compiled for this version of Python: newer ones of compiled packages are allowed"
    # The manifest may be as strict as the lock.
    newer_command = [*newer, f"--override={layout.bin}/{NEWER}{OVERRIDES}"]
    more = (*_compiled(newer_command, layout, label), _with_old_tools(newer_command, layout, label))
    return [Retry(_CANNOT_COMPILE, note, label, newer_command, more=more)] if newer != install else []


def _parts(argv: list[str]) -> list[tuple[str, str, str]]:
    return [each.partition("=") if each.startswith("--") else (each, "", "") for each in argv]


def _compiled(install: list[str], layout: Layout, label: str, names: Sequence[str] = tuple(_COMPILED)) -> list[Retry]:
    """Return the installations that use compiled packages instead of source packages that cannot be compiled."""
    retries = []
    for name in names:
        compiled, command = _COMPILED[name], _replacing(name, install, layout)
        others = [each for each in names if each != name]
        retry = Retry(
            _FAILED[name],
            f"{name} cannot be compiled here: {compiled.partition('>')[0]}, which takes its place, is installed",
            f"pip install {compiled.partition('>')[0]} with the other dependencies",
            command,
            more=(*_compiled(command, layout, label, others), _with_old_tools(command, layout, label)),
        )
        retries.append(retry)
    return retries


def _replacing(package: str, install: list[str], layout: Layout) -> list[str]:
    compiled = _COMPILED[package].partition(">")[0]
    return [*install, f"--override={layout.bin}/{package}-{OVERRIDES}", compiled]


def _with_old_tools(install: list[str], layout: Layout, label: str) -> Retry:
    return Retry(
        _NEEDS_OLD_TOOLS,
        "a package is too old for the current setuptools or Cython: it is built with older ones; raise its version to "
        "avoid this",
        label,
        [*install, f"--build-constraint={layout.bin}/{BUILD_TOOLS}"],
    )


def _without_bounds(install: list[str], layout: Layout, label: str) -> Retry:
    """Return the installation where the bounds of `companions` contradict another requirement."""
    return Retry(
        re.compile("No solution found when resolving dependencies"),
        "installing without the upper bounds that fit to the pinned versions",
        label,
        install,
        more=(*_compiled(install, layout, label), _with_old_tools(install, layout, label)),
    )


def _with_pip(manager: PythonManager, plan: Plan, folder: Folder, layout: Layout) -> list[Step]:
    if manager.kind == "uv" or manager.constraints or "pylock.toml" in manager.files:
        raise BuildFailed(f"{manager.label} needs uv, which cannot be fetched: add a requirements.txt")
    words = _files(manager, layout)
    if "pyproject.toml" in manager.files:
        words = python_managers.named_dependencies(folder)
    words = ["."] if manager.is_package else words
    words += plan.server.split()
    if not words:
        return []
    pip = [PYTHON, "-m", "pip", "install", "--no-warn-script-location", "--progress-bar=off", "--no-compile"]
    return [Step(manager.label, [*pip, *words], {"PYTHONPATH": layout.pip}, is_cached=not manager.is_package)]


def _files(manager: PythonManager, layout: Layout) -> list[str]:
    """Return the options that name requirements and constraints."""
    files = [*manager.files, *([f"{layout.bin}/{GENERATED}"] if manager.generated else [])]
    constraints = [f"--constraint={layout.bin}/{CONSTRAINTS}"] if manager.constraints else []
    return [*(f"--requirement={name}" for name in files), *constraints] if files else []
