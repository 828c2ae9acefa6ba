"""Routes of logins, API tokens, the account and its notifications."""

from __future__ import annotations

from urllib.parse import urlsplit

from moorage.accounts.identity import logins, notifications, tokens, users
from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.oidc import OidcVerifier
from moorage.accounts.identity.oidc_code import CodeFlow
from moorage.accounts.identity.operators import role as operator_role
from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.schemas import (
    Account,
    AccountInput,
    BeginSignInInput,
    BegunSignIn,
    CreatedToken,
    CreateTokenInput,
    DemoLogin,
    ExchangeCodeInput,
    ExchangedCode,
    LoginResult,
    MarkedRead,
    Me,
    NotificationOut,
    SetupInput,
    SignInMethods,
    SignInProvider,
    SocialLoginInput,
    TokenItem,
    Whoami,
)
from moorage.accounts.identity.sessions import service as session_list
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.identity.users import User
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.request import Request
from moorage.core.http.route import Router, Scope
from moorage.core.net import host_header
from moorage.errors import Conflict, Forbidden

router = Router("Identity")


def login_router(db: Database, sessions: Sessions, verifier: OidcVerifier) -> Router:
    """Return the login routes, which need the signing key of session tokens."""
    login = Router("Identity")

    def log_in(tx: Tx, request: Request, user: User) -> str:
        device = session_list.device_of(request.header(b"user-agent"))
        return session_list.log_in(tx, sessions, user.id, device=device, address=request.client)

    @login.post("/auth/social", scope=Scope.PUBLIC, secret=True)
    async def social_login(request: Request, body: SocialLoginInput) -> LoginResult:
        """Log in with an identity provider's ID token.

        A first login creates the user and an organization, and needs `terms_accepted`.
        """
        identity = await verifier.verify(body.auth_secret)

        def unit(tx: Tx) -> LoginResult:
            user = logins.social(tx, identity, terms_accepted=body.terms_accepted)
            return LoginResult.of(log_in(tx, request, user), user)

        return await db.write(unit)

    @login.post("/auth/demo", scope=Scope.PUBLIC, secret=True)
    def demo_login(tx: Tx, request: Request) -> DemoLogin:
        """Log in as the demo user. Development only.

        Needs a `Host` that is an IP address, `localhost`, or the host of the platform's settings.
        """
        settings, host = tx.env.settings, request.header(b"host")
        own_hosts = {settings.host.lower(), urlsplit(settings.api_url).hostname or "localhost"}
        if not settings.is_production and host is not None and not host_header.is_own(host, own_hosts):
            raise Forbidden(
                f"The demo login does not accept the host {host[:200]!r}: "
                f"use {settings.api_url}, or set MOORAGE_BASE_URL to the address that you use"
            )
        user, org_id = logins.demo(tx)
        return DemoLogin(log_in(tx, request, user), user.email, str(org_id))

    @login.post("/auth/setup", scope=Scope.PUBLIC, secret=True)
    def set_up(tx: Tx, request: Request, body: SetupInput) -> LoginResult:
        """Create the first owner with the one-time token that production prints at start."""
        user = logins.set_up(tx, body.setup_token, body.email, body.name)
        return LoginResult.of(log_in(tx, request, user), user)

    return login


def console_router(db: Database) -> Router:
    """Return the routes with which the console finds out how to sign in, and signs in at an identity provider."""
    sign_in = Router("Identity")
    settings = db.env.settings
    flow = CodeFlow(settings)

    @sign_in.get("/auth/methods", scope=Scope.PUBLIC)
    def read_sign_in_methods() -> SignInMethods:
        """Return how users of this platform sign in: as the demo user, or at identity providers."""
        providers = [SignInProvider(issuer, client_id) for issuer, client_id in flow.providers]
        return SignInMethods(not settings.is_production, providers)

    @sign_in.post("/auth/oidc/begin", scope=Scope.PUBLIC)
    async def begin_sign_in(body: BeginSignInInput) -> BegunSignIn:
        """Return the address at which a user signs in at an identity provider: authorization code with PKCE (S256)."""
        return BegunSignIn(await flow.begin(body.issuer, body.redirect_uri, body.state, body.code_challenge))

    @sign_in.post("/auth/oidc/token", scope=Scope.PUBLIC, secret=True)
    async def exchange_code(body: ExchangeCodeInput) -> ExchangedCode:
        """Exchange a code of an identity provider for an ID token, for a login with `POST /v1/auth/social`."""
        return ExchangedCode(await flow.exchange(body.issuer, body.code, body.code_verifier, body.redirect_uri))

    return sign_in


