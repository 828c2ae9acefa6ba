"""Models of the group registries. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

import msgspec

from moorage.client.model import Model


class RegistryOut(Model, kw_only=True):
    id: int
    host: str
    username: str
    token_host: str
    created_at: str
    updated_at: str


class RegistryDeleted(Model, kw_only=True):
    deleted: bool


class CreateRegistryInput(Model, kw_only=True):
    # Such as `ghcr.io` or `docker.io`.
    host: str
    username: str
    # A password or access token. Never returned.
    secret: str
    # A further host that may get the credentials, in exchange for a token of the registry.
    token_host: str | msgspec.UnsetType = msgspec.UNSET


class UpdateRegistryInput(Model, kw_only=True):
    username: str | msgspec.UnsetType = msgspec.UNSET
    # A password or access token. Never returned.
    secret: str | msgspec.UnsetType = msgspec.UNSET
    # A further host that may get the credentials, in exchange for a token of the registry.
    token_host: str | msgspec.UnsetType = msgspec.UNSET
