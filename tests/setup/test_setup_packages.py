"""Locked packages: pip's configuration for uv, and the choice between both."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from requirements.installer import packages
from requirements.installer.packages import Installer, uv_environment
from requirements.installer.pip import Pip, configuration
from requirements.installer.progress import Steps
from tests.setup.conftest import ROOT


def test_uv_gets_the_index_the_proxy_and_the_certificates_of_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://mirror.test/simple\ncert = /of/pip.pem\n"
        "[install]\nfind-links = /wheels\n  /more\n"
    )
    for name in ("SSL_CERT_FILE", "PIP_CERT", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_PROXY", "http://proxy.test:3128")

    env = uv_environment(configuration(Pip()), tmp_path)

    assert env["UV_DEFAULT_INDEX"] == "https://mirror.test/simple"
    assert (env["SSL_CERT_FILE"], env["ALL_PROXY"]) == ("/of/pip.pem", "http://proxy.test:3128")
    assert env["UV_FIND_LINKS"] == "/wheels,/more"


def test_variables_of_uv_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.test/simple")

    assert (
        uv_environment({"index-url": "https://mirror.test"}, tmp_path)["UV_DEFAULT_INDEX"] == "https://own.test/simple"
    )


def test_pip_installs_when_uv_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    broken = tmp_path / "uv"
    broken.write_text("#!/bin/sh\necho 'a bug of uv' >&2\nexit 2\n")
    broken.chmod(0o755)
    installer = Installer(tmp_path / "venv", Pip(), broken, {})

    with Steps(1).step("installing") as step:
        installer._run(
            ["--no-deps", "--no-index", "--find-links", str(tmp_path), str(wheel(tmp_path))], step, installer.venv
        )

    python = tmp_path / "venv" / "bin" / "python"
    assert subprocess.run([python, "-c", "import harbor"], check=False).returncode == 0
    assert "setup: [1/1] installing" in capsys.readouterr().out


def wheel(folder: Path) -> Path:
    """Write a package by hand: one module and its metadata."""
    file = folder / "harbor-1.0-py3-none-any.whl"
    about = {"METADATA": "Metadata-Version: 2.1\nName: harbor\nVersion: 1.0\n", "RECORD": ""}
    about["WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("harbor.py", "")
        for name, text in about.items():
            archive.writestr(f"harbor-1.0.dist-info/{name}", text)
    return file


def test_steps_have_a_number_and_programs_show_their_progress(capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        "import sys, time; open('/dev/null', 'wb').write(bytes(5_000_000)); print('Downloading x (5MiB)', flush=True)"
    )
    steps = Steps(2)

    with steps.step("installing") as step:
        done = step.run([sys.executable, "-c", f"{program}; time.sleep(3)"], env={})

    lines = capsys.readouterr().out.splitlines()
    assert (done.code, done.output) == (0, "Downloading x (5MiB)")
    assert lines[0] == "setup: [1/2] installing"
    assert any("5 MB written" in line and "Downloading x (5MiB)" in line for line in lines)


def test_every_lock_is_part_of_the_setup() -> None:
    locks = {path.stem for path in (ROOT / "requirements").glob("*.txt")}

    assert locks == {"runtime", "build", "dev", "bench", "audit", "uv"}
    assert packages.count(["runtime", "build"]) > 40
