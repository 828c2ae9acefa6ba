"""Programs in an artifact: executable and read-only after packing, storing and unpacking."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.kit import zips, zips_writer

pytestmark = pytest.mark.anyio

HARBOR = 1
CAPS = zips.Caps(packed_bytes=2**20, unpacked_bytes=2**20)


@pytest.mark.parametrize("settings", ["folder"], indirect=True)
async def test_a_program_can_be_run_after_it_was_stored(artifacts: ArtifactStore, tmp_path: Path) -> None:
    app = tmp_path / "app"
    (app / "bin").mkdir(parents=True)
    (app / "bin" / "run").write_text('#!/bin/sh\ncat "$(dirname "$0")"/../note\n')
    (app / "bin" / "run").chmod(0o700)
    (app / "note").write_text("here")
    zips_writer.pack(app, tmp_path / "app.zip")
    stored = await artifacts.put_file(HARBOR, tmp_path / "app.zip", owner="app:1")

    folder = await Unpacked(tmp_path / "apps", CAPS, is_used=lambda tx, digest: True).ensure(
        artifacts, HARBOR, stored.digest
    )

    done = subprocess.run([folder / "bin" / "run"], capture_output=True, text=True, check=True)
    assert done.stdout == "here"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert modes == {"bin": 0o755, "run": 0o555, "note": 0o444}
