"""Flags of instructions, such as `--from=build`, and the options of `RUN --mount`."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Final

from moorage.runtime.images.dockerfile import words
from moorage.runtime.images.dockerfile.instructions import Mount

TEXT: Final = "text"
TEXTS: Final = "texts"  # may be given several times
SWITCH: Final = "switch"
COPY = {
    "from": TEXT, "chown": TEXT, "chmod": TEXT, "link": SWITCH, "parents": SWITCH, "exclude": TEXTS,
}  # fmt: skip
ADD = {
    "chown": TEXT, "chmod": TEXT, "link": SWITCH, "exclude": TEXTS, "checksum": TEXT, "unpack": SWITCH,
    "keep-git-dir": SWITCH,
}  # fmt: skip
_SWITCHES = {"": True, "true": True, "1": True, "false": False, "0": False}
_NAMES = {
    "dst": "target", "destination": "target", "src": "source", "readonly": "ro", "readwrite": "rw",
}  # fmt: skip
_MOUNTS: Mapping[str, frozenset[str]] = {
    "bind": frozenset({"target", "source", "from", "rw", "ro"}),
    "cache": frozenset({"id", "target", "ro", "rw", "sharing", "mode", "uid", "gid"}),
    "tmpfs": frozenset({"target", "size"}),
    "secret": frozenset({"id", "target", "required", "mode", "uid", "gid", "env"}),
}
_REFUSED_MOUNTS = {"ssh": "type=ssh is not supported: builds have no SSH agent; use type=secret"}


def take(rest: str, escape: str) -> tuple[list[tuple[str, str | None]], str]:
    """Split the flags at the start of the arguments from the remaining text."""
    flags: list[tuple[str, str | None]] = []
    left = rest.strip()
    while left.startswith("--"):
        word = words.split_raw(left, escape)[0]
        left = left[len(word) :].lstrip()
        if word == "--":
            break
        name, equals, value = words.unquote(word, escape).removeprefix("--").partition("=")
        flags.append((name, value if equals else None))
    return flags, left


class Flags:
    """Flags of one instruction; `known` checks them."""

    def __init__(self, keyword: str, flags: list[tuple[str, str | None]]) -> None:
        self._keyword = keyword
        self._flags = flags
        self.found_names = {name for name, _ in flags}

    def known(self, kinds: Mapping[str, str]) -> None:
        seen: set[str] = set()
        for name, value in self._flags:
            kind = kinds.get(name)
            if kind is None:
                raise ValueError(f"has the unsupported flag --{name[:40]}")
            if kind != TEXTS and name in seen:
                raise ValueError(f"the flag --{name} is given twice")
            seen.add(name)
            if kind == SWITCH and (value or "").lower() not in _SWITCHES:
                raise ValueError(f"--{name}={value} should be true or false")
            if kind != SWITCH and not value:
                raise ValueError(f"the flag --{name} has no value")

    def text(self, name: str) -> str:
        return next((value or "" for each, value in self._flags if each == name), "")

    def texts(self, name: str) -> list[str]:
        return [value or "" for each, value in self._flags if each == name]

    def switch(self, name: str) -> bool:
        return next((_SWITCHES[(value or "").lower()] for each, value in self._flags if each == name), False)


def parse_mount(text: str) -> Mount:
    """Parse the options of `--mount`; raises ValueError."""
    options: dict[str, str] = {}
    for field in next(csv.reader([text]), []):
        name, equals, value = field.partition("=")
        name = name.strip().lower()
        options[_NAMES.get(name, name)] = value if equals else "true"
    kind = options.pop("type", "bind")
    if kind not in _MOUNTS:
        raise ValueError(_REFUSED_MOUNTS.get(kind, f"--mount=type={kind[:40]} is unknown"))
    for name in options:
        if name not in _MOUNTS[kind]:
            raise ValueError(f"--mount=type={kind} has the unsupported option {name[:40]!r}")
    if kind != "secret" and not options.get("target"):
        raise ValueError(f"--mount=type={kind} needs a target")
    if kind == "secret" and not (options.get("id") or options.get("target")):
        raise ValueError("--mount=type=secret needs an id or a target")
    if options.get("sharing", "shared") not in ("shared", "private", "locked"):
        raise ValueError(f"sharing={options['sharing']} should be shared, private or locked")
    return Mount(kind, options)
