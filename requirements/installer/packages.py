"""Install locked packages into an environment: with uv, which downloads in parallel, else with pip."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from requirements.installer import failures
from requirements.installer.failures import SetupFailed
from requirements.installer.pip import Pip, ca_bundle, configuration
from requirements.installer.progress import Step

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "requirements"
UV_LOCK = LOCKS / "uv.txt"
# uv's variable for each option of pip. An operator's own variables of uv win.
_UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "proxy": "ALL_PROXY",
    "cert": "SSL_CERT_FILE",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}


@dataclass(frozen=True)
class Installer:
    venv: Path
    pip: Pip | None
    uv: Path | None
    options: dict[str, str]  # of pip

    def install(self, locks: list[str], step: Step, *, into: Path | None = None) -> None:
        """Install the packages of lock files; refuses files with other hashes."""
        files = [argument for name in locks for argument in ("-r", str(LOCKS / f"{name}.txt"))]
        self._run(["--require-hashes", "--no-deps", *files], step, into or self.venv)

    def install_checkout(self, step: Step) -> None:
        self._run(["--no-deps", "--no-build-isolation", "--editable", str(ROOT)], step, self.venv)

    def _run(self, arguments: list[str], step: Step, venv: Path) -> None:
        python = str(venv / "bin" / "python")
        output = ""
        if self.uv is not None:
            argv = [str(self.uv), "pip", "install", "--python", python, *arguments]
            done = step.run(argv, env=self._uv_environment(), cwd=ROOT)
            if done.code == 0:
                return
            output = done.output
            if self.pip is None or failures.is_hopeless(output):
                raise SetupFailed(failures.explain("uv", output, self.venv))
            step.say("uv failed, trying pip")
        self._run_pip(python, arguments, step)

    def _run_pip(self, python: str, arguments: list[str], step: Step) -> None:
        if self.pip is None:
            raise SetupFailed(failures.without_pip(f"Python {platform.python_version()}"))
        install = ["--python", python, "install", "--no-compile", "--progress-bar=off", *arguments]
        done = step.run(self.pip.command(*install), env=self._pip_environment(), cwd=ROOT)
        if done.code != 0 and failures.is_damaged(done.output):
            # pip keeps a damaged download in its cache for good.
            step.say("a damaged file is downloaded again")
            done = step.run(self.pip.command("--no-cache-dir", *install), env=self._pip_environment(), cwd=ROOT)
        if done.code != 0:
            raise SetupFailed(failures.explain("pip", done.output, self.venv))

    def _pip_environment(self) -> dict[str, str]:
        assert self.pip is not None
        bundle = None if "cert" in self.options else ca_bundle()
        return self.pip.environment() | ({"PIP_CERT": bundle} if bundle else {})

    def _uv_environment(self) -> dict[str, str]:
        return uv_environment(self.options, self.venv)


def uv_environment(options: dict[str, str], venv: Path) -> dict[str, str]:
    """Return the environment of uv: pip's package index, proxy and certificates apply."""
    own = {"UV_SYSTEM_CERTS": "1", "UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never"}
    for option, variable in _UV_VARIABLES.items():
        if value := options.get(option):
            own[variable] = ",".join(value.split()) if variable == "UV_FIND_LINKS" else " ".join(value.split())
    if options.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        own["UV_NO_INDEX"] = "1"
    if "UV_CACHE_DIR" not in os.environ and not _has_cache_folder():
        own["UV_CACHE_DIR"] = str(venv / "cache")
    return own | os.environ


def _has_cache_folder() -> bool:
    """Tell whether uv can write to its cache in the home folder, which may be missing or read-only."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return os.access(next(path for path in (cache, *cache.parents) if path.exists()), os.W_OK | os.X_OK)


def uv_version() -> str:
    match = re.match(r"uv==([\w.]+)", UV_LOCK.read_text())
    assert match is not None, f"{UV_LOCK} does not begin with uv"
    return match[1]


def ensure_uv(venv: Path, pip: Pip | None, options: dict[str, str], step: Step) -> Path | None:
    """Return uv, downloaded with pip if needed; builds of apps use the same one. None: use pip."""
    target = venv / "share" / "moorage" / "toolchains" / f"uv-{uv_version()}"
    if (target / "uv").is_file():
        return target / "uv"
    if pip is None:
        found = shutil.which("uv")
        return Path(found) if found else None
    with tempfile.TemporaryDirectory(prefix="uv-", dir=venv) as name:
        folder = Path(name)
        step.say(f"downloading uv {uv_version()}")
        # With retries, pip says that it does not reach the index; without, a missing network looks like a missing uv.
        argv = pip.command("download", "--quiet", "--retries=2", "--progress-bar=off", "--require-hashes", "--no-deps",
                           "--only-binary=:all:", "-r", str(UV_LOCK), "--dest", str(folder))  # fmt: skip
        bundle = None if "cert" in options else ca_bundle()
        done = step.run(argv, env=pip.environment() | ({"PIP_CERT": bundle} if bundle else {}))
        if done.code != 0 and failures.is_hopeless(done.output):
            raise SetupFailed(failures.explain("downloading uv", done.output, venv))
        wheel = next(folder.glob("uv-*.whl"), None)
        if done.code != 0 or wheel is None:
            step.say("there is no uv for this machine; pip is used")
            return None
        _unpack(wheel, folder / "unpacked")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        (folder / "unpacked").rename(target)
    return target / "uv"


def _unpack(wheel: Path, target: Path) -> None:
    """Unpack the programs of a wheel that pip has checked."""
    target.mkdir(mode=0o755)
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            if re.fullmatch(r"uv-[\w.]+\.data/scripts/uvx?", info.filename):
                file = target / Path(info.filename).name
                file.write_bytes(archive.read(info))
                file.chmod(0o755)


def make_installer(venv: Path, pip: Pip | None, step: Step) -> Installer:
    options = configuration(pip) if pip is not None else {}
    return Installer(venv, pip, ensure_uv(venv, pip, options, step), options)


def count(locks: list[str]) -> int:
    """Return the number of packages in lock files."""
    return sum(
        len(re.findall(r"^[\w.-]+(?:\[[\w,]+\])?==", (LOCKS / f"{name}.txt").read_text(), re.M)) for name in locks
    )
