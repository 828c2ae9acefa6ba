"""Go modules: the version that they need, and the name of the built program."""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed


def check_version(folder: Folder, version: str) -> None:
    """Raise BuildFailed if go.mod needs a newer Go than `version`."""
    text = folder.find_text("go.mod") or ""
    wanted = re.findall(r"^(?:go[ \t]+|toolchain[ \t]+go)(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", text, re.MULTILINE)
    newest = max((tuple(int(part or 0) for part in each) for each in wanted), default=(0,))
    if newest > tuple(int(part) for part in version.split(".")[:3]):
        needed = ".".join(map(str, newest))
        raise BuildFailed(
            f"go.mod needs Go {needed}, and this platform builds with {version}: lower the `go` or `toolchain` line"
        )


def build_for(folder: Folder, start: str, build: str) -> tuple[str, str]:
    """Return the build command that creates the program of a start command, and that start command.

    Procfiles name the program as other hosts build it: after the module, in a folder `bin` that is in their PATH.
    """
    program, _, arguments = start.partition(" ")
    if program == "go" and arguments.startswith("run "):
        return build, "./app"
    match = re.fullmatch(r"(?:\./)?((?:bin/)?[A-Za-z0-9][\w.-]*)", program)
    if match is None or folder.has(match[1]) or program.endswith(".sh"):
        return build, start
    target = match[1] if "/" in program else f"bin/{program}"
    return build.replace("-o app ", f"-o {target} "), f"{target} {arguments}".strip() if target != "app" else start
