"""Base class of all generated models, and the two kinds of pages."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
List = list  # The groups of the API have methods named `list`.


class Model(msgspec.Struct, rename="camel"):
    """Fields have the API's names in snake_case. Fields that are UNSET are not sent."""


class CursorPage(Model, Generic[T], kw_only=True):
    """One page of a list with cursors; `next_cursor` is None on the last one."""

    items: List[T]
    next_cursor: str | None


class Page(Model, Generic[T], kw_only=True):
    """One page of a list with numbered pages."""

    items: List[T]
    total: int
