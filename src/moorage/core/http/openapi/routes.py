"""Routes of the platform itself: liveness, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import moorage
from moorage.core.http.answer import Answer, plain_json
from moorage.core.http.models import Output
from moorage.core.http.route import Router, Scope


class Health(Output, frozen=True):
    status: str
    version: str


def make_router(describe: Callable[[], dict[str, Any]]) -> Router:
    router = Router("Platform", prefix="")

    @router.get("/health", scope=Scope.PUBLIC, raw=True, is_counted=False, point=True)
    def health() -> Health:
        """Answer while the process lives. It touches nothing else."""
        return Health("ok", moorage.__version__)

    @router.get("/v1/openapi.json", scope=Scope.PUBLIC, point=True)
    def read_openapi() -> Answer:
        """Return this document."""
        return plain_json(describe())

    return router
