"""All pages of the reference, and the application they are generated from."""

from __future__ import annotations

import functools
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from moorage import app as application
from moorage.cli.manifest import schema
from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.env import Env
from moorage.core.kit.clock import SystemClock
from moorage.core.kit.crypto import KeyRing
from moorage.core.telemetry import Telemetry
from moorage.docs import api_page, cli_page, detectors_page, errors_page, settings_page, states_page, threat_page
from moorage.settings import Settings

NOTE = "<!-- Written from the code by `make docs`. Edits to this file are lost. -->"


def pages() -> dict[str, str]:
    """Return every page by file name; deterministic for the same code."""
    document = openapi_document()
    texts = {
        "settings.md": settings_page.page(),
        "api.md": api_page.page(document),
        "cli.md": cli_page.page(),
        "detectors.md": detectors_page.page(),
        "errors.md": errors_page.page(document),
        "states.md": states_page.page(),
        "threat-model.md": threat_page.page(),
    }
    return {name: f"{NOTE}\n\n{text}" for name, text in texts.items()} | {"moorage.schema.json": schema.text()}


def write(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
        written.append(folder / name)
    return written


@functools.cache
def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of the application, built on an empty store. Callers do not change it."""
    with tempfile.TemporaryDirectory(prefix="moorage-docs-") as folder:
        path = Path(folder) / "moorage.db"
        sqlite3.connect(path).close()  # The routes are described without any of its tables.
        # Constructed, not loaded: environment variables of this machine must not appear in the documentation.
        settings = Settings.model_construct(data=Path(folder))
        db = SqliteDatabase(path, Env.make(settings, SystemClock(), KeyRing((bytes(range(32)),)), bytes(range(32))))
        try:
            return application.build(db, Telemetry(quiet=True)).describe()
        finally:
            db.close()
