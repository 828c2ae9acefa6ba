"""Imports without optional dependencies."""

from __future__ import annotations

import importlib
import sys

import pytest

from moorage.core.kit.imports import hidden


def test_a_hidden_module_cannot_be_imported_within_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)

    with hidden("colorsys"), pytest.raises(ImportError):
        importlib.import_module("colorsys")

    assert importlib.import_module("colorsys").__name__ == "colorsys"
