"""A folder of static files as a ZIP archive."""

from __future__ import annotations

import fnmatch
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.cli.deploy.git import find_git
from moorage.cli.deploy.snapshot import ALWAYS_LEFT_OUT, Snapshot, TooLarge, cache_folder, check_size
from moorage.cli.output.terminal import note, plain

MAX_FILES = 20_000
MAX_UNPACKED_BYTES = 512 * 2**20
MAX_PACKED_BYTES = 30 * 2**20
MAX_NAMED_LINKS = 5


@contextmanager
def packed(folder: Path, report: Callable[[str], None] = note) -> Iterator[tuple[Path, int]]:
    """Yield a ZIP of a folder, and its number of files; raises TooLarge. `report` gets lines about links left out."""
    listed = list_files(folder)
    paths = find_contents(folder, listed)
    _report_links([each for each in listed if each not in paths and (folder / each).is_symlink()], report)
    names = sorted(paths)
    if len(names) > MAX_FILES:
        raise TooLarge(f"the folder has {len(names):,} files, and at most {MAX_FILES:,} are sent")
    check_size(names, folder, MAX_UNPACKED_BYTES)
    place = cache_folder(folder)
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile(dir=place, suffix=".zip") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                _add(archive, name, paths[name])
        file.flush()
        size = os.fstat(file.fileno()).st_size
        if size > MAX_PACKED_BYTES:
            raise TooLarge(
                f"the archive has {size / 2**20:.0f} MB, and at most {MAX_PACKED_BYTES // 2**20} MB are sent; make the "
                "folder a git repository (git init), whose pushes may be larger"
            )
        yield Path(file.name), len(names)


def find_contents(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the path of the content of each file, without links on the way.

    A link may come from a stranger, and lead to a private file. It is followed only to a file that is sent itself.
    """
    top = os.path.realpath(folder)
    sent = {os.path.join(top, name) for name in names}
    paths = {name: os.path.realpath(os.path.join(top, name)) for name in names}
    return {name: path for name, path in paths.items() if path in sent and os.path.isfile(path)}


def _report_links(names: list[str], report: Callable[[str], None]) -> None:
    for name in sorted(names)[:MAX_NAMED_LINKS]:
        report(f"left out the link {plain(name)}: it does not lead to a file that is sent")
    if len(names) > MAX_NAMED_LINKS:
        report(f"left out {len(names) - MAX_NAMED_LINKS} more such links")


def _add(archive: zipfile.ZipFile, name: str, path: str) -> None:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        entry = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
        entry.compress_type = archive.compression
        with archive.open(entry, "w") as packed_file:
            shutil.copyfileobj(file, packed_file, 2**16)


def list_files(folder: Path) -> list[str]:
    """Return the files to send: git knows the rules of ignored files; without git only the fixed ones hold."""
    if find_git() is not None:
        snapshot = Snapshot(folder)
        snapshot.open()
        return snapshot.files()
    names = []
    for root, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not _is_left_out(each)]
        names += [os.path.relpath(os.path.join(root, each), folder) for each in files if not _is_left_out(each)]
    return names


def _is_left_out(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern.strip("/")) for pattern in ALWAYS_LEFT_OUT)
