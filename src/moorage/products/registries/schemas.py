"""Request and response bodies of the routes of registries."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from moorage.core.http.models import Input, Output, optional
from moorage.core.kit.clock import to_wire
from moorage.products.registries.tables import Registry
from moorage.runtime.images import references


def _host(text: str) -> str:
    """Return the name of a registry as references have it: `docker.io` for all names of Docker Hub."""
    reference = references.parse(f"{text}/team/name") if not set(text) & {"/", "@"} else None
    if reference is None or reference.repository != "team/name":
        raise ValueError("should be a host such as registry.example.com, without a scheme and a path")
    return reference.registry


def _token_host(text: str) -> str:
    return _host(text) if text else ""


def _username(text: str) -> str:
    if ":" in text or not text.isprintable():
        raise ValueError("should have no colons and no control characters")
    return text


def _secret(text: str) -> str:
    if not text.isprintable():
        raise ValueError("should have no control characters")
    return text


Host = Annotated[
    str, Field(min_length=1, max_length=255, description="Such as `ghcr.io` or `docker.io`."), AfterValidator(_host)
]
Username = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_username)]
Secret = Annotated[
    str,
    Field(min_length=1, max_length=8192, description="A password or access token. Never returned."),
    AfterValidator(_secret),
]
TokenHost = Annotated[
    str,
    Field(
        max_length=255,
        description="A further host that may get the credentials, in exchange for a token of the registry.",
    ),
    AfterValidator(_token_host),
]


class CreateRegistryInput(Input):
    host: Host
    username: Username
    secret: Secret
    token_host: TokenHost = ""


class UpdateRegistryInput(Input):
    username: Username = optional()
    secret: Secret = optional()
    token_host: TokenHost = optional()


class RegistryOut(Output, frozen=True):
    id: int
    host: str
    username: str
    token_host: str
    created_at: str
    updated_at: str

    @classmethod
    def of(cls, registry: Registry) -> RegistryOut:
        return cls(
            id=registry.id,
            host=registry.host,
            username=registry.username,
            token_host=registry.token_host,
            created_at=to_wire(registry.created_at),
            updated_at=to_wire(registry.updated_at),
        )


class RegistryDeleted(Output, frozen=True):
    deleted: bool
