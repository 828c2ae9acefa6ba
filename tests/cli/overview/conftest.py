"""The app and the site of the tests of resources."""

from __future__ import annotations

from tests.cli.resources.conftest import app, site

__all__ = ["app", "site"]
