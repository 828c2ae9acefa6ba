"""Users and groups of an image, from its own /etc/passwd and /etc/group."""

from __future__ import annotations

import contextlib
import os
import stat

from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.rootfs.spec import IDS
from moorage.runtime.sandbox.rootfs.users import Identity

MAX_FILE_BYTES = 4 * 2**20
PASSWD, GROUP = "etc/passwd", "etc/group"


class UnknownUser(ValueError):
    """The image has no such user or group; the message is for the user."""


def resolve(tree: int, user: str) -> Identity:
    """Return the ids of USER in the root folder `tree` (a descriptor); raises UnknownUser.

    As with other runtimes, a numeric user needs no account, and a user without a group has the group of its account
    and all groups that list its name.
    """
    name, has_group, group = user.partition(":")
    account = _find_account(tree, name or "0")
    if account is None:
        if not _is_id(name):
            raise UnknownUser(f"the image has no user {name[:100]!r} in its /etc/passwd")
        account = ("", int(name), 0, "/")
    login, uid, gid, home = account
    if has_group and group:
        return Identity(uid, _group_id(tree, group), (), home)
    return Identity(uid, gid, _groups_of(tree, login) if login else (), home)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < IDS


def _find_account(tree: int, wanted: str) -> tuple[str, int, int, str] | None:
    for login, _, uid, gid, _, home, *_ in _lines(tree, PASSWD, 7):
        is_valid = _is_id(uid) and _is_id(gid)
        if is_valid and (wanted == login or (_is_id(wanted) and int(wanted) == int(uid))):
            return login, int(uid), int(gid), home if home.startswith("/") else "/"
    return ("root", 0, 0, "/root") if wanted in ("0", "root") else None


def _group_id(tree: int, wanted: str) -> int:
    for name, _, gid, *_ in _lines(tree, GROUP, 4):
        if wanted == name and _is_id(gid):
            return int(gid)
    if not _is_id(wanted):
        raise UnknownUser(f"the image has no group {wanted[:100]!r} in its /etc/group")
    return int(wanted)


def _groups_of(tree: int, login: str) -> tuple[int, ...]:
    lines = _lines(tree, GROUP, 4)
    return tuple(sorted({int(gid) for _, _, gid, members, *_ in lines if login in members.split(",") and _is_id(gid)}))


def _lines(tree: int, path: str, fields: int) -> list[list[str]]:
    """Return the lines of an account file, each with at least `fields` fields."""
    lines = [line.strip().split(":") for line in _read(tree, path).splitlines() if not line.startswith("#")]
    return [line + [""] * (fields - len(line)) for line in lines if len(line) >= 3]


def _read(tree: int, path: str) -> str:
    """Read a file of the image, whose links stay inside; "" if it is missing, special or too large."""
    with contextlib.suppress(OSError):
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = sys_.openat2(tree, path, flags, sys_.RESOLVE_IN_ROOT | sys_.RESOLVE_NO_MAGICLINKS)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES:
                return file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    return ""
