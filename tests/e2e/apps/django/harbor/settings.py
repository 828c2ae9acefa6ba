"""As `django-admin startproject` makes them, with a database that the environment names."""

import os
from pathlib import Path
from urllib.parse import urlsplit

BASE_DIR = Path(__file__).parent.parent
SECRET_KEY = os.environ.get("SECRET_KEY", "while it is built")
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "notes",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
ROOT_URLCONF = "harbor.urls"
WSGI_APPLICATION = "harbor.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
_DATABASE = urlsplit(os.environ.get("DATABASE_URL", "postgresql://nobody@127.0.0.1:5432/none"))
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": _DATABASE.hostname,
        "PORT": _DATABASE.port,
        "USER": _DATABASE.username,
        "PASSWORD": _DATABASE.password,
        "NAME": _DATABASE.path.lstrip("/"),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "collected"
USE_TZ = True
