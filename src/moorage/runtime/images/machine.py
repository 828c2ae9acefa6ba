"""The architecture of this machine, as images name it."""

from __future__ import annotations

import platform

_NAMES = {"aarch64": "arm64", "x86_64": "amd64"}


def architecture() -> str:
    return _NAMES.get(platform.machine(), platform.machine())
