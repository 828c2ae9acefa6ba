"""What installs and builds need besides a runtime: npm and pip, the package index of the operator, and its authorities.

Sandboxes see no path of the host but those that are bound into them, so each answer says where a thing is outside.
"""

from __future__ import annotations

import ensurepip
import os
from importlib import util
from pathlib import Path

from moorage.runtime.workers.runtimes import Runtime, installed

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
AUTHORITIES = "/opt/moorage/authorities.crt"
NPM = "/opt/npm"
PIP = "/opt/pip"
# The operator's choice of package index, and the way to it.
_PASSED_ON = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT", "npm_config_registry",
    "NPM_CONFIG_REGISTRY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip


def environment() -> dict[str, str]:
    """Return what every program that installs something is told, whoever's packages they are."""
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return env | {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "npm_config_update_notifier": "false"}


def authorities(extra_ca: str) -> str | None:
    """Return the file of certificates that the operator trusts, None where the system's own are meant."""
    found = extra_ca or os.environ.get("SSL_CERT_FILE", "")
    return found if found and Path(found).is_file() else None


def trusting(file: str) -> dict[str, str]:
    """Return what makes Python, pip, Node and npm trust the certificates of a file."""
    return {"SSL_CERT_FILE": file, "PIP_CERT": file, "NODE_EXTRA_CA_CERTS": file}


def npm_folder(runtime: Runtime) -> Path:
    """Return the npm that came with a Node, else the one of the bundled Node."""
    program = _npm_beside(runtime)
    if program.is_dir():
        return program
    return _npm_beside(next(each for each in installed().values() if each.language == "nodejs"))


def _npm_beside(runtime: Runtime) -> Path:
    return runtime.executable.parent.parent / "lib" / "node_modules" / "npm"


def find_pip() -> tuple[str, Path] | None:
    """Return where pip goes below a folder of `PYTHONPATH`, and where it is now; None where there is none.

    It is a folder of that name, or the archive that Python brings along: then the path itself is the archive.
    """
    spec = util.find_spec("pip")
    if spec is not None and spec.origin:
        return "pip", Path(spec.origin).parent
    wheel = next(Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"), None)
    return None if wheel is None else ("", wheel)
