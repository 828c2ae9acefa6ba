"""The usual stack: the same two routes in FastAPI with the async SQLAlchemy ORM on aiosqlite.

Nothing here is slow on purpose. The session is a dependency, the caller is found by token, user, organization and
membership, and a pydantic model shapes the answer. Its server is ours, so that only the application differs.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from sqlalchemy import ForeignKey, UniqueConstraint, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

T = TypeVar("T")


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "user"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)
    username: Mapped[str]
    first_name: Mapped[str]
    last_name: Mapped[str]
    avatar_url: Mapped[str | None]
    mfa_enabled: Mapped[bool] = mapped_column(default=False)
    approval_status: Mapped[str] = mapped_column(default="approved")
    suspended_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=lambda: datetime.now(UTC))

    @property
    def profile_completed(self) -> bool:
        return bool(self.first_name and self.last_name)


class Organization(Base):
    __tablename__ = "organization"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    slug: Mapped[str] = mapped_column(unique=True)
    plan: Mapped[str] = mapped_column(default="free")
    deleted_at: Mapped[datetime | None]


class Membership(Base):
    __tablename__ = "membership"
    __table_args__ = (UniqueConstraint("org_id", "user_id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    org_id: Mapped[int] = mapped_column(ForeignKey("organization.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("user.id"), index=True)
    role: Mapped[str]


class ApiToken(Base):
    __tablename__ = "api_token"
    id: Mapped[int] = mapped_column(primary_key=True)
    org_id: Mapped[int] = mapped_column(ForeignKey("organization.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("user.id"))
    role: Mapped[str]
    hash: Mapped[str] = mapped_column(unique=True)
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]


class Out(BaseModel):
    model_config = ConfigDict(from_attributes=True, alias_generator=to_camel, populate_by_name=True)


class AccountOut(Out):
    id: int
    email: str
    username: str
    first_name: str
    last_name: str
    avatar_url: str | None
    mfa_enabled: bool
    approval_status: str
    profile_completed: bool
    created_at: datetime


class WhoamiOut(Out):
    user_id: int
    org_id: str
    org_name: str
    role: str


class Envelope(BaseModel, Generic[T]):
    success: bool = True
    data: T


@dataclass(frozen=True)
class Caller:
    user: User
    organization: Organization
    role: str


async def get_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session:
        yield session


async def get_caller(
    session: Annotated[AsyncSession, Depends(get_session)], authorization: Annotated[str, Header()]
) -> Caller:
    hashed = hashlib.sha256(authorization.removeprefix("Bearer ").encode()).hexdigest()
    token = await session.scalar(select(ApiToken).where(ApiToken.hash == hashed, ApiToken.revoked_at.is_(None)))
    if token is None or (token.expires_at is not None and token.expires_at <= time.time()):
        raise HTTPException(401, "The token is not valid or has expired")
    user = await session.get(User, token.user_id)
    if user is None or user.suspended_at is not None:
        raise HTTPException(403, "This user is suspended")
    organization = await session.get(Organization, token.org_id)
    membership = await session.scalar(
        select(Membership).where(Membership.org_id == token.org_id, Membership.user_id == token.user_id)
    )
    if organization is None or organization.deleted_at is not None or membership is None:
        raise HTTPException(404, "There is no such organization")
    return Caller(user, organization, membership.role)


async def read_account(caller: Annotated[Caller, Depends(get_caller)]) -> Any:
    return {"data": caller.user}


async def whoami(caller: Annotated[Caller, Depends(get_caller)]) -> Any:
    organization = caller.organization
    found = {"user_id": caller.user.id, "org_id": str(organization.id), "org_name": organization.name}
    return {"data": {**found, "role": caller.role}}


async def build(folder: Path, seats: int) -> tuple[FastAPI, list[str]]:
    """Make the application on a store of its own, with as many users as the other one has. Return their tokens."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'rival.db'}")
    async with engine.begin() as connection:
        await connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        await connection.run_sync(Base.metadata.create_all)
    app = FastAPI()
    app.state.sessions = async_sessionmaker(engine, expire_on_commit=False)
    app.add_api_route("/v1/account", read_account, response_model=Envelope[AccountOut])
    app.add_api_route("/v1/whoami", whoami, response_model=Envelope[WhoamiOut])
    async with app.state.sessions() as session:
        tokens = [_seat(session, number) for number in range(1, seats + 1)]
        await session.commit()
    return app, tokens


def _seat(session: AsyncSession, number: int) -> str:
    token = f"psk_test_{number:040d}"
    name = f"user{number}"
    session.add_all(
        [
            User(id=number, email=f"{name}@bench.example", username=name, first_name="", last_name=""),
            Organization(id=number, name=f"{name}'s organization", slug=f"{name}-s-organization"),
            Membership(org_id=number, user_id=number, role="owner"),
            ApiToken(org_id=number, user_id=number, role="owner", hash=hashlib.sha256(token.encode()).hexdigest()),
        ]
    )
    return token
