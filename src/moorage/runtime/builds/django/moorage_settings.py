"""Settings of a Django app, which also accept the hosts that the gateway serves the app at.

The gateway passes only requests for hosts of the app. The module runs in the app's Python, which may be an old one.
"""

import importlib
import os

_own = importlib.import_module(os.environ["MOORAGE_DJANGO_SETTINGS"])
globals().update({name: getattr(_own, name) for name in dir(_own) if name.isupper()})
# At the end: apps take their own address from the first entry.
ALLOWED_HOSTS = [*getattr(_own, "ALLOWED_HOSTS", ()), "*"]
