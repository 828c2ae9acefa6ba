"""Requirements in conda's environment.yml that pip can install.

conda packages are not on PyPI; most Python packages have the same name there.
"""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed

FILES = ("environment.yml", "environment.yaml")
_RENAMED = {
    "pytorch": "torch",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "opencv": "opencv-python-headless",
    "py-opencv": "opencv-python-headless",
    "psycopg2": "psycopg2-binary",
    "pytables": "tables",
    "graphviz": "",
    "python-graphviz": "graphviz",
    "uvicorn-standard": "uvicorn[standard]",
    "blas": "",
}
# Parts of a conda environment that the machine has.
OF_SYSTEM = frozenset({
    "python", "pip", "setuptools", "wheel", "openssl", "ca-certificates", "zlib", "sqlite", "xz", "tk", "readline",
    "bzip2", "libffi", "ncurses", "_libgcc_mutex", "_openmp_mutex", "libgcc-ng", "libstdcxx-ng", "libgomp", "tzdata",
    "ld_impl_linux-64", "libuuid", "libzlib", "libsqlite", "libnsl", "libexpat", "libgcc", "libstdcxx", "mkl",
})  # fmt: skip
_NOT_PYTHON = frozenset({
    "nodejs", "r-base", "cudatoolkit", "cuda", "pytorch-cuda", "ffmpeg", "gdal", "gcc", "gxx", "openjdk", "postgresql",
    "redis", "nginx", "git", "make", "cmake", "go", "rust", "poppler", "tesseract", "imagemagick", "pandoc",
})  # fmt: skip
# Two neighbouring parts never match the same character: else a long line of a hostile file takes hours.
_ITEM = re.compile(r"^([ \t]*)-[ \t]*(?:\"([^#\"']+)\"[ \t]*|'([^#\"']+)'[ \t]*|([^#\"' \t][^#\"']*))(?:#.*)?$")
_SPEC = re.compile(r"(?:[\w.-]+(?:/[\w-]+)?::)?([\w.-]+)[ \t]*(.*)")


def requirements(folder: Folder, name: str) -> str:
    """Return the dependencies as a requirements file; raises BuildFailed for a conda-only one."""
    conda, pip = _read(folder.find_text(name) or "")
    lines, missing = [], []
    for spec in conda:
        package, version = _parse(spec)
        if package in _NOT_PYTHON:
            missing.append(package)
        elif package not in OF_SYSTEM and (renamed := _RENAMED.get(package, package)):
            lines.append(renamed + _as_pip(version))
    if missing:
        raise BuildFailed(
            f"{name} lists {', '.join(missing)}, which conda has and PyPI has not: remove it there, or add a "
            "requirements.txt with the Python packages that the app imports"
        )
    return "".join(f"{line}\n" for line in [*lines, *pip])


def python_version(folder: Folder) -> tuple[str, str]:
    """Return the version of Python that a file asks for, and the file; "" without one."""
    for name in FILES:
        for spec in _read(folder.find_text(name) or "")[0]:
            package, version = _parse(spec)
            if package == "python" and version:
                return version, name
    return "", ""


def _read(text: str) -> tuple[list[str], list[str]]:
    """Return the items of `dependencies:` and of its `pip:`; other YAML is ignored."""
    block = re.search(
        r"^dependencies:[ \t]*(?:#.*)?\n((?:[ \t]*-.*\n?|[ \t]+.*\n?|[ \t]*(?:#.*)?\n)*)", text, re.MULTILINE
    )
    conda: list[str] = []
    pip: list[str] = []
    outer: int | None = None
    for line in block[1].splitlines() if block else []:
        match = _ITEM.match(line)
        if match is None:
            continue
        outer = len(match[1]) if outer is None else outer
        item = (match[2] or match[3] or match[4]).strip()
        if len(match[1]) > outer:
            pip.append(item)
        elif not item.endswith(":"):
            conda.append(item)
    return conda, pip


def _parse(spec: str) -> tuple[str, str]:
    match = _SPEC.match(spec)
    return (match[1].lower(), match[2].replace(" ", "")) if match else ("", "")


def _as_pip(version: str) -> str:
    """Return a conda version as pip writes it: `=1.2` means `==1.2.*`, a build is left out."""
    version = re.sub(r"^(==?[\w.*]+)=.*$", r"\1", version)
    if version.startswith("=") and not version.startswith("=="):
        exact = version[1:].rstrip("*").rstrip(".")
        return f"=={exact}.*" if exact else ""
    return "" if version == "*" else version
