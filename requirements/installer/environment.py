"""The environment of a checkout: its creation, its lock, and the groups of packages in it.

.venv/.runtime, .dev, .bench, .audit, .engines   marks of make: the part is installed
.venv/.unfinished    packages are being installed; with it, a killed setup is repeated from the start
.venv/.setup-lock    locked by the running setup, whose process id is its content
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from requirements.installer import packages, pip
from requirements.installer.failures import SetupFailed, explain
from requirements.installer.packages import LOCKS, ROOT, Installer
from requirements.installer.progress import LINE_INTERVAL_S, Step, Steps

RUNTIME = ["runtime", "build"]
MARKS = (".runtime", ".dev", ".bench", ".audit")
UNFINISHED = ".unfinished"
MORE = {"dev": "lint and tests", "bench": "the benchmarks", "audit": "the audit of dependencies"}


class Environment:
    def __init__(self, venv: Path) -> None:
        self.venv = venv.absolute()
        self.python = self.venv / "bin" / "python"
        self._wheels = self.venv / "share" / "moorage" / "pip"

    def ensure(self, group: str) -> None:
        """Install a group of packages, and the runtime first if it is missing. Safe to repeat."""
        self.venv.mkdir(parents=True, exist_ok=True)
        with self._locked() as has_waited:
            if has_waited and self._is_current(group):
                return
            self._discard_unfinished()
            if group == "runtime" or not self._mark("runtime").exists():
                self._install_runtime()
            if group != "runtime":
                self._install_more(group)

    def _install_runtime(self) -> None:
        steps = Steps(3)
        with steps.step("preparing the environment") as step:
            found = pip.find(self._wheels, step)
            if not self.python.exists():  # An existing one keeps its Python.
                self._create(self.venv, None)
            installer = packages.make_installer(self.venv, found, step)
        (self.venv / UNFINISHED).touch()
        with steps.step(f"installing {packages.count(RUNTIME)} packages") as step:
            if not self.python.exists():
                self._create(self.venv, installer, step)
            installer.install(RUNTIME, step)
        with steps.step("installing Moorage from this checkout") as step:
            installer.install_checkout(step)
        (self.venv / UNFINISHED).unlink()
        self._mark("runtime").touch()
        self._compile()
        print(f"setup: Moorage is installed, after {steps.elapsed_s():.0f} s", flush=True)

    def _install_more(self, group: str) -> None:
        venv = self.venv / "audit" if group == "audit" else self.venv  # Its dependencies are not those of the product.
        with Steps(1).step(f"installing {packages.count([group])} packages for {MORE[group]}") as step:
            installer = packages.make_installer(
                self.venv, pip.find(self.venv / "share" / "moorage" / "pip", step), step
            )
            if venv != self.venv:
                self._create(venv, installer, step)
            else:
                (self.venv / UNFINISHED).touch()
            installer.install([group], step, into=venv)
        (self.venv / UNFINISHED).unlink(missing_ok=True)
        self._mark(group).touch()
        self._compile()

    def _create(self, venv: Path, installer: Installer | None, step: Step | None = None) -> None:
        """Create an environment without pip, which is one of the locked packages."""
        if importlib.util.find_spec("venv") is not None:
            import venv as module

            module.EnvBuilder(symlinks=True, with_pip=False).create(venv)
        elif installer is not None and installer.uv is not None and step is not None:
            argv = [str(installer.uv), "venv", "--allow-existing", "--python", sys.executable, str(venv)]
            done = step.run(argv, env=packages.uv_environment(installer.options, self.venv))
            if done.code != 0:
                raise SetupFailed(explain("uv", done.output, self.venv))
        elif installer is not None:
            raise SetupFailed(
                f"{sys.executable} has no venv module; install it (Debian, Ubuntu: sudo apt-get install python3-venv)"
            )

    def _compile(self) -> None:
        """Start to compile all modules in the background: processes that start meanwhile compile what they need."""
        argv = [
            "nice",
            str(self.python),
            "-m",
            "compileall",
            "-qq",
            "-j",
            "0",
            str(ROOT / "src"),
            str(self.venv / "lib"),
        ]
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def _discard_unfinished(self) -> None:
        """Remove the packages of a setup that was killed; database software and downloads stay."""
        is_broken = (self.venv / "bin").is_dir() and not self.python.exists()  # The system's Python was replaced.
        if not is_broken and not (self.venv / UNFINISHED).exists():
            return
        print("setup: the last setup was interrupted, so packages are installed again; downloads are kept", flush=True)
        for mark in MARKS:
            (self.venv / mark).unlink(missing_ok=True)
        for name in ("lib", "lib64", "bin", "audit", "pyvenv.cfg"):
            path = self.venv / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        (self.venv / UNFINISHED).unlink(missing_ok=True)

    def _mark(self, group: str) -> Path:
        return self.venv / f".{group}"

    def _is_current(self, group: str) -> bool:
        names = RUNTIME if group == "runtime" else [group]
        inputs = [LOCKS / f"{name}.txt" for name in names]
        mark = self._mark(group)
        return mark.exists() and all(mark.stat().st_mtime >= path.stat().st_mtime for path in inputs)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Wait for other setups of this environment; yield whether there was one."""
        handle = os.open(self.venv / ".setup-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            has_waited, started_at = False, time.monotonic()
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    other = os.pread(handle, 20, 0).decode().strip() or "unknown"
                    waited = time.monotonic() - started_at
                    print(f"setup: process {other} sets up the same folder; waiting, {waited:.0f} s", flush=True)
                    has_waited = True
                    time.sleep(LINE_INTERVAL_S)
            os.truncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield has_waited
        finally:
            os.close(handle)
