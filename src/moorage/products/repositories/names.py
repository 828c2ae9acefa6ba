"""Validation of names of repositories and branches, and of commit ids.

These texts come from users and are used in command lines, paths and URLs. A valid name cannot act as an option, as a
parent folder or as a second argument.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_PART_CHARS = 100
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# Stricter than git itself: https://git-scm.com/docs/git-check-ref-format
_NOT_IN_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
_FULL = frozenset((40, 64))


class Name(NamedTuple):
    """Name of a repository; case is ignored, and the first spelling is shown."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def key(self) -> Name:
        """Lower-case name for comparison."""
        return Name(self.owner.lower(), self.name.lower())


def parse_name(text: str) -> Name | None:
    """Parse `owner/repo` or `owner/repo.git`; None for an invalid name."""
    owner, _, name = text.partition("/")
    name = name.removesuffix(".git")
    return Name(owner, name) if _is_part(owner) and _is_part(name) else None


def key_of(text: str) -> str:
    """Return the text under which resources store their repository, so that a push finds them."""
    name = parse_name(text)
    return str(name.key) if name is not None else text.lower()


def is_branch(text: str) -> bool:
    """Return whether a text is a valid branch name, without `refs/heads/`."""
    if not 0 < len(text) <= 200 or text[0] in "-./" or text[-1] in "./" or text == "@":
        return False
    return _NOT_IN_BRANCH.search(text) is None and not any(0xD800 <= ord(char) < 0xE000 for char in text)


def is_commit(text: str) -> bool:
    """Return whether a text can be a commit id or a prefix of one."""
    return _COMMIT.fullmatch(text) is not None


def is_full_commit(text: str) -> bool:
    return is_commit(text) and len(text) in _FULL


def _is_part(text: str) -> bool:
    return len(text) <= MAX_PART_CHARS and _PART.fullmatch(text) is not None
