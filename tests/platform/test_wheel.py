"""`pip install` of the built wheel into a clean environment, then `moorage up`: what a user without a checkout does."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tests.architecture.source import ROOT
from tests.platform.running import running

PIP = ["-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input"]


@pytest.mark.slow
def test_the_wheel_installs_into_a_clean_environment_and_serves(tmp_path: Path) -> None:
    build = [sys.executable, *PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True, cwd=tmp_path)
    wheel = next(tmp_path.glob("moorage-*.whl"))
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [str(python), *PIP, "install", "--no-deps"]
    subprocess.run([*install, "--require-hashes", "-r", str(ROOT / "requirements" / "runtime.txt")], check=True)
    subprocess.run([*install, str(wheel)], check=True)
    subprocess.run([str(python), *PIP, "check"], check=True)

    with running(tmp_path / "data", program=[str(tmp_path / "env" / "bin" / "moorage")]) as platform:
        status, answer = platform.get("/v1/whoami", token=platform.token())
        page, text = platform.get("/docs")

    assert (status, page) == (200, 200)
    assert answer["data"]["role"] == "owner"
    assert "/v1/whoami" in text
