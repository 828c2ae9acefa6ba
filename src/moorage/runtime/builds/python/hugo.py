"""Build Hugo sites that use internal templates which newer versions removed.

Old themes include them for services that no longer exist. The package index has no version of Hugo that still has them,
and a template of the site takes the place of an internal one.
"""

from __future__ import annotations

import re

from moorage.runtime.builds.environment import Retry

REMOVED = ("google_analytics_async.html", "google_news.html")
FOLDER = "layouts/_internal"
NOTE = f"this Hugo has no {' and no '.join(REMOVED)}: empty templates take their place; remove them from the theme"
_FAILED = re.compile(rf"no such template \"_internal/(?:{'|'.join(map(re.escape, REMOVED))})\"")
_TEMPLATES = " ".join(f"{FOLDER}/{name}" for name in REMOVED)
RETRY = Retry(
    _FAILED, NOTE, "the build command with empty templates", prepare=f"mkdir -p {FOLDER} && touch {_TEMPLATES}"
)
