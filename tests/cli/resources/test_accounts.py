"""`moorage tokens`, `orgs`, `members`, `activity`, `sessions` and `notifications` against a running platform."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.cli.live import Shell

pytestmark = pytest.mark.group("cli-live")


def new_user(shell: Shell, email: str) -> str:
    """Create a user, and return a session token: the demo user keeps a single organization for the other tests."""
    data = str(shell.sites.running.data)
    shell.ok("admin", "create-user", email, "--data", data)
    return shell.ok("admin", "session", email, "--data", data).strip()


def signed_in(shell: Shell, token: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Store a session in a context, and return the command that uses it."""

    def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return shell.signed_out(*words, stdin=stdin)

    assert run("login", shell.sites.running.url, stdin=token).returncode == 0
    return run


def test_a_token_is_printed_alone_works_and_is_revoked(shell: Shell) -> None:
    created = shell("tokens", "create", "cli-ci", "--role", "member", "--expires-days", "3")
    token = created.stdout.strip()

    works = shell.ok("whoami", MOORAGE_TOKEN=token)
    row = next(line.split("\t") for line in shell.ok("tokens", "list").splitlines() if "\tcli-ci\t" in line)
    unconfirmed = shell("tokens", "revoke", "cli-ci")
    shell.ok("tokens", "revoke", "cli-ci", "--yes")

    assert created.stdout == f"{token}\n"
    assert "it is not shown again" in created.stderr
    assert "role\tmember" in works
    assert (row[3], row[6]) == ("member", "in 2 d")
    assert token not in "\t".join(row)
    assert unconfirmed.returncode == 2
    assert "sign in with `moorage login`" in shell("whoami", MOORAGE_TOKEN=token).stderr
    assert "there is no token cli-ci" in shell("tokens", "revoke", "cli-ci", "--yes").stderr


def test_tokens_of_one_name_are_revoked_by_their_ids(shell: Shell) -> None:
    ids = [shell.json("tokens", "create", "cli-twin")["id"] for _ in range(2)]

    ambiguous = shell("tokens", "revoke", "cli-twin", "--yes")
    for each in ids:
        shell.ok("tokens", "revoke", str(each), "--yes")

    assert "2 tokens have the name cli-twin" in ambiguous.stderr


def test_a_role_that_is_too_low_cannot_list_tokens(shell: Shell, viewer: str) -> None:
    assert "shows your role" in shell("tokens", "list", MOORAGE_TOKEN=viewer).stderr


def test_an_organization_is_created_used_and_renamed(shell: Shell) -> None:
    run = signed_in(shell, new_user(shell, "cli-ada@example.com"))
    home = json.loads(run("orgs", "show", "--json").stdout)["organizationId"]
    created = json.loads(run("orgs", "create", "Cli Harbour", "--json").stdout)
    ambiguous = run("projects", "list")

    run("orgs", "use", created["slug"])
    used = run("whoami").stdout
    run("orgs", "rename", "Cli Haven")
    listed = run("orgs", "list").stdout
    once = run("--org", home, "whoami").stdout

    assert "choose one of `moorage orgs list`" in ambiguous.stderr
    assert f"({created['organizationId']})" in used
    assert f"*\t{created['organizationId']}\t{created['slug']}\tCli Haven\towner" in listed
    assert "name\tCli Haven" in run("orgs", "show").stdout
    assert f"({home})" in once
    assert "you belong to no organization nowhere" in run("orgs", "use", "nowhere").stderr


def test_an_organization_of_the_environment_is_not_overridden(shell: Shell) -> None:
    assert "MOORAGE_TOKEN or MOORAGE_ORG" in shell("orgs", "use", shell.sites.org).stderr


def test_members_are_invited_accepted_promoted_and_removed(shell: Shell) -> None:
    grace = new_user(shell, "cli-grace@example.com")

    shell.ok("members", "invite", "cli-grace@example.com", "--role", "viewer")
    pending = shell.ok("members", "invitations", "list")
    mine = shell.ok("members", "invitations", "list", "--mine", MOORAGE_TOKEN=grace)
    accepted = shell.ok("members", "invitations", "accept", pending.split("\t")[0], MOORAGE_TOKEN=grace)
    promoted = shell.ok("members", "role", "cli-grace@example.com", "admin")
    unknown = shell("members", "role", "cli-grase@example.com", "admin")
    unconfirmed = shell("members", "remove", "cli-grace@example.com")
    shell.ok("members", "remove", "CLI-grace@example.com", "--yes")

    assert mine == pending
    assert "you are viewer of" in accepted
    assert "is admin now" in promoted
    assert "did you mean cli-grace@example.com?" in unknown.stderr
    assert unconfirmed.returncode == 2
    assert len(shell.ok("members", "list").splitlines()) == 1


def test_an_invitation_is_declined_and_another_revoked(shell: Shell) -> None:
    alan = new_user(shell, "cli-alan@example.com")
    first = shell.json("members", "invite", "cli-alan@example.com")["id"]

    declined = shell.ok("members", "invitations", "decline", str(first), MOORAGE_TOKEN=alan)
    second = shell.json("members", "invite", "cli-alan@example.com")["id"]
    shell.ok("members", "invitations", "revoke", str(second))

    assert "declined the invitation" in declined
    assert shell.json("members", "invitations", "list") == []


def test_activity_is_listed_and_followed(shell: Shell) -> None:
    shell.client.identity.create_token(name="cli-activity-before")
    command = [sys.executable, "-m", "moorage.cli.main", "activity", "-f", "--limit", "1"]

    with subprocess.Popen(command, env=shell.env, stdout=subprocess.PIPE, text=True) as followed:
        assert followed.stdout is not None
        first = followed.stdout.readline()
        shell.client.identity.create_token(name="cli-activity-after")
        second = followed.stdout.readline()
        followed.terminate()

    assert "api_token cli-activity-before" in first
    assert "api_token cli-activity-after" in second
    assert shell.json("activity", "--limit", "2")[0]["target"]["name"] == "cli-activity-after"
    assert "api_token.created" in shell.terminal("activity", COLUMNS="200").text


def test_sessions_are_listed_and_revoked_with_a_session_only(shell: Shell) -> None:
    run = signed_in(shell, new_user(shell, "cli-edsger@example.com"))
    data = str(shell.sites.running.data)
    other = shell.ok("admin", "session", "cli-edsger@example.com", "--data", data).strip()
    rows = [line.split("\t") for line in run("sessions", "list").stdout.splitlines()]

    revoked = run("sessions", "revoke", str(max(int(row[1]) for row in rows)), "--yes")
    token = shell.client.identity.create_token(name="cli-no-session").token

    assert [row[0] for row in rows].count("*") == 1
    assert revoked.returncode == 0
    assert shell("whoami", MOORAGE_TOKEN=other).returncode == 1
    assert shell("sessions", "list", MOORAGE_TOKEN=token).returncode == 1


def test_notifications_are_listed_and_marked_as_read(shell: Shell) -> None:
    assert isinstance(shell.json("notifications", "list"), list)
    assert "notifications as read" in shell.ok("notifications", "read")
    assert shell.json("notifications", "list", "--unread") == []
    assert shell("notifications", "read", "999999").returncode == 1
