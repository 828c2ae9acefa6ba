"""Routes of the group Identity. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.asynchronous import AsyncTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import List


class AsyncIdentity:
    """Methods of the group Identity."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def social_login(
        self, *, auth_secret: str, terms_accepted: bool | UnsetType = UNSET, idempotency_key: str | None = None
    ) -> models.LoginResult:
        """Log in with an identity provider's ID token.

        A first login creates the user and an organization, and needs `terms_accepted`.
        """
        return await self._transport.call(
            Call(
                "POST",
                "/v1/auth/social",
                body=models.SocialLoginInput(auth_secret=auth_secret, terms_accepted=terms_accepted),
                key=idempotency_key,
            ),
            models.LoginResult,
        )

    async def demo_login(self, *, idempotency_key: str | None = None) -> models.DemoLogin:
        """Log in as the demo user. Development only.

        Needs a `Host` that is an IP address, `localhost`, or the host of the platform's settings.
        """
        return await self._transport.call(Call("POST", "/v1/auth/demo", key=idempotency_key), models.DemoLogin)

    async def set_up(
        self, *, setup_token: str, email: str, name: str, idempotency_key: str | None = None
    ) -> models.LoginResult:
        """Create the first owner with the one-time token that production prints at start."""
        return await self._transport.call(
            Call(
                "POST",
                "/v1/auth/setup",
                body=models.SetupInput(setup_token=setup_token, email=email, name=name),
                key=idempotency_key,
            ),
            models.LoginResult,
        )

    async def read_sign_in_methods(self) -> models.SignInMethods:
        """Return how users of this platform sign in: as the demo user, or at identity providers."""
        return await self._transport.call(Call("GET", "/v1/auth/methods"), models.SignInMethods)

    async def begin_sign_in(
        self, *, issuer: str, redirect_uri: str, state: str, code_challenge: str, idempotency_key: str | None = None
    ) -> models.BegunSignIn:
        """Return the address at which a user signs in at an identity provider: authorization code with PKCE
        (S256).
        """
        return await self._transport.call(
            Call(
                "POST",
                "/v1/auth/oidc/begin",
                body=models.BeginSignInInput(
                    issuer=issuer, redirect_uri=redirect_uri, state=state, code_challenge=code_challenge
                ),
                key=idempotency_key,
            ),
            models.BegunSignIn,
        )

    async def exchange_code(
        self, *, issuer: str, redirect_uri: str, code: str, code_verifier: str, idempotency_key: str | None = None
    ) -> models.ExchangedCode:
        """Exchange a code of an identity provider for an ID token, for a login with `POST /v1/auth/social`."""
        return await self._transport.call(
            Call(
                "POST",
                "/v1/auth/oidc/token",
                body=models.ExchangeCodeInput(
                    issuer=issuer, redirect_uri=redirect_uri, code=code, code_verifier=code_verifier
                ),
                key=idempotency_key,
            ),
            models.ExchangedCode,
        )

    async def whoami(self) -> models.Whoami:
        """Return the user of the credential with the active organization and role."""
        return await self._transport.call(Call("GET", "/v1/whoami"), models.Whoami)

    async def me(self) -> models.Me:
        """Return the user with its organizations.

        `isOperator` says that this session may call the routes below `/v1/operator`.
        """
        return await self._transport.call(Call("GET", "/v1/me"), models.Me)

    async def list_tokens(self) -> List[models.TokenItem]:
        """List the organization's API tokens, masked."""
        return await self._transport.call(Call("GET", "/v1/api-tokens"), List[models.TokenItem])

    async def create_token(
        self,
        *,
        name: str,
        expires_in_days: int | UnsetType = UNSET,
        role: Literal["viewer", "member", "admin", "owner"] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.CreatedToken:
        """Create an API token. Only this response has its value.

        The role defaults to the caller's and is never above the creator's role at the time of use. A token
        that is created with another token expires no later than that one.
        """
        return await self._transport.call(
            Call(
                "POST",
                "/v1/api-tokens",
                body=models.CreateTokenInput(name=name, expires_in_days=expires_in_days, role=role),
                key=idempotency_key,
            ),
            models.CreatedToken,
        )

    async def revoke_token(self, token_id: int | str, *, idempotency_key: str | None = None) -> None:
        """Revoke an API token immediately."""
        await self._transport.call(Call("DELETE", f"/v1/api-tokens/{path_part(token_id)}", key=idempotency_key), None)

    async def read_account(self) -> models.Account:
        """Return the caller's account."""
        return await self._transport.call(Call("GET", "/v1/account"), models.Account)

    async def update_account(
        self,
        *,
        username: str | UnsetType = UNSET,
        first_name: str | UnsetType = UNSET,
        last_name: str | UnsetType = UNSET,
        avatar_url: str | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Account:
        """Change the caller's names and picture. An API token needs the owner role."""
        return await self._transport.call(
            Call(
                "PATCH",
                "/v1/account",
                body=models.AccountInput(
                    username=username, first_name=first_name, last_name=last_name, avatar_url=avatar_url
                ),
                key=idempotency_key,
            ),
            models.Account,
        )

    async def delete_account(self, *, idempotency_key: str | None = None) -> None:
        """Delete the caller's account, tokens and organizations without other members.

        Needs a session token. Refused while an organization with other members has no other owner.
        """
        await self._transport.call(Call("DELETE", "/v1/account", key=idempotency_key), None)

    async def list_notifications(self) -> List[models.NotificationOut]:
        """List the caller's newest notifications; for an API token its organization's."""
        return await self._transport.call(Call("GET", "/v1/notifications"), List[models.NotificationOut])

    async def read_all_notifications(self, *, idempotency_key: str | None = None) -> models.MarkedRead:
        """Mark all of the caller's notifications as read."""
        return await self._transport.call(
            Call("POST", "/v1/notifications/read", key=idempotency_key), models.MarkedRead
        )

    async def read_notification(
        self, notification_id: int | str, *, idempotency_key: str | None = None
    ) -> models.NotificationOut:
        """Mark one notification as read."""
        return await self._transport.call(
            Call("POST", f"/v1/notifications/{path_part(notification_id)}/read", key=idempotency_key),
            models.NotificationOut,
        )

    async def list_sessions(self) -> List[models.SessionOut]:
        """List the caller's sessions, the most recently seen first. Needs a session token.

        `device` is derived from the `User-Agent` of the login, and `address` is its client address.
        `lastSeenAt` is updated every ten minutes. `current` is the session of this request.
        """
        return await self._transport.call(Call("GET", "/v1/sessions"), List[models.SessionOut])

    async def revoke_session(
        self, session_id: int | str, *, idempotency_key: str | None = None
    ) -> models.RevokedSession:
        """Revoke a session of the caller immediately. Needs a session token.

        Its event streams end within 15 seconds.
        """
        return await self._transport.call(
            Call("DELETE", f"/v1/sessions/{path_part(session_id)}", key=idempotency_key), models.RevokedSession
        )
