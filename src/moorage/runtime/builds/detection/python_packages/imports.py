"""Packages of an app that lists no dependencies, from its imports.

Only well-known packages are installed: a name that nobody has registered yet could be registered by an attacker.
"""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.reading import Folder

# Modules whose package has the same name.
_SAME = (
    *(
        "altair",
        "bokeh",
        "bottle",
        "celery",
        "django",
        "fastapi",
        "flask",
        "folium",
        "gradio",
        "httpx",
        "jinja2",
        "joblib",
    ),
    *(
        "markdown",
        "matplotlib",
        "networkx",
        "nltk",
        "numpy",
        "openai",
        "openpyxl",
        "pandas",
        "peewee",
        "plotly",
        "psutil",
    ),
    *(
        "pydantic",
        "pymongo",
        "pymysql",
        "qrcode",
        "redis",
        "requests",
        "rich",
        "scipy",
        "seaborn",
        "sqlalchemy",
        "sqlmodel",
    ),
    *(
        "starlette",
        "streamlit",
        "sympy",
        "tabulate",
        "tornado",
        "tqdm",
        "uvicorn",
        "werkzeug",
        "whitenoise",
        "yfinance",
    ),
)
PACKAGES = {
    **{name: name for name in _SAME},
    **{
        f"flask_{name}": f"flask-{name}"
        for name in ("cors", "login", "mail", "migrate", "restful", "session", "socketio")
    },
    "flask_bcrypt": "flask-bcrypt",
    "flask_sqlalchemy": "flask-sqlalchemy",
    "flask_wtf": "flask-wtf",
    "flask_jwt_extended": "flask-jwt-extended",
    "wtforms": "wtforms",
    "email_validator": "email-validator",
    "rest_framework": "djangorestframework",
    "corsheaders": "django-cors-headers",
    "django_filters": "django-filter",
    "crispy_forms": "django-crispy-forms",
    "crispy_bootstrap5": "crispy-bootstrap5",
    "environ": "django-environ",
    "decouple": "python-decouple",
    "dj_database_url": "dj-database-url",
    "dotenv": "python-dotenv",
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "jwt": "pyjwt",
    "dateutil": "python-dateutil",
    "Crypto": "pycryptodome",
    "cryptography": "cryptography",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
    "mysql": "mysql-connector-python",
    "lxml": "lxml",
    "passlib": "passlib",
    "bcrypt": "bcrypt",
    "jose": "python-jose",
    "multipart": "python-multipart",
    "aiohttp": "aiohttp",
}
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\w+)[\w.]*[ \t]+import\b|import[ \t]+(\w[\w., \t]*))", re.MULTILINE)
_IMAGE_FIELD = re.compile(r"\bmodels\.ImageField\(")


def find(folder: Folder) -> list[str]:
    """Return the well-known packages that the files import, but for modules of the app itself."""
    modules: set[str] = set()
    found: set[str] = set()
    for text in folder.python_files.values():
        for single, several in _IMPORT.findall(text):
            modules |= {single} if single else {re.split(r"[.\s]", each.strip())[0] for each in several.split(",")}
        if _IMAGE_FIELD.search(text):
            found.add("pillow")  # Django imports it itself.
    own = {part.removesuffix(".py") for name in folder.python_files for part in name.split("/")}
    return sorted(found | {PACKAGES[name] for name in modules - own if name in PACKAGES})
