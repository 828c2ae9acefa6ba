"""Version of Go that a module needs."""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed


def check_version(folder: Folder, version: str) -> None:
    """Raise BuildFailed if go.mod needs a newer Go than `version`."""
    text = folder.find_text("go.mod") or ""
    wanted = re.findall(r"^(?:go[ \t]+|toolchain[ \t]+go)(\d+)\.(\d+)(?:\.(\d+))?", text, re.MULTILINE)
    newest = max((tuple(int(part or 0) for part in each) for each in wanted), default=(0,))
    if newest > tuple(int(part) for part in version.split(".")[:3]):
        needed = ".".join(map(str, newest))
        raise BuildFailed(
            f"go.mod needs Go {needed}, and this platform builds with {version}: lower the `go` or `toolchain` line"
        )
