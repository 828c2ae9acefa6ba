"""Python client of the Moorage API, blocking and asynchronous.

    from moorage.client import Client

    with Client("https://api.example.com", token="…") as client:
        for project in client.projects.iterate():
            print(project.name, project.project_url)

Methods and models are generated from the OpenAPI document. The package needs `httpx2` and `msgspec` only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage.client import models
    from moorage.client.clients import AsyncClient, Client
    from moorage.client.defaults import DEFAULT_URL
    from moorage.client.errors import (
        ApiError,
        BadRequest,
        ClientError,
        Conflict,
        Forbidden,
        Internal,
        NotFound,
        QuotaExceeded,
        RateLimited,
        Unauthorized,
        UnexpectedAnswer,
        Unreachable,
    )
    from moorage.client.streams import Event

__all__ = [
    "DEFAULT_URL",
    "ApiError",
    "AsyncClient",
    "BadRequest",
    "Client",
    "ClientError",
    "Conflict",
    "Event",
    "Forbidden",
    "Internal",
    "NotFound",
    "QuotaExceeded",
    "RateLimited",
    "Unauthorized",
    "UnexpectedAnswer",
    "Unreachable",
    "models",
]

_HOMES = {"AsyncClient": "clients", "Client": "clients", "DEFAULT_URL": "defaults", "Event": "streams"}


def __getattr__(name: str) -> Any:
    """Import on first use: errors and models need no HTTP library."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "models":
        return import_module("moorage.client.models")
    return getattr(import_module(f"moorage.client.{_HOMES.get(name, 'errors')}"), name)
