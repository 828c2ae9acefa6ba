"""Owners of copied files: names of users and groups come from the image."""

from __future__ import annotations

import re

from moorage.runtime.images.building.files.tree import Tree, TreeError

MAX_ID = 65_535
_MODE = re.compile(r"[0-7]{1,4}")
_CLAUSE = re.compile(r"([ugoa]*)([+=-])([rwxXst]*)")
_WHO = {"u": 0o4700, "g": 0o2070, "o": 0o1007}
_BITS = {"r": 0o444, "w": 0o222, "x": 0o111, "s": 0o6000, "t": 0o1000}


def owner(tree: Tree, text: str) -> tuple[int, int]:
    """Return the ids of `user`, `user:group` or numbers; the group of a lone user is the same number."""
    user, has_group, group = text.partition(":")
    uid = _find(tree, "/etc/passwd", user, "user")
    return uid, _find(tree, "/etc/group", group, "group") if has_group and group else uid


def _find(tree: Tree, path: str, name: str, what: str) -> int:
    if name.isascii() and name.isdigit():
        if int(name) > MAX_ID:
            raise TreeError(f"the {what} {name} is larger than {MAX_ID:,}")
        return int(name)
    for line in tree.read_text(path).splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[0] == name and fields[2].isdigit() and int(fields[2]) <= MAX_ID:
            return int(fields[2])
    if name == "root":
        return 0
    raise TreeError(f"the image has no {what} {name[:100]!r} in its {path}")


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
