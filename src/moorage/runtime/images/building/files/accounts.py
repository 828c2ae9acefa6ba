"""Owners of copied files: names of users and groups come from the image."""

from __future__ import annotations

import re

from moorage.core.kit.texts import whole_number
from moorage.runtime.images.building.files.tree import Tree, TreeError

MAX_ID = 65_535
_MODE = re.compile(r"[0-7]{1,4}")
_CLAUSE = re.compile(r"([ugoa]*)([+=-])([rwxXst]*)")
_WHO = {"u": 0o4700, "g": 0o2070, "o": 0o1007}
_BITS = {"r": 0o444, "w": 0o222, "x": 0o111, "s": 0o6000, "t": 0o1000}


def owner(tree: Tree, text: str) -> tuple[int, int]:
    """Return the ids of `user`, `user:group` or numbers.

    The group of a lone name is that of its account, and the group of a lone number is the same number.
    """
    user, has_group, group = text.partition(":")
    uid, gid = _number(user, "user"), None
    if uid is None:
        uid, gid = _find(tree, "/etc/passwd", user, "user")
    if has_group and group:
        gid = _number(group, "group")
        gid = _find(tree, "/etc/group", group, "group")[0] if gid is None else gid
    return uid, uid if gid is None else gid


def _number(text: str, what: str) -> int | None:
    if not (text.isascii() and text.isdigit()):
        return None
    number = whole_number(text)
    if number is None or number > MAX_ID:
        raise TreeError(f"the {what} {text[:20]} is larger than {MAX_ID:,}")
    return number


def _find(tree: Tree, path: str, name: str, what: str) -> tuple[int, int | None]:
    """Return the id of an account, and the number after it: the group of a user."""
    for line in tree.read_text(path).splitlines():
        account, _, number, more, *_ = [*line.split(":"), "", "", ""]
        if account == name and (account_id := _id(number)) is not None:
            return account_id, _id(more)
    if name == "root":
        return 0, 0
    raise TreeError(f"the image has no {what} {name[:100]!r} in its {path}")


def _id(text: str) -> int | None:
    number = whole_number(text)
    return number if number is not None and number <= MAX_ID else None


def mode(text: str, before: int, *, is_folder: bool) -> int:
    """Return the mode of --chmod, in octal or in symbols such as u=rwX,go=rX."""
    if _MODE.fullmatch(text):
        return int(text, 8)
    result = before
    for clause in text.split(","):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise TreeError(f"--chmod={text[:40]} should be a mode such as 755 or u=rwX,go=rX")
        who = sum(_WHO[each] for each in set(match[1].replace("a", "ugo") or "ugo"))
        bits = sum(_BITS[each] for each in set(match[3]) - {"X"})
        if "X" in match[3] and (is_folder or result & 0o111):
            bits |= 0o111
        bits &= who
        result = result | bits if match[2] == "+" else result & ~bits if match[2] == "-" else (result & ~who) | bits
    return result
