"""Turn the failure of an installer into one sentence with the next step."""

from __future__ import annotations

import errno
import re
import shutil
from pathlib import Path

NEEDED_MB = 1000  # of the environment with its download cache
SHOWN_LINES = 12
AGAIN = "then repeat the command: finished downloads are kept"
_DISK = re.compile(r"No space left on device|os error 28\b|Errno 28\b|Disk quota exceeded")
_HASH = re.compile(r"Hash mismatch|DO NOT MATCH THE HASHES|hash(?:es)? (?:do|did|does) not match", re.IGNORECASE)
_CERTIFICATE = re.compile(r"CERTIFICATE_VERIFY_FAILED|UnknownIssuer|invalid peer certificate|self.signed certificate")
_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|Name or service not known"
    r"|Network is unreachable|Connection refused|ConnectTimeout|ReadTimeout|timed out|ProxyError|tcp connect error"
    r"|client error \(Connect\)|dns error|error sending request|Connection reset|Connection broken|Failed to fetch"
)
_READ_ONLY = re.compile(r"Read-only file system|os error 30\b|Permission denied|os error 13\b")


class SetupFailed(Exception):
    """The setup cannot go on; the message has one sentence and the next step."""


def explain(what: str, output: str, venv: Path) -> str:
    """Return why a program failed, by its output."""
    if _DISK.search(output):
        return full_disk(venv)
    if match := _HASH.search(output):
        return (
            f"{what} failed: a downloaded file is not the locked one ({_line_of(output, match)}): it was damaged or "
            f"replaced on its way; check the package index or proxy, {AGAIN}"
        )
    if _CERTIFICATE.search(output):
        return (
            f"{what} failed: the certificate of the package index is not trusted here; name the CA file of your "
            f"network with SSL_CERT_FILE=/path/to/ca.pem, {AGAIN}"
        )
    if match := _NETWORK.search(output):
        return (
            f"{what} failed: the package index cannot be reached ({_line_of(output, match)}); check the connection, "
            f"HTTPS_PROXY and PIP_INDEX_URL, {AGAIN}"
        )
    if match := _READ_ONLY.search(output):
        return f"{what} failed: {_line_of(output, match)}; let this user write there, {AGAIN}"
    shown = "\n".join(f"  | {line}" for line in output.splitlines()[-SHOWN_LINES:])
    return f"{what} failed; its last lines:\n{shown}\nfix what they name, {AGAIN}"


def is_hopeless(output: str) -> bool:
    """Tell whether another installer would fail in the same way."""
    return any(pattern.search(output) for pattern in (_DISK, _HASH, _NETWORK, _READ_ONLY))


def is_damaged(output: str) -> bool:
    return bool(_HASH.search(output))


def explain_os_error(error: OSError, venv: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full_disk(venv)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return (
            f"cannot write to {error.filename or venv}: {error.strerror}; clone to a folder that this user can write "
            "to, or put environment and data elsewhere: MOORAGE_DATA=/path/to/data make up VENV=/path/to/environment"
        )
    return f"{error}; fix that, {AGAIN}"


def full_disk(venv: Path) -> str:
    folder = next(path for path in (venv.absolute(), *venv.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free // 2**20
    return (
        f"the disk is full: {free} MB are free for {venv}, and the setup needs about {NEEDED_MB} MB there and in the "
        f"cache of your home folder; free some space, {AGAIN}"
    )


def without_pip(python: str) -> str:
    return (
        f"{python} brings no pip, uv is not installed, and apt-get could not fetch pip either; install it (Debian, "
        "Ubuntu: sudo apt-get install python3-venv), then repeat the command"
    )


def _line_of(output: str, match: re.Match[str]) -> str:
    start = output.rfind("\n", 0, match.start()) + 1
    end = output.find("\n", match.end())
    line = output[start : end if end >= 0 else len(output)].strip()
    return re.sub(r"://[^/@\s]*@", "://", line)[:200]
