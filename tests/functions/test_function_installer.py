"""Installing dependencies: what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.functions.failures import InstallFailed
from moorage.functions.installer import SandboxInstaller
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("runtime", "file"), [("nodejs:19", "package.json"), ("python:3.8", "requirements.txt")])
async def test_a_runtime_that_went_away_is_named_and_nothing_is_installed(
    settings: Settings, tmp_path: Path, runtime: str, file: str
) -> None:
    (tmp_path / file).write_text("{}")

    with pytest.raises(InstallFailed, match=f"{runtime} is not installed here any more"):
        await SandboxInstaller(settings).install(tmp_path, runtime)

    assert [path.name for path in tmp_path.iterdir()] == [file]
