"""Parses image references such as `name:tag`, with the rules of Docker."""

from __future__ import annotations

import re

from moorage.core.kit.records import dataclass

HUB = "docker.io"
MAX_NAME = 512
MAX_REPOSITORY = 255
LATEST = "latest"
_HUB_NAMES = frozenset({HUB, "index.docker.io", "registry-1.docker.io"})
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]{{2,39}}\])(?::([0-9]{{1,5}}))?")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class PullFailed(Exception):
    """An image cannot be pulled; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An image at a registry. A digest is permanent; a tag can move to another image."""

    registry: str  # host with optional port; `docker.io` for Docker Hub
    repository: str
    tag: str | None  # None for a reference with only a digest
    digest: str | None

    @property
    def wanted(self) -> str:
        """The digest or tag to request; the digest wins."""
        return self.digest or self.tag or LATEST

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def parse(text: str, default_registry: str = HUB) -> Reference:
    """Parse an image reference; raises ValueError with a message for the user."""
    if not text or len(text) > MAX_NAME:
        raise ValueError(f"the name of an image has 1 to {MAX_NAME} characters")
    if "://" in text:
        raise ValueError("the name of an image has no http:// or https:// before it")
    name, digest = _without_digest(text)
    name, tag = _without_tag(name)
    registry, repository = _split(name, default_registry)
    _check_registry(registry)
    _check_repository(repository)
    return Reference(registry, repository, tag or (None if digest else LATEST), digest)


def _without_digest(text: str) -> tuple[str, str | None]:
    name, at, digest = text.partition("@")
    if at and not is_digest(digest):
        raise ValueError("the digest of an image is sha256: and 64 hexadecimal digits")
    return name, digest if at else None


def _without_tag(text: str) -> tuple[str, str | None]:
    """Split off the tag; a colon before the last slash belongs to the registry's port."""
    name, colon, tag = text.rpartition(":")
    if not colon or "/" in tag:
        return text, None
    if not _TAG.fullmatch(tag):
        raise ValueError("the tag of an image has 1 to 128 letters, digits, dots, dashes and underscores")
    return name, tag


def _split(name: str, default_registry: str) -> tuple[str, str]:
    """Split into registry and repository; `library/` is the default prefix."""
    first, slash, rest = name.partition("/")
    if not slash or not _is_registry(first):
        return default_registry, name if slash else f"library/{name}"
    if first.lower() not in _HUB_NAMES:
        return first.lower(), rest
    return HUB, rest if "/" in rest else f"library/{rest}"


def _is_registry(part: str) -> bool:
    return "." in part or ":" in part or part == "localhost"


def _check_registry(registry: str) -> None:
    match = _REGISTRY.fullmatch(registry)
    if match is None or (match[1] is not None and not 0 < int(match[1]) < 2**16):
        raise ValueError(f"{registry!r} is not the address of a registry")


def _check_repository(repository: str) -> None:
    if len(repository) > MAX_REPOSITORY or not _REPOSITORY.fullmatch(repository):
        raise ValueError(
            "an image is named like 'name:tag' or 'registry.example.com/team/name:tag', in lower case: "
            f"letters and digits with single dots, dashes and underscores between them; {repository!r} is not"
        )
