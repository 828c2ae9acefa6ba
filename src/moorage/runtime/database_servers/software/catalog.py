"""The database software of this machine: what is there, which of it serves what a user asked for, and getting more.

Software is kept in folders named after it, such as `postgresql-16.4`:

    moorage.json  what it is, so that nothing has to be run to know; written last
    server/       its files
    tools/        the programs that dump and load, where they come from elsewhere
    template/     a data folder that was initialised once

Of software that the system has, only the template is kept. A folder gets its name when all of it is on the disk, so one
that is half made does not count. Changes are made under a lock, one at a time for all processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import platform
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from moorage.core.kit import folders
from moorage.runtime.database_servers.ports import CARD, NotInstalled, ServerFailed, Software
from moorage.runtime.database_servers.software import fetching, system, templates
from moorage.runtime.database_servers.software.fetching import Say
from moorage.runtime.database_servers.software.releases import (
    FETCHABLE,
    MARIADB,
    MYSQL,
    POSTGRESQL,
    PRODUCTS,
    VERSIONS,
    Release,
    numbers,
    series,
    short,
    spoken,
)

PRODUCT_ORDER = (POSTGRESQL, MYSQL, MARIADB)
LOCK = ".lock"
NEW = ".new-"
TEMPLATE = "template"
SERVER = "server"
FORMAT = 1
HINTS: Mapping[str, str] = {
    "postgresql": "run `moorage engines install`, or install the system's package of that major version",
    "mysql": "on Debian and Ubuntu: apt install mariadb-server-core mariadb-client-core mariadb-client; "
    "or install MySQL's own server",
}
# What those who asked for MySQL find out first, by series.
_MARIADB_DIFFERS: Mapping[tuple[int, ...], str] = {
    (
        8,
        4,
    ): "it has no utf8mb4_0900_* collations, no caching_sha2_password, and no `->` for JSON, which it keeps as text",
    (5, 7): "it has no `->` for JSON, which it keeps as text, and its replication is its own",
}


class Grade(IntEnum):
    """How well software serves a version that was asked for, the best first."""

    EXACT = 0
    EXACT_FETCHED = 1  # exact, but it has to be fetched first
    SAME_SERIES = 2  # another release that reads the same files and speaks the same SQL
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
    """What serves a version that was asked for. Without `software` it has to be fetched first."""

    release: Release
    software: Software | None
    is_exact: bool
    note: str | None  # for users: what runs in place of what they asked for


def shared_folder() -> Path:
    """Return the folder beside the environment, which every data folder of this machine finds."""
    return Path(sys.prefix) / "share" / "moorage" / "engines"


class Shelf:
    """Looks into `folders`, in this order, and puts what is fetched or prepared into `installs_into`."""

    def __init__(
        self,
        folders: Sequence[Path],
        installs_into: Path,
        *,
        extra_ca: str = "",  # a file of certificates that the clients of the registries trust
        say: Say = lambda _: None,
        look: Callable[[], list[system.Found]] = system.look,
    ) -> None:
        self.folders = tuple(dict.fromkeys([*folders, installs_into]))
        self.installs_into = installs_into
        self._extra_ca = extra_ca
        self._say = say
        self._system = look
        self._state: object = None
        self._installed: list[Software] = []
        self._incomplete: list[system.Found] = []

    def installed(self) -> list[Software]:
        """Return what can be used, the platform's own before the system's. Looks again only where something changed."""
        found = self._system()
        state = ([_changed(folder) for folder in self.folders], found)
        if state != self._state:
            self._installed, self._incomplete = self._look(found), [each for each in found if each.lacks]
            self._state = state
        return list(self._installed)

    def incomplete(self) -> list[system.Found]:
        """Return software of the system that cannot be used, with what is missing."""
        self.installed()
        return list(self._incomplete)

    def fetchable(self) -> list[Release]:
        """Return what can be fetched for this machine and is not there yet."""
        names = {software.name for software in self.installed()}
        return [release for release in FETCHABLE if release.name not in names and release.can_be_fetched()]

    def releases(self) -> list[Release]:
        """Return what is installed, as something that can be asked to be installed."""
        return [_release_of(software) for software in self.installed()]

    def find(self, name: str) -> Software | None:
        """Return the software of a name, else a later release of it that reads the same files.

        The system's packages are upgraded in place, and what was made with the release before has to start again.
        """
        software = {each.name: each for each in self.installed()}
        if name in software:
            return software[name]
        product, _, version = name.rpartition("-")
        same = [each for each in software.values() if each.product.lower() == product]
        later = [each for each in same if numbers(each.version) > numbers(version)
                 and series(each.product, each.version) == series(each.product, version)]  # fmt: skip
        return max(later, key=lambda each: numbers(each.version), default=None)

    def choose(self, engine: str, version: str, substitution: str) -> Choice:
        """Return what serves a version, by the rule `off`, `minor` or `any`; raises NotInstalled where nothing may."""
        if version not in VERSIONS.get(engine, ()):
            offered = [f"{PRODUCTS[each]} {short(known)}" for each, all_ in VERSIONS.items() for known in all_]
            raise NotInstalled(f"there is no {engine} {version}; there are {spoken(offered)}")
        for grade, choice in self._choices(engine, version):
            if grade <= ALLOWS[substitution]:
                return choice
        raise NotInstalled(self._nothing_for(engine, version))

    async def ensure(self, choice: Choice) -> Software:
        """Return software that a server can be made with: fetched and prepared, by now or already.

        Safe to repeat and to race. Raises ServerFailed with a sentence for the operator.
        """
        ready = choice.software
        if ready is not None and templates.is_made(Path(ready.template)):
            return ready
        return await asyncio.to_thread(self.install, choice.release)

    def install(self, release: Release) -> Software:
        """Fetch a release or prepare the system's; waits for it, and for others who do the same. Safe to repeat."""
        try:
            with self._locked():
                found = self._exactly(release.name)
                if found is not None and templates.is_made(Path(found.template)):
                    return found
                self._make(release, found)
        except OSError as error:
            raise ServerFailed(f"cannot install {release.product} {release.version}: {error}") from error
        self._state = None
        made = self._exactly(release.name)
        if made is None:
            raise ServerFailed(f"{release.product} {release.version} vanished from {self.installs_into}")
        return made

    # How it is made.

    def _make(self, release: Release, found: Software | None) -> None:
        """Make the folder of a release beside its place, and give it its name when it is whole."""
        new = self.installs_into / f"{NEW}{secrets.token_hex(8)}"
        new.mkdir()
        new.chmod(0o755)  # Whatever the umask is: servers and their tools run as other users.
        try:
            software = found or self._fetched(release, new)
            self._say(f"preparing {release.product} {release.version}")
            templates.make(software, new / TEMPLATE)
            if found is None:
                (new / CARD).write_text(json.dumps(_card(release)))
            templates.settle(new)
            place = self.installs_into / release.name
            folders.remove(place)  # What is there does not count, or nothing would have been made.
            new.rename(place)
            templates.settle(self.installs_into)
        finally:
            folders.remove(new)

    def _fetched(self, release: Release, new: Path) -> Software:
        if not release.can_be_fetched():
            raise ServerFailed(f"{release.product} {release.version} cannot be fetched: {HINTS[release.type]}")
        fetching.fetch(release, new, say=self._say, extra_ca=self._extra_ca)
        software = _software(new, _card(release))
        fetching.prove(software)
        return software

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let nobody else change the folder, and remove what somebody who crashed has left in it."""
        self.installs_into.mkdir(parents=True, exist_ok=True)
        with (self.installs_into / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in self.installs_into.glob(f"{NEW}*"):
                folders.remove(left)
            yield

    # What there is.

    def _exactly(self, name: str) -> Software | None:
        return next((software for software in self.installed() if software.name == name), None)

    def _look(self, found: list[system.Found]) -> list[Software]:
        software = {each.name: each for folder in reversed(self.folders) for each in _kept(folder)}
        for each in found:
            if not each.lacks:
                software.setdefault(each.software.name, self._with_template(each.software))
        return sorted(software.values(), key=lambda each: (PRODUCT_ORDER.index(each.product), numbers(each.version)))

    def _with_template(self, software: Software) -> Software:
        places = [folder / software.name / TEMPLATE for folder in self.folders]
        place = next(filter(templates.is_made, places), self.installs_into / software.name / TEMPLATE)
        return replace(software, template=str(place))

    # Choosing.

    def _choices(self, engine: str, version: str) -> list[tuple[Grade, Choice]]:
        """Return everything that could serve a version, the best first."""
        choices: list[tuple[Release, Software | None]]
        choices = [(_release_of(each), each) for each in self.installed() if each.type == engine]
        choices += [(release, None) for release in self.fetchable() if release.type == engine]
        graded = [(_grade(release, software, version), release, software) for release, software in choices]
        graded.sort(key=lambda each: (each[0], [-number for number in numbers(each[1].version)]))
        return [(grade, Choice(release, software, grade <= Grade.EXACT_FETCHED, _note(release, version, grade)))
                for grade, release, software in graded if grade is not Grade.NEVER]  # fmt: skip

    def _nothing_for(self, engine: str, version: str) -> str:
        names = [f"{each.product} {each.version}" for each in self.installed() if each.type == engine]
        text = f"{PRODUCTS[engine]} {short(version)} is not installed on this machine; installed: {spoken(names)}"
        for each in self._incomplete:
            if each.software.type == engine:
                text += f"; {each.software.product} {each.software.version} is there, but lacks {each.lacks}"
        for grade, choice in self._choices(engine, version):
            rule = next(rule for rule, most in ALLOWS.items() if grade <= most)
            other = f"{choice.release.product} {choice.release.version}"
            return f"{text}; {other} may serve in its place with MOORAGE_ENGINE_SUBSTITUTION={rule}"
        return f"{text}; {HINTS[engine]}"


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
    """Return what users are told of software that runs in place of what they asked for."""
    if grade <= Grade.EXACT_FETCHED:
        return None
    runs, asked = f"{release.product} {release.version}", short(version)
    if grade is Grade.OTHER_MAKE:
        return f"{runs} runs in place of {MYSQL} {asked}: {_MARIADB_DIFFERS[series(MYSQL, version)]}"
    kind = "major version" if release.product == POSTGRESQL else "series"
    fixes = "later fixes" if numbers(release.version) > numbers(version) else "fewer fixes"
    return f"{runs} runs in place of {asked}: it is the same {kind} with {fixes}"


# Folders of software.


def _kept(folder: Path) -> Iterator[Software]:
    """Yield the software in a folder; what is half made, damaged or for another machine does not count."""
    for path in sorted(folder.glob("[!.]*")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            card = json.loads((path / CARD).read_text())
            if card["format"] != FORMAT or card["machine"] != platform.machine():
                continue
            software = _software(path, card)
            programs = (Path(software.home) / software.program, Path(software.tools) / "pg_dump")
            if software.name == path.name and templates.is_made(path / TEMPLATE) and all(map(_can_run, programs)):
                yield software


def _software(folder: Path, card: Mapping[str, Any]) -> Software:
    return Software(
        type=str(card["type"]),
        product=str(card["product"]),
        version=str(card["version"]),
        home=str(folder / SERVER),
        program=str(card["program"]),
        tools=str(folder / card["tools"]),
        template=str(folder / TEMPLATE),
        env=dict(card["env"]),
    )


def _card(release: Release) -> dict[str, Any]:
    about = {"type": release.type, "product": release.product, "version": release.version}
    places = {"program": "bin/postgres", "tools": release.tools, "env": dict(release.env)}
    return {"format": FORMAT, "machine": platform.machine()} | about | places


def _can_run(program: Path) -> bool:
    return os.access(program, os.X_OK)


def _changed(folder: Path) -> int:
    """Return when something was last put into a folder or taken out of it."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
