"""Bindings: organizations that may read through an installation of the GitHub app.

A binding needs a proof: an administrator of the organization begins, authorizes at GitHub as a user that owns the
account, and sends the code of GitHub's redirect (`redeem`, then `prove`, then `bind`). The state names organization and
user, so a code that a victim's browser got for an attacker's state is useless: the victim's credential is rejected, and
the attacker does not have the code.

An installation may be bound to several organizations; each of them needs its own proof.
"""

from __future__ import annotations

from typing import Any

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.webhooks.service import GithubEvent
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Actor, AuditTarget
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.errors import Conflict, Forbidden, NotFound, bad_field
from moorage.products.repositories import tables
from moorage.products.repositories.github import setup_state
from moorage.products.repositories.github.api import GithubApi, GithubUnavailable
from moorage.products.repositories.names import parse_name
from moorage.products.repositories.tables import Binding

MAX_INSTALLATION_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Installed:
    """Installation as described by GitHub."""

    login: str
    number: int
    is_suspended: bool
    account_id: int | None = None
    is_user: bool = False  # account of a user, not of an organization


@dataclass(frozen=True, slots=True)
class Proof:
    """Installation, and the GitHub user that proved to own its account."""

    installed: Installed
    prover: str


def redeem(tx: Tx, org_id: int, user_id: int, text: str) -> None:
    """Mark a setup state as used; raises BadRequest if foreign, expired or used."""
    state = setup_state.read(tx.env, text)
    tx.run(tables.FORGET_STATES, now=tx.trusted_now)
    if (
        state is None
        or (state.org_id, state.user_id) != (org_id, user_id)
        or not state.is_current(tx.now)
        or tx.find(tables.USE_STATE, org_id=org_id, nonce=state.nonce, expires_at=state.expires_at) is None
    ):
        raise bad_field("state", "is not of this organization and user, has expired or was used; begin again")


async def prove(api: GithubApi, code: str, number: int | None) -> Proof:
    """Return the installation of an account that the code's user owns; else raises."""
    token = await api.exchange(code)
    if token is None:
        raise bad_field("code", "is not accepted by GitHub: it works once, for ten minutes; begin again")
    status, user = await api.as_user(token, "/user")
    if status != 200 or not isinstance(user, dict) or not isinstance(user.get("login"), str):
        raise GithubUnavailable("GitHub's API did not name the user; try again")
    visible = [read_installation(each) for each in await api.installations(token)]
    installed = _choose([each for each in visible if each is not None], number, user["login"])
    if installed.is_suspended:
        raise Conflict(f"The installation for {installed.login} is suspended at GitHub")
    if not await _is_administrator(api, token, installed, user):
        raise Forbidden(
            f"The GitHub user {user['login']} does not own the account {installed.login}: "
            "an owner of it has to connect it (the app needs the permission to read members)"
        )
    return Proof(installed, user["login"])


def _choose(visible: list[Installed], number: int | None, login: str) -> Installed:
    if number is None and len(visible) == 1:
        return visible[0]
    if number is None and visible:
        known = ", ".join(f"{each.number} ({each.login})" for each in visible[:20])
        raise bad_field("installationId", f"is required: {login} has access to several installations: {known}")
    chosen = next((each for each in visible if each.number == number), None)
    if chosen is None:
        which = f"installation {number}" if number is not None else "any installation"
        raise Forbidden(f"The GitHub user {login} has no access to {which} of this platform's app")
    return chosen


async def _is_administrator(api: GithubApi, token: str, installed: Installed, user: dict[str, Any]) -> bool:
    """Return whether a user owns an account; access to repositories is not enough."""
    if installed.is_user:
        return installed.account_id is not None and user.get("id") == installed.account_id
    status, membership = await api.as_user(token, f"/user/memberships/orgs/{installed.login}")
    is_member = status == 200 and isinstance(membership, dict) and membership.get("state") == "active"
    return is_member and membership.get("role") == "admin"


