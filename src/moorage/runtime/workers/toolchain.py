"""Tools of installs and builds: npm, pip, package indexes, CA certificates.

The functions return host paths, which the caller bind-mounts into the sandbox.
"""

from __future__ import annotations

import os
from importlib import util
from pathlib import Path

from moorage.runtime.workers.runtimes import Runtime, installed

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
# CA certificates of the system, with the private ones that its administrator added.
SYSTEM_AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
AUTHORITIES = "/opt/moorage/authorities.crt"
NPM = "/opt/npm"
PIP = "/opt/pip"
# The operator's package index and proxy.
_PASSED_ON = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT", "npm_config_registry",
    "NPM_CONFIG_REGISTRY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "GOPROXY", "GOSUMDB",
)  # fmt: skip


def operator_environment() -> dict[str, str]:
    """Return the operator's package index and proxy."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def environment() -> dict[str, str]:
    """Return the environment variables of every package installer."""
    return operator_environment() | {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "npm_config_update_notifier": "false"}


def authorities(extra_ca: str) -> str | None:
    """Return the operator's file of CA certificates; None: each program uses its own."""
    path = extra_ca or os.environ.get("SSL_CERT_FILE", "")
    return path if path and Path(path).is_file() else None


def installer_authorities(extra_ca: str) -> str | None:
    """Return the CA certificates of builds and installs: the operator's file, else the system's bundle.

    pip and Node bring certificates of their own, and do not trust a private CA of the system without it.
    """
    return authorities(extra_ca) or next(filter(os.path.isfile, SYSTEM_AUTHORITIES), None)


def trusting(file: str) -> dict[str, str]:
    """Return the variables that make Python, pip, Node, npm, git and curl trust a CA file."""
    names = ("SSL_CERT_FILE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE")
    return dict.fromkeys((*names, "CURL_CA_BUNDLE"), file)


def npm_folder(runtime: Runtime) -> Path:
    """Return the npm of this Node, else that of the default Node."""
    program = _npm_beside(runtime)
    if program.is_dir():
        return program
    return _npm_beside(next(each for each in installed().values() if each.language == "nodejs"))


def _npm_beside(runtime: Runtime) -> Path:
    return runtime.executable.parent.parent / "lib" / "node_modules" / "npm"


def find_pip() -> tuple[str, Path] | None:
    """Return pip's path below a `PYTHONPATH` folder, and its host path; or None.

    The path is `pip` for an installed package, and empty for the wheel bundled with Python, which is itself the
    `PYTHONPATH` entry.
    """
    spec = util.find_spec("pip")
    if spec is not None and spec.origin:
        return "pip", Path(spec.origin).parent
    bundled = util.find_spec("ensurepip")  # Debian has it in a package of its own.
    if bundled is None or not bundled.origin:
        return None
    wheel = next(Path(bundled.origin).parent.glob("_bundled/pip-*.whl"), None)
    return None if wheel is None else ("", wheel)
