"""A folder of static files as a ZIP archive."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.cli.deploy.git import find_git
from moorage.cli.deploy.snapshot import ALWAYS_LEFT_OUT, Snapshot, TooLarge, cache_folder, check_size

MAX_FILES = 20_000
MAX_UNPACKED_BYTES = 512 * 2**20
MAX_PACKED_BYTES = 30 * 2**20


@contextmanager
def packed(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield a ZIP of a folder, and its number of files; raises TooLarge."""
    names = [name for name in list_files(folder) if (folder / name).is_file()]
    if len(names) > MAX_FILES:
        raise TooLarge(f"the folder has {len(names):,} files, and at most {MAX_FILES:,} are sent")
    check_size(names, folder, MAX_UNPACKED_BYTES)
    place = cache_folder(folder)
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile(dir=place, suffix=".zip") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6, strict_timestamps=False) as archive:
            for name in sorted(names):
                archive.write(folder / name, name)
        file.flush()
        size = os.fstat(file.fileno()).st_size
        if size > MAX_PACKED_BYTES:
            raise TooLarge(
                f"the archive has {size / 2**20:.0f} MB, and at most {MAX_PACKED_BYTES // 2**20} MB are sent; make the "
                "folder a git repository (git init), whose pushes may be larger"
            )
        yield Path(file.name), len(names)


def list_files(folder: Path) -> list[str]:
    """Return the files to send: git knows the rules of ignored files; without git only the fixed ones hold."""
    if find_git() is not None:
        snapshot = Snapshot(folder)
        snapshot.open()
        return snapshot.files()
    left_out = {each.strip("/") for each in ALWAYS_LEFT_OUT}
    names = []
    for root, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in left_out]
        names += [os.path.relpath(os.path.join(root, each), folder) for each in files if each not in left_out]
    return names
