"""CORS for the console's origin and the origins in the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moorage.core.http.answer import Answer, Headers
from moorage.core.kit.records import dataclass
from moorage.settings import Settings

if TYPE_CHECKING:
    from moorage.core.http.request import Request

ALLOWED_HEADERS = b"Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Organization-Id, X-Request-Id"
EXPOSED_HEADERS = (
    b"X-Request-Id, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Retry-After, Idempotency-Replayed"
)


@dataclass(frozen=True, slots=True)
class Cors:
    origins: frozenset[str]

    @classmethod
    def of(cls, settings: Settings) -> Cors:
        own = {settings.api_url}
        if not settings.is_production:
            own |= {f"http://127.0.0.1:{settings.api_port}", f"http://localhost:{settings.api_port}"}
        return cls(frozenset(own | {origin.rstrip("/") for origin in settings.console_origins}))

    def headers(self, request: Request) -> Headers:
        origin = request.headers.get(b"origin")
        if origin is None:
            return []
        if origin not in self.origins:
            return [(b"vary", b"Origin")]
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", EXPOSED_HEADERS),
            (b"vary", b"Origin"),
        ]

    def preflight(self, request: Request, methods: set[str]) -> Answer | None:
        """Answer a CORS preflight for a known path; None for other requests."""
        method = request.header(b"access-control-request-method")
        if method is None or not methods or request.header(b"origin") not in self.origins:
            return None
        headers = [
            (b"access-control-allow-methods", ", ".join(sorted(methods)).encode()),
            (b"access-control-allow-headers", ALLOWED_HEADERS),
            (b"access-control-max-age", b"600"),
        ]
        return Answer(200, b"", headers)
