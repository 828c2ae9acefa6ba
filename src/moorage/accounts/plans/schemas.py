"""Fields of requests that name a tier; shared by products."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from moorage.accounts.plans import tiers


def _check_key(key: str) -> str:
    if tiers.find_tier(key) is None:
        raise ValueError(f"is not a tier; there is {', '.join(each.key for each in tiers.CATALOG)}")
    return key


TierKey = Annotated[str, Field(description="A tier's key."), AfterValidator(_check_key)]
