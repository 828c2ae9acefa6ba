"""Shared libraries that downloaded database software expects from the system."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping

from moorage.runtime.database_servers.ports import ServerFailed

LDCONFIG_TIMEOUT_S = 20
_CACHE = "/etc/ld.so.cache"
_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
_DEBIAN: Mapping[str, str] = {
    "libcrypto.so.3": "libssl3",
    "libgssapi_krb5.so.2": "libgssapi-krb5-2",
    "liblz4.so.1": "liblz4-1",
    "libreadline.so.8": "libreadline8",
    "libssl.so.3": "libssl3",
    "libxml2.so.2": "libxml2",
    "libz.so.1": "zlib1g",
}
_NOT_LOADED = re.compile(r"error while loading shared libraries: ([\w.+-]+): cannot open")
_ENTRY = re.compile(r"^[^\S\n]*(\S+) \(", re.MULTILINE)
_known: tuple[int, frozenset[str]] | None = None  # mtime of the loader's cache, and its libraries


class CannotRun(ServerFailed):
    """Downloaded programs do not run on this machine; `library` is a missing one, or empty."""

    def __init__(self, software: str, output: str) -> None:
        match = _NOT_LOADED.search(output)
        self.library = match[1] if match else ""
        why = lacks([self.library]) if self.library else f"it ends with: {' '.join(output.split())[-300:]}"
        super().__init__(f"{software} does not run on this machine: {why}")


def lacks(names: Iterable[str]) -> str:
    """Return the missing libraries and how to install them."""
    missing = list(names)
    packages = dict.fromkeys(_DEBIAN[name] for name in missing if name in _DEBIAN)
    how = f"Debian, Ubuntu: apt install {' '.join(packages)}" if packages else "install the system package with it"
    return f"it lacks {', '.join(missing)} ({how})"


def missing(names: Iterable[str]) -> list[str]:
    """Return the libraries that the system's loader does not know; none if it cannot be asked."""
    known = _installed()
    return [name for name in names if known and name not in known]


def _installed() -> frozenset[str]:
    global _known
    try:
        mtime = os.stat(_CACHE).st_mtime_ns
    except OSError:
        return frozenset()
    if _known is None or _known[0] != mtime:
        program = shutil.which("ldconfig", path=_PATH)
        if program is None:
            return frozenset()
        try:
            done = subprocess.run(
                [program, "-p"], capture_output=True, text=True, timeout=LDCONFIG_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return frozenset()
        _known = mtime, frozenset(_ENTRY.findall(done.stdout))
    return _known[1]
