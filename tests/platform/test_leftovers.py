"""What killed processes left in the data folder is removed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.core.env import Env
from moorage.platform import folders, leftovers

HEX = "0123456789abcdef"
LEFT = [
    "uploads/upload-x7",
    f"code/.new-{HEX}/package/main.py",
    f"releases/.new-{HEX}/site/index.html",
    f"releases/.old-{HEX}/index.html",
    "store/snapshots/20300131T031700Z.partial",
    "store/snapshots/20300131T031700Z.partial-journal",
    "store/backup.partial/moorage.db",
    "restore.partial/store/moorage.db",
    "databases/.backup/7/base/1",
    "volumes/.backup/app/file",
    "keys/master_key.partial",
    f"keys/tls/.{HEX}",
    f"build-cache/functions.v2/.{HEX}/module.py",
    f"sites/.{HEX}",
    f"run/.caddy.{HEX}.json",
    "engines/.new-0123/server/bin",
]
KEPT = [
    "store/moorage.db",
    "store/snapshots/20300131T031700Z.db",
    "databases/7/base/1",
    "volumes/app/file",
    "keys/master_key",
    "keys/tls/cert.key",
    "build-cache/functions.v2/entry/module.py",
    "sites/harbor.localhost",
    "run/caddy.json",
    "run/.hidden.sock",
    "engines/postgresql-17/card.json",
    "artifacts/sha256/00/1",
    f"code/{HEX * 4}/main.py",
    f"releases/{HEX * 4}/index.html",
]


@pytest.fixture
def data(env: Env) -> Path:
    """A data folder with something that is left of everything, and what belongs there."""
    folders.make(env.settings)
    for name in (*LEFT, *KEPT):
        path = env.settings.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return env.settings.data


def make_old(env: Env, age_s: float) -> None:
    moment = env.clock.now() / 1000 - age_s
    for path in env.settings.data.rglob("*"):
        os.utime(path, (moment, moment))


def is_there(data: Path, names: list[str]) -> list[str]:
    return [name for name in names if (data / name).exists()]


def test_old_leftovers_of_every_kind_go_and_all_else_stays(env: Env, data: Path) -> None:
    make_old(env, leftovers.DAY_S + 60)

    leftovers.clear(env)

    assert is_there(data, LEFT) == []
    assert is_there(data, KEPT) == KEPT


def test_what_may_still_be_in_use_stays(env: Env, data: Path) -> None:
    make_old(env, leftovers.HOUR_S - 60)

    leftovers.clear(env)

    assert is_there(data, [*LEFT, *KEPT]) == [*LEFT, *KEPT]


def test_the_owner_of_the_store_starts_without_the_files_of_the_one_before(env: Env, data: Path) -> None:
    leftovers.clear(env, is_owner_starting=True)

    of_owner = ("uploads/", "code/", "releases/", "store/", "restore.")
    assert is_there(data, LEFT) == [name for name in LEFT if not name.startswith(of_owner)]
    assert is_there(data, KEPT) == KEPT


def test_a_link_goes_and_what_it_leads_to_stays(env: Env, data: Path) -> None:
    link = data / f"sites/.{HEX[::-1]}"
    link.symlink_to(data / "keys")
    moment = env.clock.now() / 1000 - 2 * leftovers.HOUR_S
    os.utime(link, (moment, moment), follow_symlinks=False)

    leftovers.clear(env)

    assert not link.is_symlink()
    assert (data / "keys/master_key").exists()


def test_clearing_twice_finds_nothing_more(env: Env, data: Path) -> None:
    make_old(env, leftovers.DAY_S + 60)
    leftovers.clear(env)

    assert leftovers.clear(env) == []
