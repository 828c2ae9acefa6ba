"""Results of a scan."""

from __future__ import annotations

from moorage.core.kit.records import dataclass
from moorage.errors import Internal


@dataclass(frozen=True, slots=True)
class Finding:
    """A file that must not be published."""

    file: str  # path relative to the folder, with `/` as separator
    rule: str  # the rule's id, such as `executable-elf`
    why: str  # the predicate of a sentence about the file: "is a Linux program"


class ScanUnavailable(Internal):
    """The scan failed on the platform's side, so the upload must not be stored."""
