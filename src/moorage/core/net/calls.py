"""What a call of an address that a user chose comes to: an answer, or a failure. The client itself is `outbound.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Stage = Literal["dns", "connect", "tls", "read"]
Phase = Stage | Literal["protocol", "timeout"]


class OutboundError(Exception):
    """An allowed call failed. `phase` says how, and the message may be shown to the user.

    `stage` is where it failed: a timeout can happen anywhere, and what is not HTTP is found out by reading it.
    `certificate` is the server's, in DER form, where the call came as far as seeing one.
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
    """What the last hop answered. The headers can be read in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes  # Decoded, and at most as long as the caller allowed.
    truncated: bool  # The server had more to say than was read.
    url: str  # The URL that answered, without credentials.
    elapsed_ms: float  # From the call to the last byte read, over all hops.
    certificate: bytes | None  # In DER form, of the last hop over TLS; None where all were over plain HTTP.
