"""Errors of DNS lookups, with messages for the owner of a domain."""

from __future__ import annotations


class LookupFailed(Exception):
    """DNS gave no usable answer. The message is for the domain's owner."""


def no_answer(name: str) -> str:
    return f"The DNS servers of {name} did not answer in time. Try again later."
