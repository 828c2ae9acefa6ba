"""Define the names of the standard library that Python 3.10 and 3.11 removed, for packages that still use them.

A file `*.pth` of the virtual environment imports this module at each start of its Python. It runs in tenants' apps, so
it uses the standard library only.
"""

import collections
import collections.abc
import inspect
import time
from typing import Any, NamedTuple


class ArgSpec(NamedTuple):
    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def getargspec(function: Any) -> ArgSpec:
    spec = inspect.getfullargspec(function)
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def define() -> None:
    """Define the missing names; those that this Python has stay as they are."""
    for name in collections.abc.__all__:
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    for module, name, value in (
        (inspect, "ArgSpec", ArgSpec),
        (inspect, "getargspec", getargspec),
        (time, "clock", time.perf_counter),
    ):
        if not hasattr(module, name):
            setattr(module, name, value)


define()
