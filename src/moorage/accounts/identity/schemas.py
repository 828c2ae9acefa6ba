"""Request and response bodies of the identity routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field

from moorage.accounts.identity import users
from moorage.accounts.identity.notifications import Notification
from moorage.accounts.identity.organizations.invitations import Invitation
from moorage.accounts.identity.organizations.members import Member, Membership
from moorage.accounts.identity.sessions.service import ListedSession
from moorage.accounts.identity.tokens import ApiToken
from moorage.accounts.identity.users import User
from moorage.accounts.plans import service as plans
from moorage.core.audit.tables import Activity
from moorage.core.http.models import Input, Output, SnakeInput, optional
from moorage.core.kit.clock import to_wire, to_wire_or_none
from moorage.core.kit.texts import check_line
from moorage.settings import Settings

RoleName = Literal["viewer", "member", "admin", "owner"]
URL_SAFE = "^[A-Za-z0-9._~-]+$"


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("should not be blank")
    return text.strip()


def _email(text: str) -> str:
    if not users.is_email(users.normal_email(text)):
        raise ValueError("should be a mail address")
    return users.normal_email(text)


def _https(url: str | None) -> str | None:
    if url is not None and not url.startswith(("https://", "http://")):
        raise ValueError("should be a URL")
    return url


Name = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(_not_blank), AfterValidator(check_line)]
Email = Annotated[str, Field(min_length=3, max_length=254), AfterValidator(_email)]
PersonName = Annotated[str, Field(max_length=120), AfterValidator(check_line)]
Username = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_not_blank), AfterValidator(check_line)]
PictureUrl = Annotated[str | None, Field(max_length=2000), AfterValidator(_https)]


class SocialLoginInput(SnakeInput):
    auth_secret: Annotated[str, Field(min_length=1, max_length=20_000)]
    terms_accepted: bool = False


class BeginSignInInput(SnakeInput):
    issuer: Annotated[str, Field(min_length=1, max_length=500)]
    redirect_uri: Annotated[str, Field(min_length=1, max_length=500)]
    state: Annotated[str, Field(min_length=16, max_length=200, pattern=URL_SAFE)]
    code_challenge: Annotated[str, Field(min_length=43, max_length=128, pattern=URL_SAFE)]


class ExchangeCodeInput(SnakeInput):
    issuer: Annotated[str, Field(min_length=1, max_length=500)]
    redirect_uri: Annotated[str, Field(min_length=1, max_length=500)]
    code: Annotated[str, Field(min_length=1, max_length=4000)]
    code_verifier: Annotated[str, Field(min_length=43, max_length=128, pattern=URL_SAFE)]


class SetupInput(SnakeInput):
    setup_token: Annotated[str, Field(min_length=1, max_length=200)]
    email: Email
    name: Name


class CreateTokenInput(Input):
    name: Name
    expires_in_days: Annotated[int, Field(ge=1, le=3650)] = optional()
    role: RoleName = optional()


class OrganizationInput(Input):
    name: Name


class UpdateOrganizationInput(Input):
    name: Name = optional()
    create_on_push: bool = optional(
        description="Whether a push to a repository that nothing uses creates a project for it."
    )


class MemberInput(Input):
    role: RoleName


class InvitationInput(Input):
    email: Email
    role: RoleName = "member"


class AccountInput(Input):
    username: Annotated[
        str, Field(min_length=1, max_length=64), AfterValidator(_not_blank), AfterValidator(check_line)
    ] = optional()
    first_name: PersonName = optional()
    last_name: PersonName = optional()
    avatar_url: PictureUrl = None


class LoginUser(msgspec.Struct, frozen=True):
    approval_status: str
    profile_completed: bool
    mfa_enabled: bool = msgspec.field(name="mfaEnabled")


class LoginResult(msgspec.Struct, frozen=True):
    access_token: str
    user: LoginUser

    @classmethod
    def of(cls, access_token: str, user: User) -> LoginResult:
        return cls(access_token, LoginUser(user.status, user.profile_completed, user.mfa_enabled))


class SignInProvider(Output, frozen=True):
    issuer: str
    client_id: str


class SignInMethods(Output, frozen=True):
    demo: bool
    providers: list[SignInProvider]


class BegunSignIn(msgspec.Struct, frozen=True):
    url: str


class ExchangedCode(msgspec.Struct, frozen=True):
    id_token: str


class DemoLogin(Output, frozen=True):
    token: str
    email: str
    organization_id: str


class Whoami(Output, frozen=True):
    user_id: int
    org_id: str
    org_name: str
    role: str


class MyOrganization(Output, frozen=True):
    organization_id: str
    name: str
    role: str
    card_verified: bool


class Me(Output, frozen=True):
    id: int
    email: str
    username: str
    first_name: str
    last_name: str
    avatar_url: str | None
    mfa_enabled: bool
    organizations: list[MyOrganization]
    is_operator: bool  # of the platform, with this credential

    @classmethod
    def of(cls, user: User, mine: list[Membership], settings: Settings, *, is_operator: bool) -> Me:
        return cls(
            user.id,
            user.email,
            user.username,
            user.first_name,
            user.last_name,
            user.avatar_url,
            user.mfa_enabled,
            [
                MyOrganization(str(b.org_id), b.name, b.role, plans.counts_as_verified(settings, b.standing))
                for b in mine
            ],
            is_operator,
        )


class Account(Output, frozen=True):
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

    @classmethod
    def of(cls, user: User) -> Account:
        return cls(
            user.id,
            user.email,
            user.username,
            user.first_name,
            user.last_name,
            user.avatar_url,
            user.mfa_enabled,
            user.status,
            user.profile_completed,
            to_wire(user.created_at),
        )


class TokenItem(Output, frozen=True):
    id: int
    name: str
    preview: str
    role: str
    created_at: str
    expires_at: str | None
    last_used_at: str | None

    @classmethod
    def of(cls, token: ApiToken) -> TokenItem:
        return cls(
            token.id,
            token.name,
            token.preview,
            token.role,
            to_wire(token.created_at),
            to_wire_or_none(token.expires_at),
            to_wire_or_none(token.last_used_at),
        )


class CreatedToken(Output, frozen=True):
    id: int
    name: str
    token: str
    preview: str
    role: str
    created_at: str
    expires_at: str | None

    @classmethod
    def of(cls, token: ApiToken, raw: str) -> CreatedToken:
        item = TokenItem.of(token)
        return cls(item.id, item.name, raw, item.preview, item.role, item.created_at, item.expires_at)


class SessionOut(Output, frozen=True):
    id: int
    device: str
    address: str | None
    created_at: str
    last_seen_at: str
    expires_at: str
    current: bool

    @classmethod
    def of(cls, session: ListedSession, current_id: int | None) -> SessionOut:
        return cls(
            session.id,
            session.device,
            session.address,
            to_wire(session.created_at),
            to_wire(session.last_seen_at),
            to_wire(session.expires_at),
            session.id == current_id,
        )


class RevokedSession(Output, frozen=True):
    revoked: bool


class OrganizationOut(Output, frozen=True):
    organization_id: str
    name: str
    slug: str
    role: str
    plan: str
    card_verified: bool
    created_at: str
    create_on_push: bool

    @classmethod
    def of(cls, membership: Membership, settings: Settings) -> OrganizationOut:
        return cls(
            str(membership.org_id),
            membership.name,
            membership.slug,
            membership.role,
            membership.plan,
            plans.counts_as_verified(settings, membership.standing),
            to_wire(membership.created_at),
            membership.create_on_push,
        )


class MemberOut(Output, frozen=True):
    user_id: int
    email: str
    name: str
    role: str
    joined_at: str

    @classmethod
    def of(cls, member: Member) -> MemberOut:
        return cls(member.user_id, member.email, member.name, member.role, to_wire(member.joined_at))


class InvitationOut(Output, frozen=True):
    id: int
    email: str
    role: str
    organization_id: str
    organization_name: str
    status: str
    created_at: str
    expires_at: str

    @classmethod
    def of(cls, invitation: Invitation) -> InvitationOut:
        return cls(
            invitation.id,
            invitation.email,
            invitation.role,
            str(invitation.org_id),
            invitation.org_name,
            invitation.status,
            to_wire(invitation.created_at),
            to_wire(invitation.expires_at),
        )


class WebhookSecret(Output, frozen=True):
    secret: str


class BillingStatus(Output, frozen=True):
    organization_id: str
    provider: str
    plan: str
    paid: bool
    card_verified: bool
    portal_url: str | None
    checkout_reference: str | None  # `client_reference_id` of a checkout; for admins


class Limits(Output, frozen=True):
    plan: str
    requests_per_minute: int
    limits: dict[str, int | None]


class Used(Output, frozen=True):
    used: int
    limit: int | None


class Usage(Output, frozen=True):
    plan: str
    usage: dict[str, Used]
    metered: dict[str, float]


class TierOut(Output, frozen=True):
    key: str
    name: str
    cpu: float
    memory: float
    disk: int
    paid: bool


class NotificationOut(Output, frozen=True):
    id: int
    kind: str
    title: str
    body: str
    organization_id: str | None
    read: bool
    created_at: str

    @classmethod
    def of(cls, note: Notification) -> NotificationOut:
        org_id = str(note.org_id) if note.org_id is not None else None
        read = note.read_at is not None
        return cls(note.id, note.kind, note.title, note.body, org_id, read, to_wire(note.created_at))


class MarkedRead(Output, frozen=True):
    marked: int


class ActivityToken(Output, frozen=True):
    id: int
    name: str


class ActivityActor(Output, frozen=True):
    user_id: int | None
    name: str
    address: str | None
    token: ActivityToken | None


class ActivityTarget(Output, frozen=True):
    kind: str
    name: str


class ActivityOut(Output, frozen=True):
    id: int
    action: str
    actor: ActivityActor
    target: ActivityTarget
    details: dict[str, Any]
    created_at: str

    @classmethod
    def of(cls, row: Activity) -> ActivityOut:
        details: dict[str, Any] = msgspec.json.decode(row.details)
        token = details.pop("token", None)
        by_token = ActivityToken(token["id"], token["name"]) if token is not None else None
        actor = ActivityActor(row.user_id, row.actor, details.pop("address", None), by_token)
        target = ActivityTarget(row.target_kind, row.target)
        return cls(row.id, row.action, actor, target, details, to_wire(row.at))
