"""Loads a Python function: module, libraries, parameters of the handler.

Part of the Python worker: it imports only the standard library and runs on Python 3.9 and later.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from moorage.runtime.workers.python.answers import Json, Refused


def parameters_of(main: Callable[..., Json]) -> int:
    """Return how many of (params, context) a handler takes.

    An optional second parameter counts only if it is named `context`.
    """
    if type(main) is types.FunctionType and not hasattr(main, "__wrapped__"):
        return _plain_parameters(main)
    try:
        parameters = list(inspect.signature(main).parameters.values())
    except (TypeError, ValueError):
        return 1
    plain = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if not plain:
        return 1 if any(one.kind == one.VAR_POSITIONAL for one in parameters) else 0
    return 2 if len(plain) > 1 and (plain[1].default is plain[1].empty or plain[1].name == "context") else 1


def _plain_parameters(main: types.FunctionType) -> int:
    """`parameters_of` for plain functions, without the cost of `inspect.signature`."""
    code = main.__code__
    count = code.co_argcount
    if count == 0:
        return 1 if code.co_flags & inspect.CO_VARARGS else 0
    if count == 1:
        return 1
    has_default = len(main.__defaults__ or ()) > count - 2
    return 2 if not has_default or code.co_varnames[1] == "context" else 1


def library_folders(code: str) -> list[str]:
    """Return the folder of the code, then its library folders."""
    folders = [os.path.join(code, "packages")]
    for root in ("virtualenv/lib", ".venv/lib", "lib"):
        with contextlib.suppress(OSError):
            names = sorted(name for name in os.listdir(os.path.join(code, root)) if name.startswith("python"))
            folders += [os.path.join(code, root, name, "site-packages") for name in names]
    return [code, *(folder for folder in folders if os.path.isdir(folder))]


def load_module(path: str, names: tuple[str, ...]) -> Any:
    spec = importlib.util.spec_from_file_location(names[0], path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise Refused(f"{os.path.basename(path)} is not a Python file of the function")
    module = importlib.util.module_from_spec(spec)
    sys.modules.update(dict.fromkeys(names, module))
    spec.loader.exec_module(module)
    return module


def find_main(path: str) -> Callable[..., Json]:
    """Import the function's file as both `main` and `__main__`; return its `main`."""
    main = getattr(load_module(path, ("main", "__main__")), "main", None)
    if not callable(main):
        raise Refused(f"{os.path.basename(path)} does not define main")
    return main  # type: ignore[no-any-return]
