"""`pip install` of the built wheel into a clean environment, then `moorage up`: what a user without a checkout does."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tests.architecture.source import ROOT
from tests.platform.running import running

PIP = ["-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input"]


@pytest.mark.deep
def test_the_wheel_installs_into_a_clean_environment_and_serves(tmp_path: Path) -> None:
    build = [sys.executable, *PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True, cwd=tmp_path)
    wheel = next(tmp_path.glob("moorage-*.whl"))
    venv.create(tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    # What it depends on was installed from the same locks by `make`; a path to it does not lead to the checkout.
    own = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env")}))
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    install = [sys.executable, *PIP, "--python", str(python), "install", "--no-deps", "--force-reinstall"]
    subprocess.run([*install, str(wheel)], check=True)
    where = [str(python), "-c", "import moorage; print(moorage.__file__)"]
    found = subprocess.run(where, check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    with running(tmp_path / "data", program=[str(tmp_path / "env" / "bin" / "moorage")]) as platform:
        status, answer = platform.get("/v1/whoami", token=platform.token())
        page, text = platform.get("/docs")

    assert Path(found.strip()).is_relative_to(own)
    assert (status, page) == (200, 200)
    assert answer["data"]["role"] == "owner"
    assert "/v1/whoami" in text
