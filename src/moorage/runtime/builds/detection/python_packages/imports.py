"""Packages that an app does not list, from its imports.

Only well-known packages are installed: a name that nobody has registered yet could be registered by an attacker.
"""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.reading import Folder

# Modules whose package has the same name.
_SAME = (
    *("aiofiles", "aiogram", "aiohttp", "aiosqlite", "alembic", "altair", "anthropic", "apscheduler", "arrow"),
    *("asyncpg", "bcrypt", "bleach", "bokeh", "boto3", "bottle", "cachetools", "celery", "channels", "click"),
    *("cloudinary", "cryptography", "daphne", "dash", "django", "duckdb", "emoji", "eventlet"),
    *("fastapi", "feedparser", "flask", "folium", "geopandas", "geopy", "gevent", "gradio", "graphene", "groq"),
    *("gunicorn", "httpx", "humanize", "itsdangerous", "jinja2", "joblib", "langchain", "loguru", "lxml"),
    *("markdown", "markdown2", "markupsafe", "marshmallow", "matplotlib", "mongoengine", "motor", "networkx"),
    *("nltk", "numpy", "openai", "openpyxl", "orjson", "pandas", "passlib", "pdfplumber", "peewee", "pendulum"),
    *("plotly", "polars", "psutil", "pyarrow", "pydantic", "pydeck", "pygments", "pymongo", "pymysql", "pypdf"),
    *("pytz", "qrcode", "redis", "reportlab", "requests", "rich", "schedule", "scipy", "seaborn", "setproctitle"),
    *("shapely", "shortuuid", "simplejson", "sqlalchemy", "sqlmodel", "starlette", "statsmodels", "streamlit"),
    *("stripe", "supabase", "sympy", "tabulate", "tenacity", "textblob", "toml", "tornado", "tqdm", "tweepy"),
    *("twilio", "typer", "ujson", "uvicorn", "uvloop", "waitress", "websockets", "werkzeug", "whitenoise"),
    *("wikipedia", "wordcloud", "wtforms", "xgboost", "xlrd", "xmltodict", "yfinance"),
)
# Extensions of Flask.
_FLASK = (
    *("admin", "babel", "bcrypt", "caching", "cors", "httpauth", "jwt_extended", "limiter", "login", "mail"),
    *("marshmallow", "migrate", "moment", "pymongo", "restful", "restx", "session", "socketio", "sqlalchemy"),
    "wtf",
)
PACKAGES = {
    **{name: name for name in _SAME},
    **{f"flask_{name}": f"flask-{name.replace('_', '-')}" for name in _FLASK},
    "aiohttp_jinja2": "aiohttp-jinja2",
    "allauth": "django-allauth",
    "bootstrap4": "django-bootstrap4",
    "bs4": "beautifulsoup4",
    "ckeditor": "django-ckeditor",
    "corsheaders": "django-cors-headers",
    "crispy_bootstrap4": "crispy-bootstrap4",
    "crispy_bootstrap5": "crispy-bootstrap5",
    "crispy_forms": "django-crispy-forms",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dash_bootstrap_components": "dash-bootstrap-components",
    "dateutil": "python-dateutil",
    "debug_toolbar": "django-debug-toolbar",
    "decouple": "python-decouple",
    "discord": "discord.py",
    "dj_database_url": "dj-database-url",
    "django_bootstrap5": "django-bootstrap5",
    "django_extensions": "django-extensions",
    "django_filters": "django-filter",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "drf_spectacular": "drf-spectacular",
    "drf_yasg": "drf-yasg",
    "email_validator": "email-validator",
    "environ": "django-environ",
    "faker": "faker",
    "firebase_admin": "firebase-admin",
    "fitz": "pymupdf",
    "fpdf": "fpdf2",
    "gtts": "gtts",
    "import_export": "django-import-export",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "mptt": "django-mptt",
    "multipart": "python-multipart",
    "python_multipart": "python-multipart",
    "mysql": "mysql-connector-python",
    "MySQLdb": "mysqlclient",
    "PIL": "pillow",
    "pptx": "python-pptx",
    "prometheus_client": "prometheus-client",
    "psycopg2": "psycopg2-binary",
    "pydantic_settings": "pydantic-settings",
    "PyPDF2": "pypdf2",
    "rest_framework": "djangorestframework",
    "rest_framework_simplejwt": "djangorestframework-simplejwt",
    "sentry_sdk": "sentry-sdk",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "socketio": "python-socketio",
    "speech_recognition": "speechrecognition",
    "sqlalchemy_utils": "sqlalchemy-utils",
    "st_aggrid": "streamlit-aggrid",
    "storages": "django-storages",
    "strawberry": "strawberry-graphql",
    "streamlit_folium": "streamlit-folium",
    "streamlit_lottie": "streamlit-lottie",
    "streamlit_option_menu": "streamlit-option-menu",
    "taggit": "django-taggit",
    "telebot": "pytelegrambotapi",
    "telegram": "python-telegram-bot",
    "tortoise": "tortoise-orm",
    "widget_tweaks": "django-widget-tweaks",
    "xlsxwriter": "xlsxwriter",
    "yaml": "pyyaml",
}
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\w+)(?:\.[\w.]*)?[ \t]+import\b|import[ \t]+(\w[\w., \t]*))", re.MULTILINE)
_DJANGO_LIST = re.compile(
    r"^(?:INSTALLED_APPS|THIRD_PARTY_APPS|MIDDLEWARE)\s*\+?=\s*[\[(]([^\])]{0,5000})", re.MULTILINE
)
# Modules that a framework or library imports itself for something that the code uses.
_USES = (
    (re.compile(r"\bmodels\.ImageField\("), "PIL"),
    (re.compile(r"^from pydantic import [^\n]*\bEmailStr\b|^from wtforms\.validators import [^\n]*\bEmail\b", re.M),
     "email_validator"),
    (re.compile(r"^from fastapi import [^\n]*\b(?:Form|File|UploadFile)\b|\bOAuth2PasswordRequestForm\b", re.M),
     "python_multipart"),
    (re.compile(r"\bJinja2Templates\("), "jinja2"),
    (re.compile(r"\bSessionMiddleware\b"), "itsdangerous"),
    (re.compile(r"\bCryptContext\([^)]{0,200}bcrypt"), "bcrypt"),
    (re.compile(r"['\"]postgresql(?:\+psycopg2)?://"), "psycopg2"),
    (re.compile(r"['\"]postgresql\+asyncpg://"), "asyncpg"),
    (re.compile(r"['\"]mysql\+pymysql://"), "pymysql"),
    (re.compile(r"['\"]sqlite\+aiosqlite://"), "aiosqlite"),
    (re.compile(r"\.read_excel\("), "openpyxl"),
)  # fmt: skip


def find(folder: Folder) -> list[str]:
    """Return the well-known packages that the files import, but for modules of the app itself."""
    return sorted(set(find_modules(folder).values()))


def find_modules(folder: Folder) -> dict[str, str]:
    """Return the well-known modules that the files import, each with its package."""
    modules: set[str] = set()
    for text in folder.python_files.values():
        for single, several in _IMPORT.findall(text):
            modules |= {single} if single else {re.split(r"[.\s]", each.strip())[0] for each in several.split(",")}
        for names in _DJANGO_LIST.findall(text):
            modules.update(re.findall(r"^[^#\n]*?['\"](\w+)", names, re.MULTILINE))
        modules.update(name for pattern, name in _USES if pattern.search(text))
    own = {part.removesuffix(".py") for name in folder.python_files for part in name.split("/")}
    return {name: PACKAGES[name] for name in sorted(modules - own) if name in PACKAGES}