def bind(tx: Tx, org_id: int, actor: Actor, proof: Proof) -> Binding:
    """Let an organization read through an installation. Safe to repeat."""
    assert actor.user_id is not None
    installed = proof.installed
    values = {"login": installed.login, "login_key": installed.login.lower(), "proved_by": proof.prover}
    added = tx.find(
        tables.ADD_BINDING,
        org_id=org_id,
        installation_id=installed.number,
        user_id=actor.user_id,
        created_at=tx.now,
        **values,
    )
    if added is None:
        changes = {"shown": installed.login, "key": installed.login.lower(), "prover": proof.prover}
        tx.run(tables.SET_BINDING, org_id=org_id, number=installed.number, by=actor.user_id, **changes)
    tx.run(tables.DROP_CLAIM, org_id=org_id, number=installed.number, now=tx.now)
    audit.record(tx, org_id, actor, "github.connected", AuditTarget("github", installed.login), by=proof.prover)
    binding = find(tx, org_id, installed.number)
    assert binding is not None
    return binding


def unbind(tx: Tx, org_id: int, actor: Actor, number: int) -> None:
    binding = find(tx, org_id, number)
    if binding is None:
        raise NotFound("There is no such installation")
    tx.run(tables.DELETE_BINDING, org_id=org_id, number=number)
    audit.record(tx, org_id, actor, "github.disconnected", AuditTarget("github", binding.login))


def find(tx: Tx, org_id: int, number: int) -> Binding | None:
    return tx.find(tables.FIND_BINDING, org_id=org_id, number=min(number, MAX_INSTALLATION_ID))


def find_of_account(tx: Tx, org_id: int, account: str) -> Binding | None:
    return tx.find(tables.BINDING_OF_ACCOUNT, org_id=org_id, login_key=account.lower())


def all_of(tx: Tx, org_id: int) -> list[Binding]:
    return tx.all(tables.BINDINGS_OF, org_id=org_id)


@across_organizations("an installation may be bound to several organizations")
def end_all(tx: Tx, installed: Installed, why: str) -> None:
    """Unbind all organizations from an installation that was removed or suspended."""
    for binding in tx.all(tables.BOUND_TO, number=installed.number):
        tx.run(tables.DELETE_BINDING, org_id=binding.org_id, number=binding.installation_id)
        target = AuditTarget("github", binding.login)
        audit.record(tx, binding.org_id, THE_PLATFORM, "github.disconnected", target, why=why)


def may_hear(tx: Tx, org_id: int, event: GithubEvent) -> bool:
    """Return whether an organization may receive an event.

    Events of a private repository need a binding. GitHub marks every private repository; an event without the mark is
    of a public one, or of another code host.
    """
    repository, installation = event.payload.get("repository"), event.payload.get("installation")
    if not isinstance(repository, dict) or repository.get("private") is not True:
        return True
    number = installation.get("id") if isinstance(installation, dict) else None
    return type(number) is int and 0 < number <= MAX_INSTALLATION_ID and find(tx, org_id, number) is not None


@across_organizations("the operator lists the claims of all organizations")
def list_claims(tx: Tx) -> list[dict[str, Any]]:
    """Return the unproved claims of earlier versions, which give no access."""
    claims = []
    for claim in tx.all(tables.CLAIMS):
        assert claim.org_id is not None
        org = orgs.find(tx, claim.org_id)
        claimant = {"organization": claim.org_id, "slug": org.slug if org is not None else None}
        claims.append({"account": claim.login, "installationId": claim.installation_id, **claimant})
    return claims


def read_installation(value: Any) -> Installed | None:
    """Parse an installation of GitHub's API or events; None for an invalid one."""
    try:
        account = value["account"]
        login, number, suspended_at = account["login"], value["id"], value.get("suspended_at")
        account_id, kind = account.get("id"), account.get("type")
    except (TypeError, KeyError, AttributeError):
        return None
    is_valid = isinstance(login, str) and parse_name(f"{login}/x") is not None and type(number) is int
    if not is_valid or not 0 < number <= MAX_INSTALLATION_ID:
        return None
    known_id = account_id if type(account_id) is int else None
    return Installed(login, number, suspended_at is not None, known_id, kind == "User")
