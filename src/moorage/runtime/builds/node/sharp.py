"""Build Astro sites whose version of sharp could not be installed.

Versions of sharp before 0.33 download their library from another host than the package registry. Astro lists such a
version as an optional dependency, so that the installation succeeds without it and the build fails.
"""

from __future__ import annotations

import re

from moorage.runtime.builds.environment import Retry

NOTE = "sharp could not be installed in the version of the lock file: a version that brings its library is installed"
_MISSING = re.compile(r"failed to resolve import \"sharp\"|Could not find Sharp|Cannot find package 'sharp'")
_INSTALL = "npm install --no-save --no-audit --no-fund --legacy-peer-deps sharp@0.33"


def retry(build: str) -> Retry:
    """Return the build after an installation of sharp, for a build that failed without it."""
    return Retry(_MISSING, NOTE, "the build command with another sharp", ["/bin/sh", "-c", f"{_INSTALL} && {build}"])
