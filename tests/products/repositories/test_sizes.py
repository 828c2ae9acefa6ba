"""Size of a repository that changes meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

from moorage.products.repositories.storage import size_of


def test_what_vanishes_meanwhile_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"x" * 4096)
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            for number in range(40):
                (tmp_path / f"{number}.keep").touch()
            for number in range(40):
                (tmp_path / f"{number}.keep").unlink()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        sizes = [size_of(tmp_path) for _ in range(2000)]
    finally:
        done.set()
        other.join()

    assert min(sizes) >= 4096
