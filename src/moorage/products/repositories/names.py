"""What repositories, branches and commits may be called.

These texts come from users and end in a command line, a path and an address. What passes here can be none of the
things that would mean something else there: an option, a step upwards, a second word.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST = 100
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# What git itself refuses, and a few things more: https://git-scm.com/docs/git-check-ref-format
_NOT_IN_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
_FULL = frozenset((40, 64))


class Name(NamedTuple):
    """The name of a repository. Names that differ only in case are the same; the first spelling is shown."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def key(self) -> Name:
        """The spelling that is compared."""
        return Name(self.owner.lower(), self.name.lower())


def parse_name(text: str) -> Name | None:
    """Return the name that `owner/repo` or `owner/repo.git` is, or None."""
    owner, _, name = text.partition("/")
    name = name.removesuffix(".git")
    return Name(owner, name) if _is_part(owner) and _is_part(name) else None


def is_branch(text: str) -> bool:
    """Tell whether a text can be the name of a branch, without `refs/heads/`."""
    if not 0 < len(text) <= 200 or text[0] in "-./" or text[-1] in "./" or text == "@":
        return False
    return _NOT_IN_BRANCH.search(text) is None and not any(0xD800 <= ord(char) < 0xE000 for char in text)


def is_commit(text: str) -> bool:
    """Tell whether a text can be the id of a commit, or the begin of one."""
    return _COMMIT.fullmatch(text) is not None


def is_full_commit(text: str) -> bool:
    return is_commit(text) and len(text) in _FULL


def _is_part(text: str) -> bool:
    return len(text) <= LONGEST and _PART.fullmatch(text) is not None
