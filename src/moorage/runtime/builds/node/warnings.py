"""Build pages whose linter has warnings.

Create React App treats warnings as errors where the variable CI is set. The platform sets it so that no tool asks
questions; a warning is no reason not to deploy.
"""

from __future__ import annotations

import re

from moorage.runtime.builds.environment import Retry

NOTE = "the linter has warnings, which are errors where CI is true: the pages are built with CI=false"
_TREATED = re.compile(r"Treating warnings as errors because process\.env\.CI = true")


def retry(build: str) -> Retry:
    """Return the build with CI=false, for a build that failed because of warnings."""
    return Retry(_TREATED, NOTE, "the build command with CI=false", ["/bin/sh", "-c", f"export CI=false; {build}"])
