"""Why a call failed, in words that a user understands."""

from __future__ import annotations

from typing import Any

from moorage.runtime.edge.calls.function import Function


def timeout_message(function: Function) -> str:
    return f"the function ran past its {function.route.timeout_ms} ms timeout"


def load_message(function: Function) -> str:
    return f"{timeout_message(function)} while its code was loaded"


def waited_message(function: Function) -> str:
    """Say what a call waited for in vain: its turn, or an instance whose code does not get done loading."""
    if function.instances and not any(each.is_loaded for each in function.instances):
        return load_message(function)
    return f"the call waited {function.route.timeout_ms} ms, its whole timeout, for its turn"


def reason(ended: dict[str, Any]) -> str:
    """Say why a cell ended."""
    if not ended:
        return "the function's process ended before it answered"
    if ended["oom"] or "heap out of memory" in ended["err"]:
        return f"the function used more than its {ended['memory_mb']} MB of memory"
    code = ended["code"]
    if code is None:
        return "the function's process ended before it answered"
    if code < 0:
        return f"the function's process was ended by signal {-code} before it answered"
    return f"the function's process ended (exit code {code}) before it answered"
