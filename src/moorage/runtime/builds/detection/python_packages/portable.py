"""Requirements that were written on another machine, as lines that can be installed on Linux.

`pip freeze` also lists packages of Windows, of Debian and of conda, whose archives are files of that machine. One such
line makes pip and uv refuse the whole file.
"""

from __future__ import annotations

import posixpath
import re
import sys
from typing import NamedTuple

from moorage.runtime.builds.detection.python_packages import conda
from moorage.runtime.builds.detection.reading import Folder

MAX_FILES = 20
MAX_SHOWN = 6  # changes that the log names
# Packages for Windows or macOS only, and packages of the system that pip lists in Debian and Ubuntu.
_ELSEWHERE = frozenset({
    "pywin32", "pypiwin32", "pywinpty", "windows-curses", "win10toast", "winshell", "comtypes", "twisted-iocpsupport",
    "pyobjc", "pyobjc-core", "tensorflow-intel", "tensorflow-cpu-aws", "pycocotools-windows", "pywinauto", "wmi",
    "pkg-resources", "python-apt", "ubuntu-advantage-tools", "ubuntu-drivers-common", "ubuntu-pro-client", "ufw",
    "apturl", "command-not-found", "cloud-init", "unattended-upgrades", "language-selector", "ssh-import-id",
    "systemd-python", "dbus-python", "pygobject", "xkit", "usb-creator", "screen-resolution-extra", "defer",
    "cupshelpers", "python-debian", "landscape-common", "brlapi", "louis", "wsgiref", "distribute", "python",
})  # fmt: skip
_RENAMED = {
    "sklearn": "scikit-learn", "pil": "pillow", "cv2": "opencv-python-headless", "dotenv": "python-dotenv",
    "python-magic-bin": "python-magic", "tensorflow-macos": "tensorflow",
}  # fmt: skip
# Its library needs one for displays, which servers do not have. The versions are the same.
_HEADLESS = {"opencv-python": "opencv-python-headless", "opencv-contrib-python": "opencv-contrib-python-headless"}
_INCLUDE = re.compile(r"\s*(?:-r|--requirement)[ =]*(\S+)")
_RELATIVE = re.compile(r"\s*(-c|--constraint|-e|--editable)[ =]{0,20}(\.\S*|[^\s:]+\.txt)\s*(?:#.*)?$")
_LINE = re.compile(r"\s*(_?[A-Za-z0-9][\w.-]*)\s*(\[[^\]]{0,200}\])?\s*(.*)", re.DOTALL)
_FILE = re.compile(r"@\s*file:///(?!\$)\S*?(?:/[\w.]+?-(\d[\w.]*?)(?:-[\w.]+)*\.(?:whl|tar\.gz|zip))?(?:[#;\s].*)?$")
_CONDA = re.compile(r"=\s*(\d[\w.]*)(?:=\w+)?$")  # one `=`, as `conda list --export` writes
_OPTION = re.compile(r"\s--(?:no-binary|only-binary|install-option|global-option)[ =].*")
_LOCAL_VERSION = re.compile(r"(==\s*\d[\d.]*)\+(?:cpu|cu\d+|rocm[\d.]+|ubuntu[\w.]*|computecanada)\b")


class Portable(NamedTuple):
    text: str
    changes: tuple[str, ...]


def requirements(folder: Folder, name: str) -> Portable | None:
    """Return the lines of a requirements file and of its included files; None if each line is portable."""
    lines: list[str] = []
    changes: list[str] = []
    _read(folder, name, lines, changes, set())
    if not changes:
        return None
    more = [f"{len(changes) - MAX_SHOWN} more"] if len(changes) > MAX_SHOWN else []
    return Portable("".join(f"{line}\n" for line in lines), (*changes[:MAX_SHOWN], *more))


def _read(folder: Folder, name: str, lines: list[str], changes: list[str], seen: set[str]) -> None:
    text = folder.find_text(name)
    if text is None or name in seen or len(seen) >= MAX_FILES:
        return
    seen.add(name)
    if "\ufffd" in text:
        changes.append(f"{name} is not in UTF-8")
    place = posixpath.dirname(name)
    for line in text.splitlines():
        if match := _INCLUDE.match(line):
            _read(folder, posixpath.normpath(f"{place}/{match[1]}").lstrip("/"), lines, changes, seen)
        elif match := _RELATIVE.match(line):
            lines.append(f"{match[1]} ./{posixpath.normpath(f'{place}/{match[2]}').lstrip('/')}")
        elif (new := _portable(line)) != line:
            changes.append(f"{line.strip()[:80]} ({f'{new} in its place' if new else 'left out'})")
            lines += [new] if new else []
        else:
            lines.append(line.replace("\ufffd", "?"))


def _portable(line: str) -> str:
    """Return a line for Linux and the package index; "" for one to leave out."""
    match = _LINE.fullmatch(line)
    if match is None or line.rstrip().endswith("\\"):  # Hashes of its archives follow.
        return line
    name, extras, rest = re.sub("[-_.]+", "-", match[1]).lower(), match[2] or "", match[3]
    exported = _CONDA.fullmatch(rest.strip())
    if (name in _ELSEWHERE and ";" not in rest) or (name in sys.stdlib_module_names and name not in _RENAMED):
        return ""
    if exported and (match[1].startswith("_") or match[1].lower() in conda.OF_SYSTEM):
        return ""
    if name in _RENAMED and not (name == "sklearn" and re.match(r"==\s*0\.0\s*$", rest)):
        return _RENAMED[name]
    if found := _FILE.match(rest):
        return f"{match[1]}{extras}" + (f"=={found[1]}" if found[1] else "")
    if exported:
        return f"{match[1]}=={exported[1]}"
    new = _LOCAL_VERSION.sub(r"\1", _OPTION.sub("", f" {rest}")).strip()
    if name in _HEADLESS:
        return f"{_HEADLESS[name]}{extras}{new}"
    return line if new == rest.strip() else f"{match[1]}{extras}{new}"
