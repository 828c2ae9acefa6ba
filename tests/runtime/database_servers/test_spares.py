"""Spare data folders: taken once, by a rename, and only from the current template."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.runtime.database_servers.ports import DATA, Software
from moorage.runtime.database_servers.software import spares, templates
from moorage.runtime.database_servers.software.spares import Spares

NO_RESERVE_MB = 0


@dataclass
class World:
    folder: Path
    software: Software

    def write_template(self, password: str, content: str) -> None:
        template = Path(self.software.template)
        (template / DATA / "global").mkdir(parents=True, exist_ok=True)
        (template / DATA / "global" / "pg_control").write_text(content)
        (template / templates.ABOUT).write_text(json.dumps({"password": password}))

    def open(self, reserve_mb: int = NO_RESERVE_MB) -> Spares:
        return Spares(self.folder / "spares", reserve_mb)

    def take(self, of: Spares, name: str) -> str | None:
        """Return the content of the spare that was taken, or None."""
        target = self.folder / name
        return (target / "global" / "pg_control").read_text() if of.take(self.software, target) else None

    @property
    def names(self) -> list[str]:
        return sorted(path.name.partition("@")[0] for path in (self.folder / "spares").iterdir())


@pytest.fixture
def world(tmp_path: Path) -> World:
    template = str(tmp_path / "template")
    made = World(tmp_path, Software("postgresql", "PostgreSQL", "16.4", "/x", "bin/postgres", "/x", template))
    made.write_template("first", "of the first template")
    return made


def make(of: Spares, software: Software) -> None:
    """Make a spare in a thread of its own, whose priority it lowers."""
    thread = threading.Thread(target=of.make, args=(software,))
    thread.start()
    thread.join()


def test_a_spare_is_taken_once(world: World) -> None:
    of = world.open()
    make(of, world.software)

    taken = [world.take(of, name) for name in ("one", "two")]

    assert taken == ["of the first template", None]
    assert of.is_missing(world.software)


def test_a_spare_of_a_template_that_was_made_anew_is_not_taken(world: World) -> None:
    of = world.open()
    make(of, world.software)
    world.write_template("second", "of the second template")

    taken = world.take(of, "one")
    make(of, world.software)

    assert (taken, world.take(of, "two")) == (None, "of the second template")
    assert world.names == []


def test_unfinished_spares_and_those_of_other_software_are_removed(world: World) -> None:
    of = world.open()
    make(of, world.software)
    for name in ("mariadb-10.11@0", ".postgresql-16.4@0.part"):
        (world.folder / "spares" / name).mkdir()

    of.keep_only({"postgresql-16.4"})

    assert world.names == ["postgresql-16.4"]


def test_no_spare_is_made_from_the_reserve_of_the_disk_until_some_time_has_passed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = world.open(reserve_mb=2**40)

    make(of, world.software)

    assert (world.take(of, "one"), of.is_missing(world.software)) == (None, False)
    monkeypatch.setattr(spares, "RETRY_S", 0.0)
    make(of, world.software)
    assert of.is_missing(world.software)
