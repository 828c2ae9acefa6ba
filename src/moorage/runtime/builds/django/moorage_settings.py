"""Settings of a Django app, which also accept the hosts that the gateway serves the app at, and serve static files.

The gateway passes only requests for hosts of the app. The module runs in the app's Python, which may be an old one.
"""

import importlib
import os

_own = importlib.import_module(os.environ["MOORAGE_DJANGO_SETTINGS"])
globals().update({name: getattr(_own, name) for name in dir(_own) if name.isupper()})
# At the end: apps take their own address from the first entry.
ALLOWED_HOSTS = [*getattr(_own, "ALLOWED_HOSTS", ()), "*"]
_middleware = getattr(_own, "MIDDLEWARE", None)
_address = str(getattr(_own, "STATIC_URL", None) or "/")
if (
    _middleware
    and "django.contrib.staticfiles" in getattr(_own, "INSTALLED_APPS", ())
    and "//" not in _address  # of another server
    and _address.strip("/")
    and not any("whitenoise" in name.lower() for name in _middleware)
):
    MIDDLEWARE = ["moorage_static.serve_static_files", *_middleware]
