"""Defaults of the client, for programs that do not need the rest of it."""

from __future__ import annotations

DEFAULT_URL = "http://localhost:8080"
