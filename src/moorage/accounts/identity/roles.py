"""Roles in ascending order; each includes the permissions of the previous one."""

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

    def reaches(self, min_role: Role) -> bool:
        return self.rank >= min_role.rank


_RANKS = {role: rank for rank, role in enumerate(Role)}
# A lookup here costs a fifth of calling the class, and every request needs one.
BY_NAME: dict[str, Role] = {str(role): role for role in Role}


def lower(one: Role, other: Role) -> Role:
    return one if one.rank <= other.rank else other
