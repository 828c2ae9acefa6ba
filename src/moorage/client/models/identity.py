"""Models of the group identity. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Literal

import msgspec

from moorage.client.model import List, Model


class LoginResult(Model, kw_only=True):
    access_token: str = msgspec.field(name="access_token")
    user: LoginUser


class LoginUser(Model, kw_only=True):
    approval_status: str = msgspec.field(name="approval_status")
    profile_completed: bool = msgspec.field(name="profile_completed")
    mfa_enabled: bool


class DemoLogin(Model, kw_only=True):
    token: str
    email: str
    organization_id: str


class SignInMethods(Model, kw_only=True):
    demo: bool
    providers: List[SignInProvider]


class SignInProvider(Model, kw_only=True):
    issuer: str
    client_id: str


class BegunSignIn(Model, kw_only=True):
    url: str


class ExchangedCode(Model, kw_only=True):
    id_token: str = msgspec.field(name="id_token")


class Whoami(Model, kw_only=True):
    user_id: int
    org_id: str
    org_name: str
    role: str


class Me(Model, kw_only=True):
    id: int
    email: str
    username: str
    first_name: str
    last_name: str
    avatar_url: str | None
    mfa_enabled: bool
    organizations: List[MyOrganization]
    is_operator: bool


class MyOrganization(Model, kw_only=True):
    organization_id: str
    name: str
    role: str
    card_verified: bool


class TokenItem(Model, kw_only=True):
    id: int
    name: str
    preview: str
    role: str
    created_at: str
    expires_at: str | None
    last_used_at: str | None


class CreatedToken(Model, kw_only=True):
    id: int
    name: str
    token: str
    preview: str
    role: str
    created_at: str
    expires_at: str | None


class Account(Model, kw_only=True):
    id: int
    email: str
    username: str
    first_name: str
    last_name: str
    avatar_url: str | None
    mfa_enabled: bool
    approval_status: str
    profile_completed: bool
    created_at: str


class NotificationOut(Model, kw_only=True):
    id: int
    kind: str
    title: str
    body: str
    organization_id: str | None
    read: bool
    created_at: str


class MarkedRead(Model, kw_only=True):
    marked: int


class SessionOut(Model, kw_only=True):
    id: int
    device: str
    address: str | None
    created_at: str
    last_seen_at: str
    expires_at: str
    current: bool


class RevokedSession(Model, kw_only=True):
    revoked: bool


class SocialLoginInput(Model, kw_only=True):
    auth_secret: str = msgspec.field(name="auth_secret")
    terms_accepted: bool | msgspec.UnsetType = msgspec.field(name="terms_accepted", default=msgspec.UNSET)


class SetupInput(Model, kw_only=True):
    setup_token: str = msgspec.field(name="setup_token")
    email: str
    name: str


class BeginSignInInput(Model, kw_only=True):
    issuer: str
    redirect_uri: str = msgspec.field(name="redirect_uri")
    state: str
    code_challenge: str = msgspec.field(name="code_challenge")


class ExchangeCodeInput(Model, kw_only=True):
    issuer: str
    redirect_uri: str = msgspec.field(name="redirect_uri")
    code: str
    code_verifier: str = msgspec.field(name="code_verifier")


class CreateTokenInput(Model, kw_only=True):
    name: str
    expires_in_days: int | msgspec.UnsetType = msgspec.UNSET
    role: Literal["viewer", "member", "admin", "owner"] | msgspec.UnsetType = msgspec.UNSET


class AccountInput(Model, kw_only=True):
    username: str | msgspec.UnsetType = msgspec.UNSET
    first_name: str | msgspec.UnsetType = msgspec.UNSET
    last_name: str | msgspec.UnsetType = msgspec.UNSET
    avatar_url: str | msgspec.UnsetType | None = msgspec.UNSET
