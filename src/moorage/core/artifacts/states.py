"""The states of an artifact and their transitions."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class ArtifactStatus(StrEnum):
    PRESENT = "present"  # its object was stored and verified
    DAMAGED = "damaged"  # its object is missing or has other bytes; the next put of the same content replaces it
    DELETING = "deleting"  # it is unreferenced, and its object is being deleted


S = ArtifactStatus
ARTIFACT = Machine(
    "artifact",
    {
        S.PRESENT: {S.DAMAGED, S.DELETING},
        S.DAMAGED: {S.PRESENT, S.DELETING},
        S.DELETING: {S.PRESENT},
    },
)
