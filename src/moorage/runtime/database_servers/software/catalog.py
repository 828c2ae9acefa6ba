"""Catalog of database software: lists, selects and installs it.

Each software has a folder with its name, such as `postgresql-16.4`:

    moorage.json  identity file: type, version and paths, readable without running a program; written last
    server/       server files
    tools/        dump and restore programs, if they come from another package
    template/     initialised data folder

For software from the system's packages only the template is stored. A folder is renamed to its final name after
everything in it is on disk, so half-written folders are ignored. A file lock serialises installs of all processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import platform
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from moorage.core.kit import folders
from moorage.core.kit.records import dataclass
from moorage.runtime.database_servers.ports import IDENTITY_FILE, NotInstalled, ServerFailed, Software
from moorage.runtime.database_servers.software import extensions, fetching, libraries, system, templates
from moorage.runtime.database_servers.software.fetching import Say
from moorage.runtime.database_servers.software.libraries import CannotRun
from moorage.runtime.database_servers.software.releases import (
    FETCHABLE,
    MARIADB,
    MYSQL,
    POSTGRESQL,
    PRODUCTS,
    VERSIONS,
    Release,
    join_names,
    numbers,
    series,
    short,
)

PRODUCT_ORDER = (POSTGRESQL, MYSQL, MARIADB)
LOCK = ".lock"
PREPARING = ".preparing"  # locked while `make up` installs software in the background
UNUSABLE = ".unusable-"  # record of a release that was downloaded and does not run here
NEW = ".new-"
TEMPLATE = "template"
SERVER = "server"
FORMAT = 1
HINTS: Mapping[str, str] = {
    "postgresql": "run `moorage engines install`, or install the system's package of that major version",
    "mysql": "on Debian and Ubuntu: apt install mariadb-server-core mariadb-client-core mariadb-client; "
    "or install MySQL's own server",
}
# The differences to MySQL that matter first, by MySQL series.
_MARIADB_DIFFERS: Mapping[tuple[int, ...], str] = {
    (8, 4): "it has no utf8mb4_0900_* collations, no caching_sha2_password, "
    "and no `->` for JSON, which it keeps as text",
    (5, 7): "it has no `->` for JSON, which it keeps as text, and its replication is its own",
}


# By the name of a release: the later release of the same build.
_REPLACEMENTS: Mapping[str, str] = {
    replace(release, version=version).name: release.name for release in FETCHABLE for version in release.replaces
}


class Grade(IntEnum):
    """How well a software matches a requested version, best first."""

    EXACT = 0
    EXACT_FETCHED = 1  # exact, but not installed yet
    SAME_SERIES = 2  # another release with the same file format and SQL
    SAME_SERIES_FETCHED = 3
    OTHER_MAKE = 4  # MariaDB for MySQL
    NEVER = 5


ALLOWS: Mapping[str, Grade] = {
    "off": Grade.EXACT_FETCHED,
    "minor": Grade.SAME_SERIES_FETCHED,
    "any": Grade.OTHER_MAKE,
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Software selected for a version; `software` is None if not installed."""

    release: Release
    software: Software | None
    is_exact: bool
    note: str | None  # tells users which software replaces the requested version


def shared_folder() -> Path:
    """Return the software folder of this environment, shared by all data folders."""
    return Path(sys.prefix) / "share" / "moorage" / "engines"


