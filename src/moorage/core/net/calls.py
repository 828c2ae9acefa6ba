"""Results of outbound HTTP calls of `client.py`: `Answer` or `OutboundError`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from moorage.core.kit.records import dataclass

Stage = Literal["dns", "connect", "tls", "read"]
Phase = Stage | Literal["protocol", "timeout"]


class OutboundError(Exception):
    """An allowed call failed; the message may be shown to the user.

    `phase` is the kind of failure. `stage` is the step that failed: a timeout can happen in any, and invalid HTTP shows
    in "read". `certificate` is the server's, in DER form, if the call received one.
    """

    def __init__(self, phase: Phase, message: str, *, stage: Stage = "read", certificate: bytes | None = None) -> None:
        super().__init__(phase, message)
        self.phase: Phase = phase
        self.stage: Stage = stage if phase == "protocol" or phase == "timeout" else phase
        self.message = message
        self.certificate = certificate

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of the last hop. Header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes  # decoded, at most `max_body_bytes` long
    truncated: bool  # The body was longer than `max_body_bytes`.
    url: str  # of the last hop, without credentials
    elapsed_ms: float  # from the call to the last byte read, over all hops
    certificate: bytes | None  # in DER form, of the last hop over TLS; None if all hops used plain HTTP

    def json(self) -> Any:
        """Return the value of a JSON body; raises ValueError, also for a truncated one."""
        if self.truncated:
            raise ValueError("the response is too large")
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("the response is nested too deeply") from None