@router.get("/whoami", scope=Scope.IDENTITY, point=True)
def whoami(caller: Caller) -> Whoami:
    """Return the user of the credential with the active organization and role."""
    if caller.org_name is None:
        return Whoami(caller.user_id, "", "", "")
    return Whoami(caller.user_id, str(caller.org_id), caller.org_name, caller.role)


@router.get("/me", scope=Scope.IDENTITY, point=True)
def me(tx: Tx, caller: Caller) -> Me:
    """Return the user with its organizations.

    `isOperator` says that this session may call the routes below `/v1/operator`.
    """
    user = users.get(tx, caller.user_id)
    is_operator = caller.token_id is None and operator_role.is_operator(tx, user)
    return Me.of(user, members.seen_by(tx, caller), tx.env.settings, is_operator=is_operator)


@router.get("/api-tokens", min_role=Role.ADMIN)
def list_tokens(tx: Tx, caller: Caller) -> list[TokenItem]:
    """List the organization's API tokens, masked."""
    return [TokenItem.of(token) for token in tokens.all_of(tx, caller.org_id)]


@router.post("/api-tokens", min_role=Role.ADMIN, secret=True)
def create_token(tx: Tx, caller: Caller, body: CreateTokenInput) -> CreatedToken:
    """Create an API token. Only this response has its value.

    The role defaults to the caller's and is never above the creator's role at the time of use. A token that is created
    with another token expires no later than that one.
    """
    role = Role(body.role) if body.role is not None else None
    token, raw = tokens.create(tx, caller.org_id, caller, body.name, role=role, expires_in_days=body.expires_in_days)
    return CreatedToken.of(token, raw)


@router.delete("/api-tokens/{token_id}", min_role=Role.ADMIN)
def revoke_token(tx: Tx, caller: Caller, token_id: int) -> None:
    """Revoke an API token immediately."""
    tokens.revoke(tx, caller.org_id, caller, token_id)


@router.get("/account", scope=Scope.IDENTITY, point=True)
def read_account(tx: Tx, caller: Caller) -> Account:
    """Return the caller's account."""
    return Account.of(users.get(tx, caller.user_id))


@router.patch("/account", scope=Scope.IDENTITY)
def update_account(tx: Tx, caller: Caller, body: AccountInput) -> Account:
    """Change the caller's names and picture. An API token needs the owner role."""
    caller.check_is_owner_or_session()
    return Account.of(users.change(tx, users.get(tx, caller.user_id), body.sent()))


@router.delete("/account", scope=Scope.IDENTITY)
def delete_account(tx: Tx, caller: Caller) -> None:
    """Delete the caller's account, tokens and organizations without other members.

    Needs a session token. Refused while an organization with other members has no other owner.
    """
    caller.check_is_session()
    for membership in members.memberships(tx, caller.user_id):
        members.lock(tx, membership.org_id)
        if members.count(tx, membership.org_id) == 1:
            orgs.delete(tx, membership.org_id, caller.as_actor)
            continue
        if members.is_last_owner(tx, membership.org_id, caller.user_id):
            raise Conflict(f"You are the last owner of {membership.name}; make another owner, or delete it first")
        members.remove(tx, membership.org_id, caller, caller.user_id)
    users.remove(tx, users.get(tx, caller.user_id))


@router.get("/notifications", scope=Scope.IDENTITY)
def list_notifications(tx: Tx, caller: Caller) -> list[NotificationOut]:
    """List the caller's newest notifications; for an API token its organization's."""
    return [NotificationOut.of(each) for each in notifications.all_of(tx, caller.user_id, org_id=caller.only_org_id)]


@router.post("/notifications/read", scope=Scope.IDENTITY)
def read_all_notifications(tx: Tx, caller: Caller) -> MarkedRead:
    """Mark all of the caller's notifications as read."""
    caller.check_is_not_limited()
    return MarkedRead(notifications.mark_all_read(tx, caller.user_id, org_id=caller.only_org_id))


@router.post("/notifications/{notification_id}/read", scope=Scope.IDENTITY)
def read_notification(tx: Tx, caller: Caller, notification_id: int) -> NotificationOut:
    """Mark one notification as read."""
    caller.check_is_not_limited()
    marked = notifications.mark_read(tx, caller.user_id, notification_id, org_id=caller.only_org_id)
    return NotificationOut.of(marked)
