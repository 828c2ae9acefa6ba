"""Signed references that tie a checkout to an organization.

The payer chooses the reference in the address of a Payment Link. Only admins see the signed one of their organization,
so a payer cannot name the organization of someone else.
"""

from __future__ import annotations

import hmac

from moorage.core.env import Env
from moorage.core.kit.crypto import derive, sign
from moorage.core.kit.ids import parse_id

SIGNATURE_CHARS = 22  # 132 bits


def make(env: Env, org_id: int) -> str:
    """Return the reference of an organization: its id and a signature."""
    signature = sign(derive(env.session_key, "billing reference"), str(org_id).encode())
    return f"{org_id}-{signature[:SIGNATURE_CHARS]}"


def read(env: Env, reference: str) -> int | None:
    """Return the organization of a reference; None without a valid signature."""
    org_id = parse_id(reference.partition("-")[0])
    if org_id is None or not reference.isascii() or not hmac.compare_digest(make(env, org_id), reference):
        return None
    return org_id
