"""Prepare an unpacked release for Caddy: compress, set times, make it read-only.

Caddy makes the `ETag` of a file from its modification time and length. Two releases that were unpacked in the same
second, with files of equal length, would share it. So the seconds of each file's time are those of the release, and the
nanoseconds are a hash of the file's content.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from moorage.core.kit import folders
from moorage.gateway.config.fingerprints import is_fingerprinted
from moorage.gateway.config.static import KEPT, OWN_404, OWN_FOLDER, SINGLE_PAGE
from moorage.runtime.builds import collect

SITES = collect.CAPS  # A release may hold as much as a build may produce; uploads have a lower limit.

LEAST_BYTES = 1024  # A smaller file fits into a packet or two uncompressed.
MOST_BYTES = 16 * 2**20  # Caddy compresses a larger file while it sends it: here it would delay the deployment.
MAX_COMPRESSED_RATIO = 0.9  # A compressed file that is larger than this share of the original is not kept.
COMPRESSION_LEVEL = 4  # A higher level takes up to three times as long, for 3 %.
_THREADS = 4
_FOLDER_MODE = 0o755  # The gateway may run as another user.
_FILE_MODE = 0o444
_SECOND_NS = 1_000_000_000
_GZIP = 31  # zlib's number for "with the header of gzip"

COMPRESSIBLE = frozenset(
    (
        ".atom", ".cjs", ".css", ".csv", ".eot", ".geojson", ".gltf", ".htm", ".html", ".ico", ".ics", ".js", ".json",
        ".jsonld", ".map", ".md", ".mjs", ".otf", ".rss", ".svg", ".toml", ".ttf", ".txt", ".vtt", ".wasm",
        ".webmanifest", ".xhtml", ".xml", ".yaml", ".yml",
    )
)  # fmt: skip


def prepare(folder: Path) -> None:
    """Add files for Caddy and make a release read-only; runs before it is visible."""
    own = folder / OWN_FOLDER
    folders.remove(own)  # A site may bring files under this name.
    files = [entry.path for entry in folders.walk(folder) if entry.is_file(follow_symlinks=False)]
    if is_single_page(folder, files):
        own.mkdir()
        files.append(str(shutil.copyfile(folder / "index.html", folder / SINGLE_PAGE)))
    finish = partial(_finish_all, existing=frozenset(files), seconds=int(time.time()))
    threads = min(_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        twins = [
            twin for chunk in pool.map(finish, (files[start::threads] for start in range(threads))) for twin in chunk
        ]
    _link_immutable(folder, [*files, *twins])
    for path in (str(folder), *(entry.path for entry in folders.walk(folder) if entry.is_dir(follow_symlinks=False))):
        os.chmod(path, _FOLDER_MODE)


def _link_immutable(folder: Path, files: Iterable[str]) -> None:
    """Hard-link files that never change into a folder which Caddy serves as immutable."""
    root, parents = f"{folder}/", set[str]()
    for path in files:
        name = path.removeprefix(root)
        if not is_fingerprinted(name.removesuffix(".gz")):
            continue
        link = f"{root}{KEPT}/{name}"
        parent = os.path.dirname(link)
        if parent not in parents:
            os.makedirs(parent, exist_ok=True)
            parents.add(parent)
        os.link(path, link)


def is_single_page(folder: Path, files: Iterable[str]) -> bool:
    """Return whether all addresses show index.html: the only page, and no 404.html."""
    pages = [path for path in files if path.lower().endswith((".html", ".htm"))]
    return pages == [str(folder / "index.html")] and not (folder / OWN_404).exists()


def _finish_all(paths: list[str], *, existing: frozenset[str], seconds: int) -> list[str]:
    twins = (_finish(path, existing=existing, seconds=seconds) for path in paths)
    return [twin for twin in twins if twin is not None]


def _finish(path: str, *, existing: frozenset[str], seconds: int) -> str | None:
    """Set a file's times, and compress it if that saves enough; return the new file."""
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
        is_whole = len(content) <= MOST_BYTES
        digest = hashlib.blake2b(content, digest_size=8)
        while not is_whole and (more := file.read(2**20)):
            digest.update(more)
    _set_etag_time(path, seconds, digest.digest())
    twin = f"{path}.gz"
    if not is_whole or twin in existing or not _is_compressible(path, content):
        return None
    small = _compressed(content)
    if len(small) > len(content) * MAX_COMPRESSED_RATIO:
        return None
    with open(twin, "wb") as file:
        file.write(small)
    _set_etag_time(twin, seconds, hashlib.blake2b(small, digest_size=8).digest())
    return twin


def _is_compressible(path: str, content: bytes) -> bool:
    return len(content) > LEAST_BYTES and os.path.splitext(path)[1].lower() in COMPRESSIBLE


def _compressed(content: bytes) -> bytes:
    compressor = zlib.compressobj(COMPRESSION_LEVEL, wbits=_GZIP)
    return compressor.compress(content) + compressor.flush()


def _set_etag_time(path: str, seconds: int, digest: bytes) -> None:
    moment = seconds * _SECOND_NS + int.from_bytes(digest) % _SECOND_NS
    os.utime(path, ns=(moment, moment))
    os.chmod(path, _FILE_MODE)
