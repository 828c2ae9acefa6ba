"""Keys, the activity feed's seals and operator commands, by the real command on real data folders."""

from __future__ import annotations

import re
import secrets
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.command import fill, in_store, moorage, running, secret_of
from tests.runtime.edge.pool_support import make_function

from moorage import settings as settings_module
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.secret_text import weakness
from moorage.platform import keys
from moorage.runtime.edge.route_file import RouteFile

pytestmark = pytest.mark.group("cli-keys")


def new_key() -> str:
    return moorage("keys", "generate").stdout.strip()


def edge_keys_of(data: Path) -> str:
    return keys.edge_keys(settings_module.load(data=data))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a running platform, which no test changes."""
    data = tmp_path_factory.mktemp("served")
    in_store(data, fill)
    with running(data):
        yield data


def test_a_generated_key_is_fresh_and_good_enough_for_production() -> None:
    first, second = new_key(), new_key()

    assert first != second
    assert len(bytes.fromhex(first)) == 32
    assert weakness(first) is None


def test_rotating_a_stored_key_replaces_it_and_keeps_every_secret(tmp_path: Path) -> None:
    path = tmp_path / "keys/master_key"
    in_store(tmp_path, fill)
    old = path.read_text()
    routes = tmp_path / "run" / "edge-routes.json"
    saved = RouteFile(routes, edge_keys_of(tmp_path))
    saved.save([make_function(env=[("KEY", "value")])])

    rotated = moorage("keys", "rotate", "--data", tmp_path)

    assert rotated.returncode == 0, rotated.stderr
    assert re.match("re-encrypted [1-9]", rotated.stdout)
    assert in_store(tmp_path, secret_of) == "hunter2"
    assert RouteFile(routes, edge_keys_of(tmp_path)).load()[0][0].env == [("KEY", "value")]
    assert len(path.read_text().split()) == 1
    assert path.read_text() != old
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text(old)
    with pytest.raises(CannotDecrypt):
        in_store(tmp_path, secret_of)


@pytest.mark.deep
def test_a_key_in_the_data_folder_is_not_rotated_under_a_running_platform(served: Path) -> None:
    before = (served / "keys/master_key").read_text()

    refused = moorage("keys", "rotate", "--data", served)

    assert refused.returncode == 1
    assert "stop the platform" in refused.stderr
    assert (served / "keys/master_key").read_text() == before


@pytest.mark.deep
@pytest.mark.parametrize("is_up", [False, True])
def test_a_given_key_is_rotated_to_the_first_of_the_list(tmp_path: Path, is_up: bool) -> None:
    old, new = secrets.token_hex(32), secrets.token_hex(32)
    both = f"{new},{old}"
    in_store(tmp_path, fill, master_key=old)

    if is_up:
        with running(tmp_path, MASTER_KEY=both):
            rotated = moorage("keys", "rotate", "--data", tmp_path, MASTER_KEY=both)
    else:
        rotated = moorage("keys", "rotate", "--data", tmp_path, MASTER_KEY=both)

    assert rotated.returncode == 0, rotated.stderr
    assert in_store(tmp_path, secret_of, master_key=new) == "hunter2"
    with pytest.raises(CannotDecrypt):
        in_store(tmp_path, secret_of, master_key=old)


@pytest.mark.deep
def test_an_activity_feed_that_nobody_touched_holds(tmp_path: Path) -> None:
    in_store(tmp_path, fill)

    check_holds(tmp_path)


def test_an_activity_feed_holds_while_the_platform_runs(served: Path) -> None:
    check_holds(served)


def check_holds(data: Path) -> None:
    verified = moorage("audit", "verify", "--data", data)

    assert verified.returncode == 0, verified.stderr
    assert "rows hold" in verified.stdout
    assert "all 0 rows" not in verified.stdout


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("UPDATE activity SET actor = 'Mallory'", marks=pytest.mark.twin),
        "DELETE FROM activity",
    ],
)
def test_an_activity_feed_that_was_changed_is_found_out(tmp_path: Path, change: str) -> None:
    in_store(tmp_path, fill)
    with sqlite3.connect(tmp_path / "store/moorage.db") as connection:
        assert connection.execute(change).rowcount > 0
    connection.close()

    verified = moorage("audit", "verify", "--data", tmp_path)

    assert verified.returncode == 1
    assert "organization 1, row 1" in verified.stderr
    assert "tampered" in verified.stderr


def test_verifying_a_folder_without_a_store_does_not_make_one(tmp_path: Path) -> None:
    verified = moorage("audit", "verify", "--data", tmp_path / "typo")

    assert verified.returncode == 1
    assert "there is no store" in verified.stderr
    assert not (tmp_path / "typo").exists()


OPERATOR_COMMANDS = [  # They share the function that connects: the first stands for all.
    ["create-user", "ada@example.com"],
    ["approve", "ada@example.com"],
    ["suspend", "ada@example.com"],
    ["unsuspend", "ada@example.com"],
    ["verify-card", "1"],
    ["unverify-card", "1"],
    ["set-plan", "1", "pro"],
    ["token"],
    ["session", "ada@example.com"],
]


@pytest.mark.parametrize(
    "words",
    [OPERATOR_COMMANDS[0], *(pytest.param(words, marks=pytest.mark.twin) for words in OPERATOR_COMMANDS[1:])],
    ids=lambda words: words[0],
)
def test_an_operator_command_without_a_platform_says_how_to_start_one(tmp_path: Path, words: list[str]) -> None:
    refused = moorage("admin", *words, "--data", tmp_path)

    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr == f"moorage: no Moorage runs on {tmp_path}; start it with: moorage up --data {tmp_path}\n"


@pytest.mark.deep
def test_a_socket_that_a_killed_platform_left_counts_as_no_platform(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.kill()
        process.wait()
    assert (tmp_path / "run/admin.sock").exists()

    refused = moorage("admin", "token", "--data", tmp_path)

    assert refused.returncode == 1
    assert "no Moorage runs" in refused.stderr


def test_a_setting_that_cannot_be_used_ends_with_its_name_and_code_2(tmp_path: Path) -> None:
    refused = moorage("keys", "rotate", "--data", tmp_path, MASTER_KEY="short")

    assert refused.returncode == 2
    assert "MOORAGE_MASTER_KEY" in refused.stderr
    assert "Traceback" not in refused.stderr
