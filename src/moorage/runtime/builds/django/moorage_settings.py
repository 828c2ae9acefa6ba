"""Settings of a Django app, with the hosts that the gateway serves it at, its static files, its log and its database.

The gateway passes only requests for hosts of the app. The module runs in the app's Python, which may be an old one.
"""

import importlib
import os
import sys
from urllib.parse import unquote, urlsplit

_NAME = os.environ["MOORAGE_DJANGO_SETTINGS"]


def __getattr__(name: str) -> object:
    """Return a setting that the app has set so far: its settings may read some of them while they are imported."""
    own = vars(sys.modules[_NAME]) if _NAME in sys.modules else {}
    if name.isupper() and name in own:
        return own[name]
    raise AttributeError(name)


def __dir__() -> "list[str]":
    return [*globals(), *(vars(sys.modules[_NAME]) if _NAME in sys.modules else ())]


_own = importlib.import_module(_NAME)
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

# A database on the machine of the author; an app has none beside it.
_LOCAL = ("", "localhost", "127.0.0.1", "db", "database", "postgres", "postgresql", "mysql", "mariadb")
_url = urlsplit(os.environ.get("DATABASE_URL", ""))
_databases = getattr(_own, "DATABASES", {})
_default = _databases.get("default", {})
_kind = "mysql" if _url.scheme.startswith("mysql") else "postg"  # postgresql or postgis
if _url.hostname and _kind in _default.get("ENGINE", "") and str(_default.get("HOST") or "") in _LOCAL:
    _parts = {"NAME": _url.path[1:], "USER": _url.username, "PASSWORD": _url.password, "HOST": _url.hostname}
    _parts = {name: unquote(value or "") for name, value in _parts.items()}
    DATABASES = dict(_databases, default=dict(_default, PORT=str(_url.port or ""), **_parts))

# These take the names of files from a list that `collectstatic` writes. Without the list, where that command failed,
# each page would be an error, and with it each page that names a file which is not in the list.
_MANIFESTS = (
    "django.contrib.staticfiles.storage.ManifestStaticFilesStorage",
    "whitenoise.storage.CompressedManifestStaticFilesStorage",
    "whitenoise.django.GzipManifestStaticFilesStorage",
)
_storages = getattr(_own, "STORAGES", None) or {}
_files = _storages.get("staticfiles", {})
_backend = _files.get("BACKEND") or getattr(_own, "STATICFILES_STORAGE", "")
_list = os.path.join(str(getattr(_own, "STATIC_ROOT", None) or ""), "staticfiles.json")
if _backend in _MANIFESTS:
    if os.path.isfile(_list):
        MOORAGE_STATICFILES_BACKEND = _backend
        _files = dict(_files, BACKEND="moorage_storage.StaticFiles")
    else:
        WHITENOISE_USE_FINDERS = True
        _files = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    if _storages:
        STORAGES = dict(_storages, staticfiles=_files)
    else:
        STATICFILES_STORAGE = _files["BACKEND"]

# Without DEBUG, Django only mails the reason of a failed request.
if not getattr(_own, "LOGGING", None):
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"production": {"()": "django.utils.log.RequireDebugFalse"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "level": "ERROR", "filters": ["production"]}},
        "loggers": {"django.request": {"handlers": ["stderr"]}},
    }
