"""Define the names of the standard library that Python 3.10 and 3.11 removed, for packages that still use them.

A file `*.pth` of the virtual environment imports this module at each start of its Python. It runs in tenants' apps, so
it uses the standard library only.
"""

import collections
import collections.abc
import inspect
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class ArgSpec(NamedTuple):
    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def getargspec(function: Any) -> ArgSpec:
    spec = inspect.getfullargspec(function)
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def formatargspec(
    args: list[str],
    varargs: str | None = None,
    varkw: str | None = None,
    defaults: tuple[Any, ...] | None = None,
    *_: Any,
    formatvalue: Callable[[Any], str] = lambda value: f"={value!r}",
    **__: Any,
) -> str:
    """Return a signature as text; annotations and keyword-only arguments are left out."""
    first = len(args) - len(defaults or ())
    parts = [name + (formatvalue((defaults or ())[at - first]) if at >= first else "") for at, name in enumerate(args)]
    parts += [f"*{varargs}"] if varargs else []
    parts += [f"**{varkw}"] if varkw else []
    return f"({', '.join(parts)})"


def define() -> None:
    """Define the missing names; existing names keep their values."""
    for name in collections.abc.__all__:
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    for module, name, value in (
        (inspect, "ArgSpec", ArgSpec),
        (inspect, "getargspec", getargspec),
        (inspect, "formatargspec", formatargspec),
        (time, "clock", time.perf_counter),
    ):
        if not hasattr(module, name):
            setattr(module, name, value)


define()
