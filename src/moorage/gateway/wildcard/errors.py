"""Error of an order of the wildcard certificate."""

from __future__ import annotations


class CannotOrder(Exception):
    """No certificate was issued; the message is a sentence for the operator.

    `retry_after_s` is the shortest delay that the certificate authority accepts before another attempt.
    """

    def __init__(self, why: str, retry_after_s: float = 0) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s
