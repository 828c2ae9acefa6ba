"""Signing in, contexts, and the errors that a user meets first."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.cli.live import Shell
from tests.ports import free_port

pytestmark = pytest.mark.group("cli-live")


def contexts_file(shell: Shell) -> Path:
    return shell.home / "config" / "moorage" / "contexts.toml"


def test_the_demo_login_is_stored_for_the_user_alone_and_used_from_then_on(shell: Shell) -> None:
    shell.signed_out.ok("login", shell.sites.running.url, "--demo", "--name", "here")

    assert stat.S_IMODE(contexts_file(shell).stat().st_mode) == 0o600
    assert "owner" in shell.signed_out.ok("whoami")


def test_a_token_is_asked_for_without_showing_it(shell: Shell) -> None:
    token = shell.client.identity.create_token(name="terminal").token

    shown = shell.terminal("login", shell.sites.running.url, keys={"API token: ": f"{token}\n"}, MOORAGE_TOKEN="")

    assert shown.code == 0, shown.text
    assert "signed in to" in shown.text
    assert token not in shown.text
    assert token in contexts_file(shell).read_text()


def test_a_token_is_read_from_a_pipe(shell: Shell) -> None:
    token = shell.client.identity.create_token(name="pipe").token

    shell.signed_out.ok("login", shell.sites.running.url, stdin=token)

    assert "owner" in shell.signed_out.ok("whoami")


def test_a_wrong_token_is_not_stored(shell: Shell) -> None:
    done = shell.signed_out("login", shell.sites.running.url, stdin="mrg_wrong\n")

    assert done.returncode == 1
    assert "next: sign in with `moorage login`" in done.stderr
    assert not contexts_file(shell).exists()


def test_contexts_are_listed_chosen_and_forgotten(shell: Shell) -> None:
    user = shell.signed_out
    for name in ("one", "two"):
        user.ok("login", shell.sites.running.url, "--demo", "--name", name)
    user.ok("context", "use", "one")

    listed = [line.split("\t")[:2] for line in user.ok("context", "list").splitlines()]
    user.ok("logout", "one")

    assert listed == [["*", "one"], ["", "two"]]
    assert user.ok("context", "list").split("\t")[:2] == ["*", "two"]
    assert user("--context", "one", "whoami").returncode == 1


def test_a_stored_token_is_not_sent_to_another_platform(shell: Shell) -> None:
    shell.signed_out.ok("login", shell.sites.running.url, "--demo")

    done = shell("whoami", MOORAGE_TOKEN="", MOORAGE_URL=f"http://127.0.0.1:{free_port()}")

    assert "not signed in to http://127.0.0.1:" in done.stderr


def test_without_a_credential_the_command_says_how_to_sign_in(shell: Shell) -> None:
    done = shell("whoami", MOORAGE_TOKEN="")

    assert done.returncode == 1
    assert "moorage login --demo" in done.stderr


def test_without_a_platform_the_command_says_how_to_start_one(shell: Shell) -> None:
    done = shell("whoami", MOORAGE_URL=f"http://127.0.0.1:{free_port()}")

    assert done.returncode == 1
    assert "cannot reach http://127.0.0.1:" in done.stderr
    assert "next: start a platform with `moorage up`" in done.stderr


def test_an_error_of_the_api_has_its_trace_id(shell: Shell) -> None:
    done = shell("--org", "999999", "whoami")

    assert done.returncode == 1
    assert "trace id: " in done.stderr


def test_a_broken_file_of_contexts_is_named(shell: Shell) -> None:
    contexts_file(shell).parent.mkdir(parents=True)
    contexts_file(shell).write_text("current = ")

    done = shell.signed_out("whoami")

    assert done.returncode == 1
    assert f"cannot read {contexts_file(shell)}" in done.stderr
    assert "Traceback" not in done.stderr
