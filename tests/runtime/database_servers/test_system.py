"""Detection of PostgreSQL from system packages, used only if complete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.database_servers.server_support import POSTGRESQL_14, Lab, a_lab, find_software

from moorage.runtime.database_servers.software import system


@pytest.fixture
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


def put_program(folder: Path) -> None:
    """Link a real server program to a path of the system."""
    folder.mkdir(parents=True)
    (folder / "postgres").symlink_to(Path(find_software(POSTGRESQL_14).home) / "bin" / "postgres")


def test_a_postgresql_on_the_path_of_the_system_is_found_and_serves(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_program(tmp_path / "bin")
    monkeypatch.setattr(system, "_PATH", str(tmp_path / "bin"))

    [found] = system._postgresql()
    server = lab.start(replace(found.software, template=find_software(POSTGRESQL_14).template))

    assert (found.lacks, found.software.version) == ("", "14.23")
    assert server.ask("SHOW server_version") == [("14.23",)]


def test_a_postgresql_of_the_system_that_is_not_complete_names_its_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_program(tmp_path / "14" / "bin")
    monkeypatch.setattr(system, "DEBIAN_POSTGRESQL", tmp_path)
    monkeypatch.setattr(system, "_PATH", str(tmp_path))

    [found] = system._postgresql()

    assert found.software.version == "14.23"
    assert found.lacks.startswith("initdb, pg_dump, pg_restore, psql")
    assert "apt install postgresql-14 postgresql-client-14" in found.lacks
