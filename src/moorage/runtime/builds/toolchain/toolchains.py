"""Toolchains of one build: the version of Python that the project asks for, uv, Go."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.detection import go, python_versions
from moorage.runtime.builds.detection.python_packages import companions
from moorage.runtime.builds.detection.python_versions import Wanted, is_allowed
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table import sites
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.builds.python import debian
from moorage.runtime.builds.toolchain import jekyll, toolchain_downloads
from moorage.runtime.builds.toolchain.toolchain_downloads import Say
from moorage.runtime.workers.runtimes import Runtime
from moorage.settings import Settings

# Versions that are fetched for a range, in this order: the newest may still lack wheels.
FETCHED = ("3.13", "3.12", "3.11", "3.10", "3.9", "3.14", "3.15")

OLDEST_FETCHED = 9  # minor version; most apps that were pinned to an older one also run with a newer one


@dataclass(frozen=True, slots=True)
class Toolchains:
    """None: the machine's default, or not needed."""

    python: Runtime | None = None
    uv: Path | None = None
    go: Path | None = None
    jekyll: Path | None = None


def find(settings: Settings, folder: Folder, plan: Plan, say: Say) -> Toolchains:
    """Return the toolchains of a plan, downloaded if needed; raises BuildFailed."""
    if plan.framework == sites.JEKYLL:
        return Toolchains(jekyll=jekyll.ensure(settings, say))
    if plan.language == "go":
        return Toolchains(go=_go(settings, folder, say))
    if plan.language != "python":
        return Toolchains()
    python = find_python(settings, folder, say)
    try:
        return Toolchains(python, toolchain_downloads.ensure(settings, toolchain_downloads.UV, say))
    except BuildFailed as error:
        say(f"{error}; pip installs the dependencies instead")
        return Toolchains(python)


def find_python(settings: Settings, folder: Folder, say: Say) -> Runtime:
    """Return the interpreter that the project asks for; raises BuildFailed."""
    wanted = python_versions.find_wanted(folder)
    known = toolchain_downloads.pythons(settings)
    version = python_versions.choose(wanted, known)
    if version is not None:
        _note(wanted, version, say)
        return known[version]
    needed = wanted.pin or python_versions.choose(wanted, FETCHED) or ""
    try:
        if not needed:
            raise BuildFailed("there is no such version")
        return toolchain_downloads.fetch_python(settings, needed, say)
    except BuildFailed as error:
        known |= _nearer(settings, wanted, known, needed, say)
        return _instead(folder, wanted, known, needed, str(error), say)


def find_newer(settings: Settings, folder: Folder, current: Toolchains, specifier: str, say: Say) -> Toolchains | None:
    """Return the toolchains with a newer Python, which a dependency needs and the project allows; None without one."""
    wanted, known = python_versions.find_wanted(folder), toolchain_downloads.pythons(settings)
    used = next((version for version, runtime in known.items() if runtime == current.python), "")
    if not used or wanted.pin == used:
        return None
    for version in FETCHED:
        if _minor(version) > _minor(used) and is_allowed(specifier, version) and wanted.allows(version):
            with contextlib.suppress(BuildFailed):
                python = known.get(version) or toolchain_downloads.fetch_python(settings, version, say)
                say(f"a dependency needs Python {specifier}: {version} is used")
                return replace(current, python=python)
    return None


def _nearer(settings: Settings, wanted: Wanted, known: dict[str, Runtime], needed: str, say: Say) -> dict[str, Runtime]:
    """Return a version from Debian for a project that needs a newer one than the machine has; {} without one."""
    newest = max(map(_minor, known))
    for version in debian.RELEASES:
        if needed in FETCHED and _minor(needed) > newest and version not in known and wanted.allows(version):
            with contextlib.suppress(BuildFailed):
                return {version: toolchain_downloads.fetch_python(settings, version, say)}
    return {}


def _instead(folder: Folder, wanted: Wanted, known: dict[str, Runtime], needed: str, why: str, say: Say) -> Runtime:
    """Return an interpreter that the project also allows; raises BuildFailed if there is none."""
    machine = ", ".join(sorted(known, key=_minor))
    allowed = [version for version in known if wanted.allows(version)]
    is_release = needed in FETCHED or 0 < _minor(needed or "3.0") < OLDEST_FETCHED
    if allowed and is_release:
        # Of two versions at the same distance, the newer one has all that the project may use, but pinned releases of
        # compiled packages have binaries for the older one.
        sign = 1 if companions.raised(folder) else -1
        nearest = min(allowed, key=lambda version: (abs(_minor(version) - _minor(needed)), sign * _minor(version)))
        say(
            f"warning: this project needs Python {needed} ({wanted.pin_file}), this machine has {machine}: {nearest} "
            f"is used; install python{needed} on this machine (as /usr/local/bin/python{needed}) to get it"
        )
        return known[nearest]
    install = f"; install python{needed} on this machine (as /usr/local/bin/python{needed})" if needed else ""
    raise BuildFailed(
        f"this project needs Python {wanted.describe()}, this machine has {machine}"
        + (f" and {needed} cannot be fetched ({why})" if needed else "")
        + f"{install}, or change the version in {wanted.pin_file or wanted.ranges[0][1]}"
    )


def _minor(version: str) -> int:
    return int(version[2:])


def _note(wanted: Wanted, version: str, say: Say) -> None:
    if wanted.pin and wanted.exact != wanted.pin:
        say(f"python:   {version}, the installed release of it ({wanted.pin_file} asks for {wanted.exact})")
    elif wanted.pin or wanted.ranges:
        say(f"python:   {version}")


def _go(settings: Settings, folder: Folder, say: Say) -> Path:
    go.check_version(folder, toolchain_downloads.GO.version)
    return toolchain_downloads.ensure(settings, toolchain_downloads.GO, say)
