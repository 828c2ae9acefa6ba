"""Pages and signed cursors.

A cursor contains the end position of the last page. Its signature covers the list and the organization, so an altered
cursor or a cursor of another list is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from pydantic import BeforeValidator, Field

from moorage.core.http.models import Output, QueryInput, QueryInt
from moorage.core.kit.crypto import sign, verify
from moorage.core.kit.decoding import decode
from moorage.errors import bad_field

T = TypeVar("T")
R = TypeVar("R")


LAST_PAGE = 999_999_999_999  # The offset of a later page might not fit into 64 bits.


def _clamp_page(page: Any) -> Any:
    """Replace a page beyond the last one by the last one: both are empty."""
    is_beyond = isinstance(page, str) and page.isascii() and page.isdecimal() and len(page) > len(str(LAST_PAGE))
    return str(LAST_PAGE) if is_beyond else page


class PageQuery(QueryInput):
    page: Annotated[QueryInt, BeforeValidator(_clamp_page), Field(ge=1, le=LAST_PAGE)] = 1
    page_size: Annotated[QueryInt, Field(ge=1, le=100)] = 20

    @property
    def offset(self) -> int:
        return (self.page - 1) * self.page_size


class CursorQuery(QueryInput):
    cursor: Annotated[str | None, Field(max_length=2000)] = None
    limit: Annotated[QueryInt, Field(ge=1, le=100)] = 50


class Page(Output, Generic[T], frozen=True):
    items: list[T]
    total: int


class CursorPage(Output, Generic[T], frozen=True):
    items: list[T]
    next_cursor: str | None


def cut(
    key: bytes, place: str, rows: list[R], limit: int, position_of: Callable[[R], int]
) -> tuple[list[R], str | None]:
    """Return the first `limit` rows, and the cursor of the next page."""
    page = rows[:limit]
    return page, make_cursor(key, place, [position_of(page[-1])]) if len(rows) > limit else None


def make_cursor(key: bytes, place: str, position: list[Any]) -> str:
    """Return the cursor after `position` of the list that `place` identifies."""
    body = base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")
    return f"{body}.{sign(key, f'{place}|{body}'.encode())[:22]}"


def read_cursor(key: bytes, place: str, cursor: str | None) -> list[Any] | None:
    """Return the position of a cursor; raises BadRequest on the field `cursor`."""
    if cursor is None:
        return None
    body, _, signature = cursor.partition(".")
    try:
        if not cursor.isascii() or not verify_short(key, f"{place}|{body}".encode(), signature):
            raise ValueError("forged")
        position = decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), list)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise bad_field("cursor", "is not a cursor of this list") from None
    return position


def verify_short(key: bytes, message: bytes, signature: str) -> bool:
    """Check the signature of a cursor, which is truncated to 22 characters (132 bits)."""
    full = sign(key, message)
    return len(signature) == 22 and verify(key, message, signature + full[22:])
