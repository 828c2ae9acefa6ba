"""`moorage domains`, `redirects`, `headers`, `env` and `secrets` against a running platform."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from tests.cli.live import Shell

pytestmark = pytest.mark.group("cli-live")


def test_a_domain_is_added_with_its_records_listed_and_removed(shell: Shell, site: str) -> None:
    added = shell("domains", "add", site, "shop.cli.example.com")
    again = shell.ok("domains", "records", site, "SHOP.cli.example.com.")
    verified = shell("domains", "verify", site, "shop.cli.example.com")
    listed = shell.ok("domains", "list", site).split("\t")
    refused = shell("domains", "remove", site, "shop.cli.example.com")
    removed = shell.terminal("domains", "remove", site, "shop.cli.example.com", keys={"[y/N]": "y\n"})

    records = [line.split(" ", 4) for line in added.stdout.splitlines()]
    assert added.stdout == again
    assert {row[3] for row in records} >= {"TXT", "CNAME"}
    assert all(row[0].endswith(".") and row[2] == "IN" for row in records)
    assert "moorage domains verify" in added.stderr
    assert (verified.returncode, "prints the records to set" in verified.stderr) == (1, True)
    assert listed[:2] == ["shop.cli.example.com", "pending"]
    assert refused.returncode == 2
    assert (removed.code, "removed shop.cli.example.com" in removed.text) == (0, True)
    assert shell.json("domains", "list", site) == []


def test_waiting_for_a_domain_ends_with_its_state(shell: Shell, site: str) -> None:
    shell.ok("domains", "add", site, "late.cli.example.com")

    waited = shell("domains", "verify", site, "late.cli.example.com", "--wait", "--timeout", "1", "--json")
    shell.ok("domains", "remove", site, "late.cli.example.com", "--yes")

    assert waited.returncode == 1
    assert json.loads(waited.stdout)["status"] == "pending"
    assert "verifying late.cli.example.com: pending" in waited.stderr


def test_a_domain_that_is_not_there_is_answered_with_those_that_are(shell: Shell, site: str) -> None:
    assert "its domains: none" in shell("domains", "records", site, "x.example.com").stderr
    assert "domain: " in shell("domains", "add", site, "not a domain").stderr


def test_redirects_are_added_replaced_and_removed(shell: Shell, site: str) -> None:
    shell.ok("redirects", "add", site, "/old", "/new", "--status", "301")
    shell.ok("redirects", "add", site, "/docs/*", "https://docs.example.com/*")
    shell.ok("redirects", "add", site, "/old", "/newer")
    shell.ok("redirects", "add", site, "/first", "/", "--first")

    listed = shell.ok("redirects", "list", site)
    shell.ok("redirects", "remove", site, "/first")

    assert listed.splitlines() == ["/first\t/\t302", "/old\t/newer\t302", "/docs/*\thttps://docs.example.com/*\t302"]
    assert dict(shell.sites.visit(site, "/old").headers)["location"].endswith("/newer")
    assert shell("redirects", "remove", site, "/first").returncode == 1
    assert shell("redirects", "add", site, "/x", "/y", "--status", "200").returncode == 2


def test_all_redirects_are_set_from_a_file(shell: Shell, site: str, tmp_path: Path) -> None:
    toml = tmp_path / "rules.toml"
    toml.write_text('[[redirects]]\nsource = "/a"\ndestination = "/b"\nstatus = 308\n')
    shell.ok("redirects", "set", site, toml, "--yes")
    exported = shell.ok("redirects", "list", site, "--json")

    unconfirmed = shell("redirects", "set", site, "-", stdin="[]")
    shell.ok("redirects", "set", site, "-", "--yes", stdin="[]")
    shell.ok("redirects", "set", site, "-", stdin=exported)

    assert unconfirmed.returncode == 2
    assert shell.ok("redirects", "list", site) == "/a\t/b\t308\n"
    assert "cannot read" in shell("redirects", "set", site, tmp_path / "absent.json").stderr
    assert "is not a list of redirects" in shell("redirects", "set", site, "-", stdin='[{"source": 1}]').stderr
    shell.ok("redirects", "set", site, "-", "--yes", stdin="[]")


def test_headers_are_added_replaced_and_removed(shell: Shell, site: str, tmp_path: Path) -> None:
    shell.ok("headers", "add", site, "/*", "X-Frame-Options", "SAMEORIGIN")
    shell.ok("headers", "add", site, "/*", "x-frame-options", "DENY")
    shell.ok("headers", "add", site, "/private/*", "Cache-Control", "no-store")
    served = dict(shell.sites.visit(site).headers)
    rows = shell.json("headers", "list", site)

    shell.ok("headers", "remove", site, "/*", "X-Frame-Options")
    file = tmp_path / "headers.json"
    file.write_text(json.dumps(rows))
    shell.ok("headers", "set", site, file)

    assert served["x-frame-options"] == "DENY"
    assert len(shell.ok("headers", "list", site).splitlines()) == 2
    assert shell("headers", "remove", site, "/none").returncode == 1
    shell.ok("headers", "set", site, "-", "--yes", stdin="[]")


def test_variables_are_set_listed_pulled_pushed_and_unset(shell: Shell, site: str, tmp_path: Path) -> None:
    shell.ok("env", "set", site, "THEME=dark", "TEXT=a b # c")
    pulled = shell.ok("env", "pull", site, tmp_path / "pulled.env")
    file = tmp_path / "pulled.env"
    again = shell("env", "pull", site, file)
    file.write_text(file.read_text() + "MORE=1\n")
    shell.ok("env", "push", site, file)
    shell.ok("env", "unset", site, "TEXT")

    assert "wrote 2 variables" in pulled
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (again.returncode, "replace it with --force" in again.stderr) == (1, True)
    assert shell.ok("env", "list", site) == "THEME\tdark\nMORE\t1\n"
    assert shell.json("env", "list", site)[0] == {"name": "THEME", "value": "dark"}
    assert shell("env", "push", site, "-", "--replace", stdin="THEME=dark\n").returncode == 2
    shell.ok("env", "push", site, "-", "--replace", "--yes", stdin="THEME=dark\n")
    assert shell.ok("env", "pull", site, "-") == "THEME=dark\n"


def test_bad_variables_change_nothing(shell: Shell, site: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.env"
    file.write_text("A=1\nnot a variable\n")

    assert shell("env", "set", site, "NOVALUE").returncode == 2
    assert "line 2" in shell("env", "push", site, file).stderr
    assert shell("env", "unset", site, "ABSENT").returncode == 1


def test_variables_of_an_app_take_effect_with_a_deployment(shell: Shell, app: str) -> None:
    done = shell("env", "set", app, "GREETING=ahoy")

    assert done.returncode == 0, done.stderr
    assert "is live at" in done.stderr
    assert shell.sites.text(app) == "ahoy"
    shell.ok("env", "unset", app, "GREETING", "--no-wait")


def test_secrets_come_from_a_prompt_or_a_pipe_and_never_from_the_command_line(shell: Shell, site: str) -> None:
    typed = shell.terminal("secrets", "set", site, "TYPED", keys={"Value of TYPED: ": "hidden-value\n"})
    shell.ok("secrets", "set", site, "PIPED", stdin="from a pipe\n")
    shell.ok("secrets", "set", site, "--from-file", "-", stdin="ONE=1\nTWO=2\n")
    named = shell("secrets", "set", site, "ARGUED=value")

    assert typed.code == 0, typed.text
    assert "hidden-value" not in typed.text
    assert shell.ok("secrets", "list", site).split() == ["ONE", "PIPED", "TWO", "TYPED"]
    assert shell.ok("secrets", "reveal", site, "TYPED", "--yes") == "hidden-value\n"
    assert shell.ok("secrets", "reveal", site, "PIPED", "--yes") == "from a pipe\n"
    assert (named.returncode, "value" in named.stdout) == (2, False)
    assert "leave out the value" in named.stderr


def test_a_secret_is_shown_and_removed_after_a_question(shell: Shell, site: str) -> None:
    shell.ok("secrets", "set", site, "ASKED", stdin="shown after y")

    declined = shell.terminal("secrets", "reveal", site, "ASKED", keys={"[y/N]": "n\n"})
    confirmed = shell.terminal("secrets", "reveal", site, "ASKED", keys={"[y/N]": "y\n"})

    assert (declined.code, "shown after y" in declined.text) == (1, False)
    assert (confirmed.code, "shown after y" in confirmed.text) == (0, True)
    assert shell("secrets", "unset", site, "ASKED").returncode == 2
    shell.ok("secrets", "unset", site, "ASKED", "--yes")
    assert "did you mean" in shell("secrets", "reveal", site, "TYPD", "--yes").stderr


def test_a_secret_needs_a_value_and_a_role(shell: Shell, site: str, viewer: str) -> None:
    assert "no value was given" in shell("secrets", "set", site, "EMPTY", stdin="").stderr
    assert shell("secrets", "set", site).returncode == 2
    assert shell("secrets", "set", site, "A", "B", stdin="x").returncode == 2
    assert "shows your role" in shell("secrets", "set", site, "DENIED", stdin="x", MOORAGE_TOKEN=viewer).stderr
