"""Error messages of failed calls."""

from __future__ import annotations

from typing import Any

from moorage.runtime.edge.calls.function import AnyFunction


def timeout_message(function: AnyFunction) -> str:
    return f"the function ran past its {function.route.timeout_ms} ms timeout"


def load_message(function: AnyFunction) -> str:
    return f"{timeout_message(function)} while its code was loaded"


def waited_message(function: AnyFunction) -> str:
    """Return the message of a call that timed out before it was sent."""
    if function.instances and not any(each.is_loaded for each in function.instances):
        return load_message(function)
    return f"the call waited {function.route.timeout_ms} ms, its whole timeout, for its turn"


def reason(report: dict[str, Any]) -> str:
    """Return the message for the report of an ended sandbox; {} without report."""
    if not report:
        return "the function's process ended before it answered"
    if report["oom"] or "heap out of memory" in report["err"]:
        return f"the function used more than its {report['memory_mb']} MB of memory"
    code = report["code"]
    if code is None:
        return "the function's process ended before it answered"
    if code < 0:
        return f"the function's process was ended by signal {-code} before it answered"
    return f"the function's process ended (exit code {code}) before it answered"
