"""Description of a writable image root, and the id ranges of workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from moorage.core.kit.records import dataclass

IDS = 65_536  # ids inside: 0 to 65,535
FIRST_RANGE = 1_000_000_000  # above the ids of accounts, of functions, apps and cronjobs, and of /etc/subuid
RANGES = 50_000  # The last one ends below 2**32.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of images that set none
_KINDS = ("app", "cronjob")


def first_id(kind: Literal["app", "cronjob"], number: int) -> int:
    """Return the first host id of a workload's range, which is root inside.

    Apps have the even ranges and cronjobs the odd ones, in the order of their numbers. A range is used again after
    25,000 workloads of a kind: the file systems of two sandboxes are separate even if their ids are the same.
    """
    return FIRST_RANGE + IDS * ((2 * number + _KINDS.index(kind)) % RANGES)


@dataclass(frozen=True, slots=True)
class ImageRoot:
    """Folders of an image, the folder of changes, and the user of the program.

    On the disk the files have the ids of the image (as root), or all belong to the platform's user.
    """

    lowers: list[str]  # folders with the image's files, lowest first; whiteouts as overlay mounts have them
    upper: str = ""  # folder on disk for the changes, in its sub-folder CHANGES; "" to keep changes in memory
    size_mb: int = 256  # limit of changes in memory; they count as memory of the sandbox
    first_id: int = 0  # of the range of ids, if the platform runs as root
    user: str = ""  # USER of the image: "name", "id", "name:group" or "id:id"; "" for root
    hostname: str = "app"
    hosts: dict[str, str] = field(default_factory=dict)  # additional lines of /etc/hosts: name -> address
    maps_ids: bool = True  # as root: False to use copies with other owners, as kernels without id-mapped mounts need


CHANGES = "files"  # in `ImageRoot.upper`: the changed files, with whiteouts as overlay mounts have them
OVERLAY_WORK = "work"  # in `ImageRoot.upper`: used by the kernel


def read(document: Mapping[str, Any]) -> ImageRoot:
    """Return the root that `dataclasses.asdict` made a document of."""
    return ImageRoot(**document)
