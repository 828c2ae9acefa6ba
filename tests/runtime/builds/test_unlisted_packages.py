"""Packages of Python apps that import them and list none."""

from __future__ import annotations

from pathlib import Path

from tests.runtime.builds.build_support import make_request, write_files

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.ports import Plan


def plan(folder: Path) -> Plan:
    request = make_request(folder, wanted="auto")
    return detect.make_plan(request, detect.open_base(request))


def test_an_app_that_lists_no_dependencies_gets_the_well_known_packages_that_it_imports(tmp_path: Path) -> None:
    imports = "import os, pandas as pd\nimport numpy as np, shapes\nimport unknown_thing\n"
    code = f"{imports}from flask import Flask\napp = Flask(__name__)"
    write_files(tmp_path, {"app.py": code, "shapes.py": "from PIL import Image\nimport redis.client", "redis.py": ""})

    found = plan(tmp_path)

    assert found.server == "flask gunicorn numpy pandas pillow"


def test_apps_and_middleware_of_django_are_imports_too(tmp_path: Path) -> None:
    settings = (
        "INSTALLED_APPS = [\n    'django.contrib.admin',\n    'rest_framework',\n    # 'channels',\n    'shop',\n]\n"
        "MIDDLEWARE = ['whitenoise.middleware.WhiteNoiseMiddleware']\n"
    )
    write_files(tmp_path, {"manage.py": "import django", "shop/settings.py": settings, "shop/__init__.py": ""})

    assert plan(tmp_path).server == "django djangorestframework whitenoise"


def test_packages_that_a_library_imports_for_the_code_are_found(tmp_path: Path) -> None:
    code = (
        "from fastapi import FastAPI, Form\nfrom pydantic import BaseModel, EmailStr\napp = FastAPI()\n"
        "hashes = CryptContext(schemes=['bcrypt'])\nengine = create_engine('postgresql+asyncpg://localhost/shop')\n"
    )
    write_files(tmp_path, {"main.py": code})

    expected = "fastapi uvicorn asyncpg bcrypt email-validator pydantic python-multipart"
    assert plan(tmp_path).server == expected


def test_an_app_that_lists_dependencies_gets_no_others(tmp_path: Path) -> None:
    code = "import pandas\nfrom flask import Flask\napp = Flask(__name__)"
    write_files(tmp_path, {"app.py": code, "requirements.txt": "flask\ngunicorn\n"})

    assert plan(tmp_path).server == ""
