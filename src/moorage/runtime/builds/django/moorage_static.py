"""Middleware that serves the static files of a Django app, as Django's development server does.

Gunicorn and Daphne serve none. The module runs in the app's Python, with the app's version of Django.
"""

import os
import posixpath
from typing import Any

from django.conf import settings  # type: ignore[import-not-found]
from django.contrib.staticfiles import finders  # type: ignore[import-not-found]
from django.http import Http404  # type: ignore[import-not-found]
from django.views.static import serve  # type: ignore[import-not-found]


def serve_static_files(get_response: Any) -> Any:
    """Answer requests below STATIC_URL with the collected files, else with the files of the apps."""
    prefix = "/{}/".format(str(settings.STATIC_URL).strip("/"))

    def middleware(request: Any) -> Any:
        if request.method in ("GET", "HEAD") and request.path_info.startswith(prefix):
            name = posixpath.normpath(request.path_info[len(prefix) :]).lstrip("/")
            path = _find(name)
            if path:
                try:
                    return serve(request, os.path.basename(path), document_root=os.path.dirname(path))
                except Http404:  # a folder
                    pass
        return get_response(request)

    return middleware


def _find(name: str) -> Any:
    """Return the path of a static file; None if there is none. Names with `..` at the front are refused."""
    if name.startswith(".."):
        return None
    root = getattr(settings, "STATIC_ROOT", None)
    collected = os.path.join(str(root), name) if root else ""
    return collected if collected and os.path.isfile(collected) else finders.find(name)
