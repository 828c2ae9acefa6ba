"""Imports that cost less: modules executed on first use, and libraries without their optional dependencies."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

# Set before the execution of a module; the import system reads these, and sets the modules of a package.
_KNOWN_BEFORE = frozenset(
    ("__name__", "__spec__", "__loader__", "__package__", "__file__", "__cached__", "__path__", "__class__", "__dict__")
)


def execute_on_first_use(*names: str) -> None:
    """Let `from package import module` execute the module at its first attribute access, in this process.

    Applies to the named modules, and with a name that ends with a dot to all modules in that package, but not to
    packages. `from package.module import name` executes the module at once, as without this.
    """
    sys.meta_path.insert(0, _LazyFinder(names))


class _LazyFinder:
    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._packages = tuple(name for name in names if name.endswith("."))

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        is_named = name in self._names
        if not is_named and not name.startswith(self._packages):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None and (is_named or spec.submodule_search_locations is None):
            spec.loader = _LazyLoader(spec.loader)  # type: ignore[assignment]
        return spec


class _LazyLoader:
    """Loads a module without its execution, for which it keeps the loader and a lock."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.lock = threading.RLock()
        self.is_executing = False

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self.loader
        module.__spec__.loader_state = self
        module.__class__ = _LazyModule


class _LazyModule(ModuleType):
    """A module until it was executed, which its first attribute access does."""

    def __getattribute__(self, name: str) -> Any:
        if name not in _KNOWN_BEFORE:
            _execute(self)
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _KNOWN_BEFORE and not isinstance(value, ModuleType):
            _execute(self)
        ModuleType.__setattr__(self, name, value)


def _execute(module: ModuleType) -> None:
    """Execute a module once. Other threads wait; the thread that executes it sees the names defined so far."""
    spec: ModuleSpec = ModuleType.__getattribute__(module, "__spec__")
    lazy: _LazyLoader = spec.loader_state
    with lazy.lock:
        if lazy.is_executing or type(module) is not _LazyModule:
            return
        lazy.is_executing = True
        try:
            lazy.loader.exec_module(module)
        finally:
            lazy.is_executing = False
        module.__class__ = ModuleType  # type: ignore[assignment]


@contextlib.contextmanager
def hidden(name: str, **names: Any) -> Iterator[None]:
    """Let `import name` raise ImportError within the block, unless it is already imported.

    With `names`, `from name import …` returns their values instead.
    """
    if name in sys.modules:
        yield
        return
    replacement = ModuleType(name) if names else None
    if replacement is not None:
        replacement.__dict__.update(names)
    sys.modules[name] = replacement  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
