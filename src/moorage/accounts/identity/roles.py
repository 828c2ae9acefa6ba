"""Roles, in order: each may do what the one before it may."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    VIEWER = "viewer"  # reads the organization's resources
    MEMBER = "member"  # creates and updates resources
    ADMIN = "admin"  # manages members, tokens and settings; deletes projects; reveals database credentials
    OWNER = "owner"  # everything, including deleting the organization

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def reaches(self, floor: Role) -> bool:
        return self.rank >= floor.rank


_RANKS = {role: rank for rank, role in enumerate(Role)}
# Looking a role up by its text costs a fifth of calling the class, and every request does it.
BY_NAME: dict[str, Role] = {str(role): role for role in Role}


def lower(one: Role, other: Role) -> Role:
    return one if one.rank <= other.rank else other
