"""Parses manifests, indexes and configurations of container images.

The documents are untrusted: every field is checked, and any deviation raises BadImage.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.runtime.images.references import PullFailed, is_digest

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
ACCEPTED = (OCI_INDEX, OCI_MANIFEST, DOCKER_LIST, DOCKER_MANIFEST)
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"  # with "+gzip" or "+zstd" where it is compressed
_CONFIGS = frozenset({OCI_CONFIG, "application/vnd.docker.container.image.v1+json"})
_LAYERS = (OCI_LAYER, "application/vnd.docker.image.rootfs.diff.tar")
_PACKINGS = frozenset({"", "+gzip", "+zstd", ".gzip", ".zstd"})
_BASELINES = {"arm64": "v8", "amd64": "v1"}  # variants that every machine of the architecture can run
MAX_LAYERS = 256
MAX_VALUES = 100_000  # of a JSON document
MAX_WORDS = 1_000
MAX_TEXT = 128 * 1024  # characters of one argument, as in Linux (MAX_ARG_STRLEN), and of all arguments together
MAX_PATH = 4_096
MAX_HEALTH_S = 86_400
MAX_HEALTH_RETRIES = 1_000
_BEFORE_VALUES = (b",", b"[", b"{")  # In texts they count too.
DEFAULT_SHELL = ("/bin/sh", "-c")


class TooManyValues(ValueError):
    """A JSON document has more than MAX_VALUES values."""


class BadImage(PullFailed):
    """The document is invalid, or the image cannot run here; has a user message."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Reference to a blob or manifest by content digest."""

    media_type: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    config: Descriptor
    layers: tuple[Descriptor, ...]  # lowest first

    @property
    def packed_bytes(self) -> int:
        return sum(layer.size for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Index:
    """Index of a multi-platform image."""

    entries: tuple[dict[str, Any], ...]

    def choose(self, architecture: str) -> Descriptor:
        """Return the manifest for an architecture, in its baseline variant."""
        fitting = [entry for entry in self.entries if _is_for(entry, architecture)]
        if not fitting:
            raise BadImage(f"the image exists for {self._platforms()}; this machine is linux/{architecture}")
        manifest = _descriptor(fitting[0])
        if manifest.media_type not in (OCI_MANIFEST, DOCKER_MANIFEST):
            raise BadImage(f"the image's index refers to the unsupported media type {manifest.media_type[:80]!r}")
        return manifest

    def _platforms(self) -> str:
        offered = {_platform_text(_platform(entry)) for entry in self.entries}
        return ", ".join(sorted(offered - {"unknown/unknown"})[:10]) or "no machine at all"


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """Command of a HEALTHCHECK, run inside the sandbox of the image; exit code 0 is healthy."""

    argv: tuple[str, ...]
    interval_s: float = 30.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """Start command and environment of an image."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = ""  # verbatim: a name or a number, optionally with a group
    exposed_ports: tuple[int, ...] = ()  # of TCP, in ascending order
    healthcheck: Healthcheck | None = None
    stop_signal: int = 0  # 0 for SIGTERM
    shell: tuple[str, ...] = ()  # of RUN, CMD and HEALTHCHECK in shell form; () for /bin/sh -c
    onbuild: tuple[str, ...] = ()  # instructions for a build that is based on this image
    labels: dict[str, str] = field(default_factory=dict)
    volumes: tuple[str, ...] = ()  # paths, writable as all of the root


def parse_manifest(body: bytes, content_type: str) -> Manifest | Index:
    """Parse the document of a tag or digest; raises BadImage."""
    document = read_object(body, "manifest")
    kind = _text(document.get("mediaType") or content_type, "media type").partition(";")[0].strip()
    if document.get("schemaVersion") == 1 or kind.startswith("application/vnd.docker.distribution.manifest.v1"):
        raise BadImage("the image has the old format of Docker (schema 1): push it again with a current tool")
    if ("manifests" in document) == ("layers" in document):
        raise BadImage("the manifest must have either layers (one image) or manifests (an index of images)")
    if "manifests" in document:
        return Index(tuple(_objects(document["manifests"], "manifests")))
    return _manifest(document)


def _manifest(document: dict[str, Any]) -> Manifest:
    config = _descriptor(_object(document.get("config"), "config"))
    layers = tuple(_descriptor(layer) for layer in _objects(document["layers"], "layers"))
    if config.media_type not in _CONFIGS:
        raise BadImage(f"this is no container image: its configuration has the media type {config.media_type[:80]!r}")
    if len(layers) > MAX_LAYERS:
        raise BadImage(f"the image has {len(layers)} layers; {MAX_LAYERS} are allowed")
    for layer in layers:
        if not any(layer.media_type == start + packing for start in _LAYERS for packing in _PACKINGS):
            raise BadImage(f"the image has a layer of the unsupported media type {layer.media_type[:80]!r}")
    return Manifest(config, layers)


def parse_config(body: bytes, architecture: str) -> ImageConfig:
    """Parse an image's configuration; raises BadImage, also for another architecture."""
    document = read_object(body, "configuration")
    platform = {"os": document.get("os") or "linux", "architecture": document.get("architecture") or architecture}
    if platform != {"os": "linux", "architecture": architecture}:
        raise BadImage(f"the image is for {_platform_text(platform)}; this machine is linux/{architecture}")
    config = _object(document.get("config") or {}, "config")
    return ImageConfig(
        entrypoint=_words(config.get("Entrypoint"), "Entrypoint"),
        cmd=_words(config.get("Cmd"), "Cmd"),
        env=_environment(_words(config.get("Env"), "Env")),
        workdir=_workdir(config.get("WorkingDir")),
        user=_text(config.get("User") or "", "User"),
        exposed_ports=_ports(config.get("ExposedPorts")),
        healthcheck=_healthcheck(config.get("Healthcheck"), _words(config.get("Shell"), "Shell")),
        stop_signal=_stop_signal(config.get("StopSignal")),
        shell=_words(config.get("Shell"), "Shell"),
        onbuild=_words(config.get("OnBuild"), "OnBuild"),
        labels=_labels(config.get("Labels")),
        volumes=tuple(sorted(_text(path, "Volumes") for path in _object(config.get("Volumes") or {}, "Volumes"))),
    )


def read_config(stored: Mapping[str, Any]) -> ImageConfig:
    """Return the configuration that `dataclasses.asdict` made a document of, perhaps in an earlier release."""
    known = {each.name for each in fields(ImageConfig)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored.items() if name in known
    }
    if health := values.get("healthcheck"):
        values["healthcheck"] = Healthcheck(**{**health, "argv": tuple(health["argv"])})
    return ImageConfig(**values)


def _ports(value: object) -> tuple[int, ...]:
    """Return the TCP ports of `{"80/tcp": {}, "53/udp": {}, "8000": {}}`."""
    ports = set()
    for name in _object(value or {}, "ExposedPorts"):
        number, _, protocol = _text(name, "ExposedPorts").partition("/")
        if not (number.isascii() and number.isdigit() and len(number) <= 5 and 0 < int(number) < 65_536):
            raise BadImage(f"the image's ExposedPorts has the invalid port {name[:40]!r}")
        if protocol in ("", "tcp"):
            ports.add(int(number))
    return tuple(sorted(ports))


def _stop_signal(value: object) -> int:
    """Return the number of `SIGQUIT`, `QUIT` or `3`; raises BadImage for others."""
    text = _text(value or "", "StopSignal").strip().upper()
    if not text:
        return 0
    if text.isascii() and text.isdigit() and len(text) <= 2 and 0 < int(text) <= signal.SIGRTMAX:
        return int(text)
    name, plus, offset = text.removeprefix("SIG").partition("+")
    try:
        number = int(signal.Signals[f"SIG{name}"]) + (int(offset) if plus else 0)
    except (KeyError, ValueError):
        number = 0
    if not 0 < number <= signal.SIGRTMAX:
        raise BadImage(f"the image's StopSignal {text[:40]!r} is no signal")
    return number


def _healthcheck(value: object, shell: tuple[str, ...]) -> Healthcheck | None:
    """Return the check of `["CMD", ...]` or `["CMD-SHELL", text]`; None for `["NONE"]`."""
    document = _object(value or {}, "Healthcheck")
    kind, *words = _words(document.get("Test"), "Healthcheck") or ("NONE",)
    if kind == "NONE" or not words:
        return None
    if kind not in ("CMD", "CMD-SHELL"):
        raise BadImage(f"the image's Healthcheck has the unknown kind {kind[:40]!r}")
    argv = tuple(words) if kind == "CMD" else (*(shell or DEFAULT_SHELL), words[0])
    usual = Healthcheck(argv)
    return Healthcheck(
        argv,
        interval_s=_seconds(document.get("Interval"), usual.interval_s),
        timeout_s=_seconds(document.get("Timeout"), usual.timeout_s),
        start_period_s=_seconds(document.get("StartPeriod"), usual.start_period_s),
        retries=_count(document.get("Retries"), usual.retries),
    )


def _seconds(value: object, default: float) -> float:
    """Convert nanoseconds, of which 0 means the default."""
    if value is None or value == 0:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_HEALTH_S * 10**9:
        raise BadImage("the image's Healthcheck has an invalid time")
    return value / 1e9


def _count(value: object, default: int) -> int:
    if value is None or value == 0:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_HEALTH_RETRIES:
        raise BadImage("the image's Healthcheck has an invalid number of retries")
    return value


def _labels(value: object) -> dict[str, str]:
    return {_text(key, "Labels"): _text(text, "Labels") for key, text in _object(value or {}, "Labels").items()}


def _environment(pairs: Sequence[str]) -> dict[str, str]:
    split = (pair.partition("=") for pair in pairs)
    return {name: value for name, _, value in split if name}


def _workdir(value: object) -> str:
    """Return the working directory; a relative one starts at the root, as in Docker."""
    path = "/" + _text(value or "", "WorkingDir").lstrip("/")
    if len(path) > MAX_PATH or ".." in path.split("/"):
        raise BadImage("the image's WorkingDir is no usable path")
    return path


def _words(value: object, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_WORDS:
        raise BadImage(f"the image's {name} is not a list of at most {MAX_WORDS:,} words")
    words = tuple(_text(word, name) for word in value)
    if sum(len(word) for word in words) > MAX_TEXT:
        raise BadImage(f"the image's {name} is too long")
    return words


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or "\0" in value or len(value) > MAX_TEXT or not _is_encodable(value):
        raise BadImage(f"the image's {name} is not a text")
    return value


def _is_encodable(text: str) -> bool:
    """Whether a text has no lone surrogates, which JSON can express but UTF-8 cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _platform(entry: dict[str, Any]) -> dict[str, Any]:
    platform = entry.get("platform")
    return platform if isinstance(platform, dict) else {}


def _platform_text(platform: dict[str, Any]) -> str:
    parts = (platform.get("os"), platform.get("architecture"), platform.get("variant"))
    return "/".join(part[:20] for part in parts if isinstance(part, str) and part) or "unknown/unknown"


def _is_for(entry: dict[str, Any], architecture: str) -> bool:
    platform = _platform(entry)
    has_variant = bool(platform.get("variant")) and platform["variant"] != _BASELINES.get(architecture)
    return (platform.get("os"), platform.get("architecture"), has_variant) == ("linux", architecture, False)


def _descriptor(value: dict[str, Any]) -> Descriptor:
    digest, size = value.get("digest"), value.get("size")
    if not isinstance(digest, str) or not is_digest(digest):
        raise BadImage("the manifest names a part without a SHA-256 digest")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise BadImage("the manifest names a part without a size")
    return Descriptor(_text(value.get("mediaType"), "media type"), digest, size)


def read_json(body: bytes) -> Any:
    """Parse an untrusted document of a few MB; raises ValueError and RecursionError.

    Millions of values take seconds, in which no other thread runs: the parser never releases the interpreter lock.
    """
    if sum(map(body.count, _BEFORE_VALUES)) > MAX_VALUES:
        raise TooManyValues
    return json.loads(body)


def read_object(body: bytes, name: str) -> dict[str, Any]:
    """Parse a document of an image; raises BadImage."""
    try:
        return _object(read_json(body), name)
    except TooManyValues:
        raise BadImage(f"the image's {name} has more than {MAX_VALUES:,} values") from None
    except (ValueError, RecursionError):  # ValueError includes invalid UTF-8.
        raise BadImage(f"the image's {name} is not JSON") from None


def _object(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadImage(f"the image's {name} is not an object")
    return value


def _objects(value: object, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise BadImage(f"the manifest's {name} are not a list")
    return [_object(entry, f"entry of {name}") for entry in value]
