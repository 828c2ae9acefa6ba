"""Downloads of database software: all packages of a release, verified and unpacked."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime import packages
from moorage.runtime.database_servers.ports import ServerFailed, Software
from moorage.runtime.database_servers.software import system
from moorage.runtime.database_servers.software.libraries import CannotRun
from moorage.runtime.database_servers.software.releases import Release
from moorage.runtime.packages import PackageFailed

Say = Callable[[str], None]


def fetch(release: Release, folder: Path, *, say: Say, extra_ca: str = "", machine: str = platform.machine()) -> None:
    """Download and unpack all packages of a release; raises ServerFailed."""
    downloads = folder / ".downloads"
    downloads.mkdir(mode=0o700)
    specs = [packages.spec(package, machine) for package in release.packages]
    say(f"fetching {release.product} {release.version}: {', '.join(specs)}")
    try:
        with ThreadPoolExecutor(len(release.packages)) as pool:
            files = list(
                pool.map(lambda each: packages.download(each, downloads / each.to, machine, extra_ca), release.packages)
            )
        for package, file in zip(release.packages, files, strict=True):
            packages.check(package, file, machine)
            packages.unpack(package, file, folder / package.to)
    except PackageFailed as error:
        raise ServerFailed(str(error)) from error
    folders.remove(downloads)


def check_programs(software: Software) -> None:
    """Run downloaded programs once: they may be for another machine or lack a library. Raises CannotRun."""
    server, tools = Path(software.home) / software.program, Path(software.tools)
    for program in (server, tools / "pg_dump", tools / "pg_restore", tools / "psql"):
        try:
            done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
            output = done.stdout + done.stderr
        except (OSError, subprocess.TimeoutExpired) as error:
            output = str(error)
        if system.version_of(output) != software.version:
            raise CannotRun(f"{program.name} of {software.name}", output)
