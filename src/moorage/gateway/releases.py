"""Making a freshly unpacked release ready to be served; after that nobody changes it.

Caddy makes an `ETag` of a file's time and length. Two releases that were unpacked in the same moment, with files of
equal length, would share it; so of each file's time the seconds are those of the release, and the rest is a hash of
what is in the file.
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

SITES = collect.CAPS  # What a build may leave is what a release may hold; an upload may hold less.

LEAST_BYTES = 1024  # A smaller file fits into a packet or two as it is.
MOST_BYTES = 16 * 2**20  # A larger one is compressed while it is sent: here it would hold up the deployment.
WORTH = 0.9  # of the size: what a compressed twin may have
LEVEL = 4  # More takes up to three times as long, for three percent.
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
    """Add what the gateway needs to a release, and make it read-only. Run once, before the release appears."""
    own = folder / OWN_FOLDER
    folders.remove(own)  # What a site brings under this name is not ours.
    files = [entry.path for entry in folders.walk(folder) if entry.is_file(follow_symlinks=False)]
    if is_single_page(folder, files):
        own.mkdir()
        files.append(str(shutil.copyfile(folder / "index.html", folder / SINGLE_PAGE)))
    finish = partial(_finish_all, taken=frozenset(files), seconds=int(time.time()))
    threads = min(_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        twins = [
            twin for made in pool.map(finish, (files[start::threads] for start in range(threads))) for twin in made
        ]
    _keep(folder, [*files, *twins])
    for path in (str(folder), *(entry.path for entry in folders.walk(folder) if entry.is_dir(follow_symlinks=False))):
        os.chmod(path, _FOLDER_MODE)


def _keep(folder: Path, files: Iterable[str]) -> None:
    """Show the files that never change once more in a place of their own, where the gateway looks first."""
    root, made = f"{folder}/", set[str]()
    for path in files:
        name = path.removeprefix(root)
        if not is_fingerprinted(name.removesuffix(".gz")):
            continue
        place = f"{root}{KEPT}/{name}"
        above = os.path.dirname(place)
        if above not in made:
            os.makedirs(above, exist_ok=True)
            made.add(above)
        os.link(path, place)


def is_single_page(folder: Path, files: Iterable[str]) -> bool:
    """Tell whether every address of a site should show its one page: it has no other, and none for what is missing."""
    pages = [path for path in files if path.lower().endswith((".html", ".htm"))]
    return pages == [str(folder / "index.html")] and not (folder / OWN_404).exists()


def _finish_all(paths: list[str], *, taken: frozenset[str], seconds: int) -> list[str]:
    twins = (_finish(path, taken=taken, seconds=seconds) for path in paths)
    return [twin for twin in twins if twin is not None]


def _finish(path: str, *, taken: frozenset[str], seconds: int) -> str | None:
    """Compress and seal a file; return its twin, if it is worth one."""
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
        is_whole = len(content) <= MOST_BYTES
        digest = hashlib.blake2b(content, digest_size=8)
        while not is_whole and (more := file.read(2**20)):
            digest.update(more)
    _seal(path, seconds, digest.digest())
    twin = f"{path}.gz"
    if not is_whole or twin in taken or not _is_worth_trying(path, content):
        return None
    small = _compressed(content)
    if len(small) > len(content) * WORTH:
        return None
    with open(twin, "wb") as file:
        file.write(small)
    _seal(twin, seconds, hashlib.blake2b(small, digest_size=8).digest())
    return twin


def _is_worth_trying(path: str, content: bytes) -> bool:
    return len(content) > LEAST_BYTES and os.path.splitext(path)[1].lower() in COMPRESSIBLE


def _compressed(content: bytes) -> bytes:
    compressor = zlib.compressobj(LEVEL, wbits=_GZIP)
    return compressor.compress(content) + compressor.flush()


def _seal(path: str, seconds: int, digest: bytes) -> None:
    moment = seconds * _SECOND_NS + int.from_bytes(digest) % _SECOND_NS
    os.utime(path, ns=(moment, moment))
    os.chmod(path, _FILE_MODE)
