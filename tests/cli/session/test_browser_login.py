"""`moorage login --browser` at a real OpenID provider, with a browser that follows redirects."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import forked
from tests.accounts.identity.openid.provider import Provider, running_provider
from tests.cli.terminal import Shown, run_in_terminal
from tests.command import environment
from tests.core.http.live_server import live_platform
from tests.ports import free_port

CLIENT = "moorage-native"
pytestmark = pytest.mark.group("cli-browser")


@dataclass(frozen=True)
class Machine:
    """A user's machine with a browser and an own home."""

    home: Path
    url: str
    env: dict[str, str]

    def login(self, user: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        given = self.env | {"BROWSER_USER": user} | env
        return forked.run(["login", self.url, "--timeout", "40", *words], env=given, cwd=self.home)

    def run(self, *words: str) -> str:
        done = forked.run(words, env=self.env, cwd=self.home)
        assert done.returncode == 0, done
        return done.stdout

    def terminal(self, user: str, *words: str, keys: dict[str, str] | None = None) -> Shown:
        argv = ["login", self.url, "--timeout", "40", *words]
        return run_in_terminal(argv, env=self.env | {"BROWSER_USER": user}, keys=keys, cwd=self.home)

    @property
    def pages(self) -> str:
        """Pages that the browser got."""
        return (self.home / "pages").read_text()

    @property
    def is_signed_in(self) -> bool:
        return (self.home / "config" / "moorage" / "contexts.toml").exists()


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as started:
        yield started


@pytest.fixture(scope="module")
def url(provider: Provider, tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("browser")
    issuers = (provider.issuer,)
    with live_platform(folder, sqlite_template, oidc_issuers=issuers, oidc_audience=(CLIENT,)) as platform:
        yield platform.server.url


@pytest.fixture
def machine(tmp_path: Path, url: str) -> Machine:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("browser_stand_in.py")} "$1"\n')
    browser.chmod(0o755)
    env = environment() | {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "BROWSER": str(browser),
        "BROWSER_LOG": str(tmp_path / "pages"),
    }
    return Machine(tmp_path, url, env)


def test_a_first_login_in_the_browser_makes_a_session(machine: Machine) -> None:
    done = machine.login("ada", "--browser", "--accept-terms")

    file = machine.home / "config" / "moorage" / "contexts.toml"
    assert done.returncode == 0, done.stderr
    assert "as owner" in done.stdout
    assert "Signed in" in machine.pages
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "role\towner" in machine.run("whoami")
    assert len(machine.run("sessions", "list").splitlines()) == 1
    assert "code=" not in done.stderr


def test_a_terminal_opens_the_browser_by_itself_and_asks_for_the_terms(machine: Machine) -> None:
    shown = machine.terminal("grace", keys={"[y/N]": "y\n"})

    assert shown.code == 0, shown.text
    assert "as owner" in shown.text


def test_terms_that_are_not_accepted_sign_nobody_in(machine: Machine) -> None:
    piped = machine.login("alan", "--browser")
    shown = machine.terminal("alan", keys={"[y/N]": "n\n"})

    assert (piped.returncode, "--accept-terms" in piped.stderr) == (1, True)
    assert (shown.code, machine.is_signed_in) == (1, False)


def test_a_token_can_be_used_instead(machine: Machine) -> None:
    shown = machine.terminal("ada", "--token", keys={"API token: ": "psk_wrong\n"})

    assert shown.code == 1
    assert "sign in with `moorage login`" in shown.text


def test_an_answer_with_another_state_is_refused_and_the_sign_in_goes_on(machine: Machine) -> None:
    forged = "{redirect_uri}?code=stolen&state=forged"

    done = machine.login("ada", "--browser", "--accept-terms", BROWSER_VISITS=forged)

    assert done.returncode == 0, done.stderr
    assert machine.pages.startswith("400 ")
    assert "belongs to another sign-in" in machine.pages


def test_a_changed_state_is_never_accepted(machine: Machine) -> None:
    done = machine.login("ada", "--browser", "--timeout", "3", BROWSER_CHANGES=json.dumps({"state": "forged"}))

    assert (done.returncode, machine.is_signed_in) == (1, False)
    assert "no answer of the browser within 3 seconds" in done.stderr


def test_an_id_token_with_another_nonce_is_refused(machine: Machine) -> None:
    done = machine.login("ada", "--browser", BROWSER_CHANGES=json.dumps({"nonce": "forged"}))

    assert (done.returncode, machine.is_signed_in) == (1, False)
    assert "its nonce differs" in done.stderr


def test_the_provider_refuses_a_code_of_another_verifier(machine: Machine) -> None:
    changed = json.dumps({"code_challenge": "A" * 43})

    done = machine.login("ada", "--browser", BROWSER_CHANGES=changed)

    assert (done.returncode, machine.is_signed_in) == (1, False)
    assert "did not exchange the code" in done.stderr


def test_a_user_who_declines_gets_the_reason(machine: Machine) -> None:
    declined = "{redirect_uri}?error=access_denied&error_description=not+today&state={state}"

    done = machine.login("ada", "--browser", BROWSER_VISITS=declined, BROWSER_STAYS="1")

    assert done.returncode == 1
    assert "the identity provider refused: not today" in done.stderr


def test_a_browser_that_does_nothing_ends_with_a_timeout(machine: Machine) -> None:
    done = machine.login("ada", "--browser", "--timeout", "1", BROWSER_STAYS="1")

    assert (done.returncode, "start again" in done.stderr) == (1, True)


def test_a_port_in_use_is_named(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        done = machine.login("ada", "--browser", "--port", str(port))

    assert (done.returncode, f"port {port} of this machine is in use" in done.stderr) == (1, True)


def test_a_chosen_port_and_no_display_print_the_address(machine: Machine) -> None:
    port = free_port()
    hidden = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}

    done = machine.login("ada", "--browser", "--timeout", "1", "--port", str(port), **hidden)

    assert "Open this page to sign in:" in done.stderr
    assert f"redirect_uri=http%3A%2F%2F127.0.0.1%3A{port}%2Fcallback" in done.stderr
    assert "code_challenge_method=S256" in done.stderr


def test_an_unknown_provider_is_answered_with_those_that_exist(machine: Machine, provider: Provider) -> None:
    done = machine.login("ada", "--issuer", "https://id.example.com")

    assert (done.returncode, f"it has: {provider.issuer}" in done.stderr) == (1, True)


def test_a_provider_that_is_down_is_named(machine: Machine, provider: Provider) -> None:
    asyncio.run(provider.tell("down"))
    try:
        done = machine.login("ada", "--browser")
    finally:
        asyncio.run(provider.tell("up"))

    assert (done.returncode, f"{provider.issuer} does not answer" in done.stderr) == (1, True)
