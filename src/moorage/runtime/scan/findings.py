"""What a scan comes to."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.errors import Internal


@dataclass(frozen=True, slots=True)
class Finding:
    """A file that may not be published."""

    file: str  # relative to the folder, with `/` between its parts
    rule: str  # the rule's id, such as `executable-elf`
    why: str  # the predicate of a sentence about the file: "is a Linux program"


class ScanUnavailable(Internal):
    """What was uploaded could not be scanned, so it must not be stored. It is nobody's fault but ours."""