class SoftwareCatalog:
    """Searches `folders` in order, and installs into `installs_into`."""

    def __init__(
        self,
        folders: Sequence[Path],
        installs_into: Path,
        *,
        extra_ca: str = "",  # file of CA certificates that pip and npm trust
        say: Say = lambda _: None,
        has_boxed_tools: bool = True,
        detect: Callable[[], list[system.SystemSoftware]] = system.detect,
    ) -> None:
        self.folders = tuple(dict.fromkeys([*folders, installs_into]))
        self.installs_into = installs_into
        self._extra_ca = extra_ca
        self._say = say
        self._detect_system = detect
        self._has_boxed_tools = has_boxed_tools
        self._state: object = None
        self._installed: list[Software] = []
        self._incomplete: list[system.SystemSoftware] = []

    def installed(self) -> list[Software]:
        """Return the usable software, the platform's first; rescans after changes.

        Leaves out releases that another installed one replaces: its servers start on the same data folders.
        """
        from_system = self._detect_system()
        state = ([_mtime(folder) for folder in self.folders], from_system)
        if state != self._state:
            self._installed, self._incomplete = self._scan(from_system), [each for each in from_system if each.lacks]
            self._state = state
        return list(self._installed)

    def incomplete(self) -> list[system.SystemSoftware]:
        """Return system software that lacks a program."""
        self.installed()
        return list(self._incomplete)

    def fetchable(self) -> list[Release]:
        """Return releases that can be downloaded for this machine and are not installed."""
        names = {software.name for software in self.installed()}
        return [
            release
            for release in FETCHABLE
            if release.name not in names and release.can_be_fetched() and self._why_unusable(release) is None
        ]

    def replaceable(self) -> list[tuple[Software, Release]]:
        """Return installed software with the fetchable release that replaces it."""
        fetchable = {release.name: release for release in self.fetchable()}
        installed = [(each, fetchable.get(_REPLACEMENTS.get(each.name, ""))) for each in self.installed()]
        return [(software, release) for software, release in installed if release is not None]

    def unusable(self) -> list[tuple[Release, str]]:
        """Return releases that could be downloaded but do not run on this machine, with the reason."""
        names = {software.name for software in self.installed()}
        absent = [release for release in FETCHABLE if release.name not in names and release.can_be_fetched()]
        return [(release, why) for release in absent if (why := self._why_unusable(release)) is not None]

    def releases(self) -> list[Release]:
        """Return the releases of the installed software, for `install`; leaves out replaced releases."""
        replaced = [software for software, _ in self.replaceable()]
        return [_release_of(software) for software in self.installed() if software not in replaced]

    def find(self, name: str) -> Software | None:
        """Return the software with this name, else a later release of the same series.

        System packages are upgraded in place, and releases of the platform are replaced by later ones, so databases of
        the previous release have to start with the new one.
        """
        software = {each.name: each for each in self.installed()}
        for exact in (name, _REPLACEMENTS.get(name)):
            if exact in software:
                return software[exact]
        product, _, version = name.rpartition("-")
        same = [each for each in software.values() if each.product.lower() == product]
        later = [each for each in same if numbers(each.version) > numbers(version)
                 and series(each.product, each.version) == series(each.product, version)]  # fmt: skip
        return max(later, key=lambda each: numbers(each.version), default=None)

    def choose(self, engine: str, version: str, substitution: str) -> Choice:
        """Select software by the rule `off`, `minor` or `any`; raises NotInstalled."""
        if version not in VERSIONS.get(engine, ()):
            offered = [f"{PRODUCTS[each]} {short(known)}" for each, all_ in VERSIONS.items() for known in all_]
            raise NotInstalled(f"there is no {engine} {version}; there are {join_names(offered)}")
        for grade, choice in self._choices(engine, version):
            if grade <= ALLOWS[substitution]:
                return choice
        raise NotInstalled(self._nothing_for(engine, version))

    async def ensure(self, choice: Choice) -> Software:
        """Install the chosen software if needed, with its template, and return it.

        Safe to repeat and to run concurrently. Raises ServerFailed with a message for the operator.
        """
        ready = choice.software
        if ready is not None and templates.is_complete(Path(ready.template)):
            return ready
        return await asyncio.to_thread(self.install, choice.release)

    def install(self, release: Release) -> Software:
        """Download a release or prepare system software. Blocks; safe to repeat.

        Software that an older version of the platform installed gets the extensions that it lacks.
        """
        try:
            self._await_others()
            with self._locked():
                present = self._find_exact(release.name)
                if present is not None and templates.is_complete(Path(present.template)):
                    self._add_extensions(release, Path(present.home))
                    return present
                self._make(release, present)
                self._record(release).unlink(missing_ok=True)
        except CannotRun as error:
            record = {"machine": platform.machine(), "library": error.library, "why": str(error)}
            self._record(release).write_text(json.dumps(record))
            raise
        except OSError as error:
            raise ServerFailed(f"cannot install {release.product} {release.version}: {error}") from error
        self._state = None
        installed = self._find_exact(release.name)
        if installed is None:
            raise ServerFailed(f"{release.product} {release.version} vanished from {self.installs_into}")
        return installed

    def is_being_prepared(self) -> bool:
        """Tell whether another process installs all software into one of the folders."""
        for folder in self.folders:
            try:
                with (folder / PREPARING).open() as lock:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            except OSError:
                continue
        return False

    # Installing.

    def _make(self, release: Release, present: Software | None) -> None:
        """Build a release's folder under a temporary name, and rename it when complete."""
        with self._new_folder() as new:
            software = present or self._fetch(release, new)
            self._say(f"preparing {release.product} {release.version}")
            templates.make(software, new / TEMPLATE)
            if present is None:
                (new / IDENTITY_FILE).write_text(json.dumps(_identity(release)))
            templates.sync_file_system(new)
            target = self.installs_into / release.name
            folders.remove(target)  # An existing folder is incomplete here, else `install` had returned it.
            new.rename(target)
            templates.sync_file_system(self.installs_into)

    def _add_extensions(self, release: Release, server: Path) -> None:
        """Add extensions to software in `installs_into`; its running servers see them."""
        if server != self.installs_into / release.name / SERVER:
            return
        if extensions.lacks_files(release, server):
            only = replace(release, packages=tuple(each for each in release.packages if each.extension))
            with self._new_folder() as new:
                fetching.fetch(only, new, say=self._say, extra_ca=self._extra_ca)
                extensions.add(only, new, server)
        extensions.allow(server)
        self._finish_extensions(server)

    def _finish_extensions(self, server: Path) -> None:
        extensions.add_libraries(server, [Path(software.home) for software in self.installed()])
        extensions.hide_unloadable(server)

    @contextlib.contextmanager
    def _new_folder(self) -> Iterator[Path]:
        new = self.installs_into / f"{NEW}{secrets.token_hex(8)}"
        new.mkdir()
        new.chmod(0o755)  # regardless of the umask: servers and their tools run as other users
        try:
            yield new
        finally:
            folders.remove(new)

    def _fetch(self, release: Release, new: Path) -> Software:
        if not release.can_be_fetched():
            raise ServerFailed(f"{release.product} {release.version} cannot be fetched: {HINTS[release.type]}")
        fetching.fetch(release, new, say=self._say, extra_ca=self._extra_ca)
        extensions.add(release, new, new / SERVER)
        self._finish_extensions(new / SERVER)
        software = _software(new, _identity(release))
        try:
            fetching.check_programs(software)
        except CannotRun as error:
            if not self._add_libraries(release, error.library, new):
                raise
            fetching.check_programs(software)
        return software

    def _add_libraries(self, release: Release, library: str, new: Path) -> bool:
        """Add libraries of another package to a server that lacks one; tell whether it has it then."""
        package, target = release.libraries, new / SERVER / "lib"
        if package is None or not library:
            return False
        homes = [Path(software.home) for software in self.installed()]
        source = next((home for home in homes if (home / "lib" / library).is_file()), None)
        if source is None:
            fetching.fetch(replace(release, packages=(package,)), new, say=self._say, extra_ca=self._extra_ca)
            source = new / package.to
        for name in package.only:
            for path in source.glob(f"{name}*"):
                if path.parent.name == target.name and not (target / path.name).exists():
                    shutil.copy(path, target / path.name)
        folders.remove(new / package.to)
        return (target / library).is_file()

    def _await_others(self) -> None:
        """Wait for installs into the other folders: they may bring the same software."""
        for folder in self.folders:
            if folder != self.installs_into:
                with contextlib.suppress(OSError), (folder / LOCK).open() as lock:
                    fcntl.flock(lock, fcntl.LOCK_SH)

    def _record(self, release: Release) -> Path:
        return self.installs_into / f"{UNUSABLE}{release.name}.json"

    def _why_unusable(self, release: Release) -> str | None:
        """Return why a release does not run here: a missing library, or the record of an attempt."""
        if lacking := libraries.missing(release.needs):
            return f"{release.name} does not run on this machine: {libraries.lacks(lacking)}"
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError, KeyError):
                record = json.loads((folder / f"{UNUSABLE}{release.name}.json").read_text())
                is_solved = record["library"] and not libraries.missing([record["library"]])
                if record["machine"] == platform.machine() and not is_solved:
                    return str(record["why"])
        return None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the folder for this process, and remove leftovers of crashed installs."""
        self.installs_into.mkdir(parents=True, exist_ok=True)
        with (self.installs_into / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for leftover in self.installs_into.glob(f"{NEW}*"):
                folders.remove(leftover)
            yield

    # Scanning.

    def _find_exact(self, name: str) -> Software | None:
        return next((software for software in self.installed() if software.name == name), None)

    def _scan(self, from_system: list[system.SystemSoftware]) -> list[Software]:
        software = {each.name: each for folder in reversed(self.folders) for each in _read_folder(folder)}
        for each in from_system:
            if not each.lacks:
                software.setdefault(each.software.name, self._with_template(each.software))
        replaced = {old for old, new in _REPLACEMENTS.items() if new in software}
        boxed = self._has_boxed_tools
        used = [replace(each, has_boxed_tools=boxed) for each in software.values() if each.name not in replaced]
        return sorted(used, key=lambda each: (PRODUCT_ORDER.index(each.product), numbers(each.version)))

    def _with_template(self, software: Software) -> Software:
        paths = [folder / software.name / TEMPLATE for folder in self.folders]
        template = next(filter(templates.is_complete, paths), self.installs_into / software.name / TEMPLATE)
        return replace(software, template=str(template))

    # Choosing.

    def _choices(self, engine: str, version: str) -> list[tuple[Grade, Choice]]:
        """Return all candidates for a version, best first."""
        choices: list[tuple[Release, Software | None]]
        choices = [(_release_of(each), each) for each in self.installed() if each.type == engine]
        choices += [(release, None) for release in self.fetchable() if release.type == engine]
        graded = [(_grade(release, software, version), release, software) for release, software in choices]
        graded.sort(key=lambda each: (each[0], [-number for number in numbers(each[1].version)]))
        return [(grade, _choice(release, software, version, grade))
                for grade, release, software in graded if grade is not Grade.NEVER]  # fmt: skip

    def _nothing_for(self, engine: str, version: str) -> str:
        names = [f"{each.product} {each.version}" for each in self.installed() if each.type == engine]
        text = f"{PRODUCTS[engine]} {short(version)} is not installed on this machine; installed: {join_names(names)}"
        for each in self._incomplete:
            if each.software.type == engine:
                text += f"; {each.software.product} {each.software.version} is there, but lacks {each.lacks}"
        unusable = [why for release, why in self.unusable() if release.type == engine]
        if self.is_being_prepared():
            return f"{text}; database software is being installed now, try again in a minute"
        if unusable:
            return "; ".join([text, *unusable])
        for grade, choice in self._choices(engine, version):
            rule = next(rule for rule, most in ALLOWS.items() if grade <= most)
            other = f"{choice.release.product} {choice.release.version}"
            return f"{text}; {other} may serve in its place with MOORAGE_ENGINE_SUBSTITUTION={rule}"
        return f"{text}; {HINTS[engine]}"


def describe(software: Software, version: str) -> Choice:
    """Return how a software serves a version that was requested."""
    release = _release_of(software)
    return _choice(release, software, version, _grade(release, software, version))


def _choice(release: Release, software: Software | None, version: str, grade: Grade) -> Choice:
    return Choice(release, software, grade <= Grade.EXACT_FETCHED, _note(release, version, grade))


def _release_of(software: Software) -> Release:
    known = {release.name: release for release in FETCHABLE}
    return known.get(software.name) or Release(software.type, software.product, software.version)


def _grade(release: Release, software: Software | None, version: str) -> Grade:
    if release.product == MARIADB:
        return Grade.OTHER_MAKE if software is not None else Grade.NEVER
    if numbers(release.version) == numbers(version):
        return Grade.EXACT if software is not None else Grade.EXACT_FETCHED
    if series(release.product, release.version) != series(release.product, version):
        return Grade.NEVER
    return Grade.SAME_SERIES if software is not None else Grade.SAME_SERIES_FETCHED


def _note(release: Release, version: str, grade: Grade) -> str | None:
    """Return the note for users about software that replaces the requested version."""
    if grade <= Grade.EXACT_FETCHED:
        return None
    runs, requested = f"{release.product} {release.version}", short(version)
    if grade is Grade.OTHER_MAKE:
        return f"{runs} runs in place of {MYSQL} {requested}: {_MARIADB_DIFFERS[series(MYSQL, version)]}"
    kind = "major version" if release.product == POSTGRESQL else "series"
    fixes = "later fixes" if numbers(release.version) > numbers(version) else "fewer fixes"
    return f"{runs} runs in place of {requested}: it is the same {kind} with {fixes}"


# Folders of software.


def _read_folder(folder: Path) -> Iterator[Software]:
    """Yield the usable software in a folder; skips other architectures."""
    for path in sorted(folder.glob("[!.]*")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            identity = json.loads((path / IDENTITY_FILE).read_text())
            if identity["format"] != FORMAT or identity["machine"] != platform.machine():
                continue
            software = _software(path, identity)
            programs = (Path(software.home) / software.program, Path(software.tools) / "pg_dump")
            if software.name == path.name and templates.is_complete(path / TEMPLATE) and all(map(_can_run, programs)):
                yield software


def _software(folder: Path, identity: Mapping[str, Any]) -> Software:
    return Software(
        type=str(identity["type"]),
        product=str(identity["product"]),
        version=str(identity["version"]),
        home=str(folder / SERVER),
        program=str(identity["program"]),
        tools=str(folder / identity["tools"]),
        template=str(folder / TEMPLATE),
        env=dict(identity["env"]),
    )


def _identity(release: Release) -> dict[str, Any]:
    about = {"type": release.type, "product": release.product, "version": release.version}
    paths = {"program": "bin/postgres", "tools": release.tools, "env": dict(release.env)}
    return {"format": FORMAT, "machine": platform.machine()} | about | paths


def _can_run(program: Path) -> bool:
    return os.access(program, os.X_OK)


def _mtime(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
