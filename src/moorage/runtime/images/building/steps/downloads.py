"""Files that ADD fetches from URLs, through the guarded client."""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from moorage.core.kit.records import dataclass
from moorage.core.net.calls import OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetPolicy, TargetRefused
from moorage.runtime.images.building.files.tree import TreeError

MAX_BYTES = 128 * 2**20  # held in memory
MAX_REDIRECTS = 10
TIMEOUT_S = 300
USER_AGENT = "Moorage-Builds"
_URL = re.compile(r"https?://", re.IGNORECASE)
_GIT = re.compile(r"git@|git://|ssh://|https?://[^#]*\.git(?:#|$)", re.IGNORECASE)
_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Download:
    name: str
    path: Path
    digest: str
    mtime_ns: int


def is_url(source: str) -> bool:
    return _URL.match(source) is not None and not is_git(source)


def is_git(source: str) -> bool:
    return _GIT.match(source) is not None


async def fetch(url: str, target: Path, targets: TargetPolicy, checksum: str = "") -> Download:
    """Download a file; raises TreeError."""
    if checksum and not _CHECKSUM.fullmatch(checksum):
        raise TreeError(f"--checksum={checksum[:80]} should be sha256: and 64 hexadecimal digits")
    shown = url[:200]
    try:
        async with GuardedClient(targets, user_agent=USER_AGENT) as client:
            answer = await client.request(
                "GET", url, timeout_s=TIMEOUT_S, max_body_bytes=MAX_BYTES, follow=MAX_REDIRECTS
            )
    except (TargetRefused, OutboundError, ValueError) as error:
        raise TreeError(f"cannot download {shown}: {error}") from None
    if answer.status != 200:
        raise TreeError(f"cannot download {shown}: the server answered with status {answer.status}")
    if answer.truncated:
        raise TreeError(f"cannot download {shown}: it has more than {MAX_BYTES // 2**20} MB")
    digest = hashlib.sha256(answer.body).hexdigest()
    if checksum and checksum != f"sha256:{digest}":
        raise TreeError(f"{shown} has the checksum sha256:{digest}, and not {checksum}")
    await asyncio.to_thread(target.write_bytes, answer.body)
    return Download(_name(url), target, digest, _modified_ns(answer.headers.get("Last-Modified", "")))


def _name(url: str) -> str:
    return posixpath.basename(unquote(urlsplit(url).path)) or "download"


def _modified_ns(header: str) -> int:
    try:
        return max(int(email.utils.parsedate_to_datetime(header).timestamp()), 0) * 10**9
    except (ValueError, TypeError, OverflowError):
        return 0
