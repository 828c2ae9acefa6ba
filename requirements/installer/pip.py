"""Find a pip on a machine that may have none, and read its configuration.

Debian splits pip and the wheels of `ensurepip` off Python. apt-get can download that package without root, from the
mirrors of the operator and checked by their keys, so nothing has to be installed on the machine.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from requirements.installer.progress import Step

DEBIAN_PACKAGE = "python3-pip-whl"
DEBIAN_WHEELS = Path("usr/share/python-wheels")
CA_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@dataclass(frozen=True)
class Pip:
    """A pip that this Python can run; `wheel` is a pip that is not installed."""

    wheel: Path | None = None

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]

    def environment(self) -> dict[str, str]:
        env = {**os.environ, "PIP_REQUIRE_VIRTUALENV": "0", "PYTHONNOUSERSITE": "1"}
        return env | ({"PYTHONPATH": str(self.wheel)} if self.wheel else {})


def find(kept: Path, step: Step) -> Pip | None:
    """Return an installed pip, that of `ensurepip`, or one that apt-get downloads to `kept`."""
    if importlib.util.find_spec("pip") is not None:
        return Pip()
    wheel = next(_wheels(kept), None)
    if wheel is None and shutil.which("uv") is None:
        wheel = _from_apt(kept, step)
    return Pip(wheel) if wheel else None


def _wheels(kept: Path) -> Iterator[Path]:
    folders = [Path("/") / DEBIAN_WHEELS, kept]
    if (configured := sysconfig.get_config_var("WHEEL_PKG_DIR")) is not None:
        folders.append(Path(configured))
    if (spec := importlib.util.find_spec("ensurepip")) is not None and spec.origin:
        folders.append(Path(spec.origin).parent / "_bundled")
    for folder in folders:
        yield from sorted(folder.glob("pip-*.whl"))


def _from_apt(kept: Path, step: Step) -> Path | None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return None
    with tempfile.TemporaryDirectory(prefix="moorage-pip-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # As root, apt-get downloads as another user.
        step.say(f"{DEBIAN_PACKAGE} with apt-get")
        if not _download(folder, [], step):
            # Without root, the package lists of the machine cannot be fetched; these are our own.
            own = folder / "state"
            (own / "lists" / "partial").mkdir(parents=True)
            (own / "cache" / "archives" / "partial").mkdir(parents=True)
            options = [f"-oDir::State={own}", f"-oDir::State::lists={own / 'lists'}", f"-oDir::Cache={own / 'cache'}"]
            if step.run(["apt-get", "-q", *options, "update"], env=os.environ).code != 0:
                return None
            if not _download(folder, options, step):
                return None
        package = next(folder.glob(f"{DEBIAN_PACKAGE}_*.deb"))
        if step.run(["dpkg", "-x", str(package), str(folder / "unpacked")], env=os.environ).code != 0:
            return None
        wheel = next((folder / "unpacked" / DEBIAN_WHEELS).glob("pip-*.whl"), None)
        if wheel is None:
            return None
        kept.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, kept / wheel.name))


def _download(folder: Path, options: list[str], step: Step) -> bool:
    argv = ["apt-get", "-q", *options, "download", DEBIAN_PACKAGE]
    return step.run(argv, env=os.environ, cwd=folder).code == 0 and any(folder.glob("*.deb"))


def configuration(pip: Pip) -> dict[str, str]:
    """Return pip's options from its files and variables, such as `index-url`."""
    done = subprocess.run(
        pip.command("config", "list"), env=pip.environment(), capture_output=True, text=True, check=False
    )
    by_rank: list[tuple[int, str, str]] = []
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in _SECTIONS:
            by_rank.append((_SECTIONS.index(section), option, str(ast.literal_eval(value))))
    return {option: value for _, option, value in sorted(by_rank)}


_SECTIONS = ("global", "install", ":env:")  # the later overrides


def ca_bundle() -> str | None:
    """Return the CA certificates of this machine, with the private ones that an administrator added."""
    candidates = (os.environ.get("SSL_CERT_FILE", ""), *CA_BUNDLES)
    return next((path for path in candidates if path and os.path.isfile(path)), None)
