"""`moorage databases` against a running platform with real servers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.live import Shell
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import new_name

pytestmark = pytest.mark.group("cli-live")

# A client program that shows its arguments, its environment and the file that it is given.
SPY = """#!{python}
import os, sys
print("argv", sys.argv[1:])
print("password", os.environ.get("PGPASSWORD"))
for word in sys.argv:
    if word.startswith("--defaults-extra-file="):
        path = word.partition("=")[2]
        print("mode", oct(os.stat(path).st_mode & 0o777))
        print(open(path).read())
"""


def sql(shell: Shell, name: str, text: str) -> str:
    return shell.ok("databases", "connect", name, "-c", text, "--", "-At").strip()


def test_a_database_is_created_used_backed_up_restored_and_deleted(shell: Shell) -> None:
    name = new_name("orders")

    created = shell.json("databases", "create", name, "--tier", "micro", "--backup")
    sql(shell, name, "create table boats (id int); insert into boats values (1)")
    backup = shell.ok("databases", "backup", name).strip()
    sql(shell, name, "insert into boats values (2)")
    listed = [line.split("\t")[:2] for line in shell.ok("databases", "backups", name).splitlines()]
    refused = shell("databases", "restore", name, backup)
    restored = shell.terminal("databases", "restore", name, keys={"[y/N]": "y\n"})

    assert (created["status"], created["instanceType"]) == ("running", "micro")
    assert [backup, "completed"] in listed
    assert refused.returncode == 2
    assert "is lost" in restored.text
    assert restored.code == 0, restored.text
    assert sql(shell, name, "select count(*) from boats") == "1"
    assert "has no backup absent" in shell("databases", "restore", name, "absent", "--yes").stderr
    assert shell.json("databases", "tier", name, "mini")["instanceType"] == "mini"
    assert "status\trunning" in shell.ok("databases", "show", name)
    kept = shell.terminal("databases", "delete", name, keys={"Type its name": "other\n"})
    gone = shell.terminal("databases", "delete", name, keys={"Type its name": f"{name}\n"})
    assert (kept.code, gone.code) == (1, 0)
    assert shell("databases", "show", name).returncode == 1
    operated = shell.ok("databases", "list", "--data", shell.sites.running.data)
    assert f"  {name}  organization" in operated
    assert "bring it back with: moorage databases undelete" in operated


def test_the_password_is_shown_only_when_it_is_asked_for_and_changes(shell: Shell, orders: str) -> None:
    masked = shell.ok("databases", "url", orders).strip()
    revealed = shell.ok("databases", "url", orders, "--reveal").strip()
    shell.ok("databases", "rotate-password", orders, "--yes")
    changed = shell.ok("databases", "url", orders, "--reveal").strip()

    assert masked.startswith("postgresql://")
    password = shell.client.databases.read_password(orders).password
    assert password is not None
    assert password not in masked
    assert password in changed
    assert revealed != changed
    assert sql(shell, orders, "select 1") == "1"


def test_metrics_and_extensions_are_lists(shell: Shell, orders: str) -> None:
    names = [line.split("\t")[0] for line in shell.ok("databases", "extensions", orders).splitlines()]
    wait_until(lambda: bool(shell.json("databases", "metrics", orders, "--range", "1h")["points"]))

    assert "pgcrypto" in names
    rows = [line.split("\t") for line in shell.ok("databases", "metrics", orders, "--range", "1h").splitlines()]
    assert {len(row) for row in rows} == {4}
    shown = shell.terminal("databases", "metrics", orders, "--range", "1h")
    assert "queries per second" in shown.text
    assert "VISIBILITY" in shell.terminal("databases", "list").text
    assert orders in [each["name"] for each in shell.json("databases", "list")]


@pytest.fixture(name="orders")
def orders_database(shell: Shell) -> str:
    """A PostgreSQL database that tests share."""
    name = "shared-orders"
    if name not in [each.name for each in shell.client.databases.iterate()]:
        shell.client.databases.create(name=name, type="postgresql", version="16.4.0", instance_type="micro", wait=60)
    return name


def test_a_program_of_the_machine_gets_the_password_in_its_environment(shell: Shell, orders: str) -> None:
    programs = spies(shell.home / "bin", "psql")

    shown = shell.ok("databases", "connect", orders, "--", "--quiet", PATH=programs)

    password = shell.client.databases.read_password(orders).password
    argv, environment = shown.splitlines()[:2]
    assert password is not None
    assert password not in argv
    assert "'--quiet']" in argv
    assert environment == f"password {password}"


def test_the_bundled_program_is_used_where_the_machine_has_none(shell: Shell, orders: str) -> None:
    (shell.home / "empty").mkdir()

    shown = shell.ok("databases", "connect", orders, "--", "-At", "-c", "select 40 + 2", PATH=str(shell.home / "empty"))

    assert shown == "42\n"


def test_psql_runs_on_the_terminal_and_ctrl_c_cancels_its_query(shell: Shell, orders: str) -> None:
    query = "do $$ begin raise notice 'in the query'; perform pg_sleep(600); end $$"

    shown = shell.terminal("databases", "connect", orders, "--", "-c", query, keys={"in the query": "\x03"})

    assert "canceling statement due to user request" in shown.text
    assert shown.code == 1  # of psql
    assert "Traceback" not in shown.text


def test_mariadb_gets_the_password_in_a_file_of_the_user_alone(shell: Shell) -> None:
    name = new_name("shop")
    shell.ok("databases", "create", name, "--type", "mysql", "--tier", "micro")
    programs = spies(shell.home / "bin", "mariadb")

    answer = shell.ok("databases", "connect", name, "-c", "select 40 + 2", "--", "-N")
    shown = shell.ok("databases", "connect", name, PATH=programs)

    password = shell.client.databases.read_password(name).password
    assert answer == "42\n"
    assert password is not None
    assert password not in shown.splitlines()[0]
    assert "mode 0o600" in shown
    assert f'password="{password}"' in shown
    assert "password None" in shown
    path = shown.partition("--defaults-extra-file=")[2].partition("'")[0]
    assert not os.path.exists(path)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["create", "x", "--type", "oracle"], "--type should be postgresql or mysql"),
        (["create", "x", "--tier", "huge"], "is not a tier"),
        (["metrics", "x", "--range", "2h"], "--range should be"),
        (["connect", "absent"], "There is no such database"),
    ],
)
def test_mistakes_are_explained(shell: Shell, words: list[str], reason: str) -> None:
    done = shell("databases", *words)

    assert done.returncode == 1
    assert reason in done.stderr


def test_operator_commands_need_no_sign_in(shell: Shell, tmp_path: Path) -> None:
    listed = shell("databases", "list", "--data", shell.sites.running.data, MOORAGE_TOKEN="")
    absent = shell("databases", "undelete", "1", "--data", tmp_path, MOORAGE_TOKEN="")

    assert listed.returncode == 0
    assert "no Moorage runs on" in absent.stderr


def spies(folder: Path, *names: str) -> str:
    """Make programs that report how they were started, and return a PATH with them alone."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text(SPY.replace("{python}", sys.executable))
        (folder / name).chmod(0o755)
    subprocess.run([folder / names[0]], check=True, capture_output=True)
    return str(folder)
