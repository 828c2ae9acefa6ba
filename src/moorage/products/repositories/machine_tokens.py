"""Tokens with which a worker reads a repository of another machine.

Each reads one repository for some minutes. All machines can sign and check them, because they have the same session
secret.
"""

from __future__ import annotations

from typing import NamedTuple

from moorage.core.env import Env
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.crypto import derive, sign, verify
from moorage.products.repositories.tables import Repository

PREFIX = "mgit_"
VALID_MS = 15 * MINUTE_MS


class Grant(NamedTuple):
    """A repository that a worker of another machine may read."""

    org_id: int
    repository_id: int


def make(env: Env, repository: Repository) -> str:
    text = f"{env.clock.now() + VALID_MS}.{repository.org_id}.{repository.id}"
    return f"{PREFIX}{text}.{sign(_key(env), text.encode())}"


def read(env: Env, token: str) -> Grant | None:
    """Return the repository of a token; None if it is not valid or has expired."""
    text, _, signature = token.removeprefix(PREFIX).rpartition(".")
    if not text or not verify(_key(env), text.encode(), signature):
        return None
    expires_at, org_id, repository_id = map(int, text.split("."))
    return Grant(org_id, repository_id) if env.clock.now() < expires_at else None


def _key(env: Env) -> bytes:
    return derive(env.session_key, "git between machines")
