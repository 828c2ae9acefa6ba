"""Mark for functions whose queries are not limited to one organization.

A function that takes a transaction takes the organization as its next parameter, or has this mark with a reason;
`tests/architecture` checks it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

PLATFORM_ORG_ID = 0  # the organization of rows that belong to the platform itself

F = TypeVar("F", bound=Callable[..., Any])


def across_organizations(why: str) -> Callable[[F], F]:
    """Mark a function whose query is not limited to one organization."""

    def mark(function: F) -> F:
        function.across_organizations = why  # type: ignore[attr-defined]
        return function

    return mark
