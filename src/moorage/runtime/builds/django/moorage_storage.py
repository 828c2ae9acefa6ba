"""Storage of a Django app's static files in which files may be missing.

Files of a front end are often built from `package.json`, which the build of a Python app does not run. With a list of
the collected files, Django answers each page that names another file with an error.
"""

import importlib
from typing import Any

from django.conf import settings  # type: ignore[import-not-found]

_module, _, _name = settings.MOORAGE_STATICFILES_BACKEND.rpartition(".")
_Own: Any = getattr(importlib.import_module(_module), _name)


class StaticFiles(_Own):  # type: ignore[misc]
    """The app's own storage, which leaves the name of a missing file as it is."""

    def stored_name(self, name: str) -> Any:
        try:
            return super().stored_name(name)
        except ValueError:
            return name
