"""Projects that need another Python than the machine's, or other versions of packages than the newest."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter

STARTERS = (
    Starter(
        # `uv init` on a current machine
        "python-3-13",
        "FastAPI",
        {
            ".python-version": "3.13\n",
            "pyproject.toml": """
                [project]
                name = "harbor"
                version = "0.1.0"
                requires-python = ">=3.13"
                dependencies = ["fastapi", "uvicorn"]
            """,
            "main.py": """
                import sys

                from fastapi import FastAPI

                app = FastAPI()


                @app.get("/")
                def version():
                    return {"python": sys.version.split()[0]}
            """,
        },
        {"/": '"python":"3.13.'},
    ),
    Starter(
        # No file names a version: only a dependency says that it needs a newer Python.
        "django-6",
        "Django",
        {
            "requirements.txt": "Django==6.0\n",
            "manage.py": """
                import os

                from django.core.management import execute_from_command_line

                os.environ.setdefault("DJANGO_SETTINGS_MODULE", "harbor.settings")
                execute_from_command_line()
            """,
            "harbor/__init__.py": "",
            "harbor/settings.py": """
                SECRET_KEY = "for a test"
                ALLOWED_HOSTS = ["*"]
                ROOT_URLCONF = "harbor.urls"
            """,
            "harbor/urls.py": """
                from django import VERSION
                from django.http import HttpResponse
                from django.urls import path

                urlpatterns = [path("", lambda request: HttpResponse(f"Django {VERSION[0]} in the harbor"))]
            """,
            "harbor/wsgi.py": """
                import os

                from django.core.wsgi import get_wsgi_application

                os.environ.setdefault("DJANGO_SETTINGS_MODULE", "harbor.settings")
                application = get_wsgi_application()
            """,
        },
        {"/": "Django 6 in the harbor"},
    ),
    Starter(
        # A tutorial of some years ago: no versions, a call that the newest Starlette lacks, and no jinja2 in the list.
        "fastapi-templates",
        "FastAPI",
        {
            "requirements.txt": "fastapi\nuvicorn\n",
            "main.py": """
                from fastapi import FastAPI, Request
                from fastapi.templating import Jinja2Templates
                from jinja2 import __version__

                app = FastAPI()
                templates = Jinja2Templates(directory="templates")


                @app.get("/")
                async def index(request: Request):
                    return templates.TemplateResponse("index.html", {"request": request, "ships": 3})
            """,
            "templates/index.html": "<h1>{{ ships }} ships in the harbor</h1>\n",
        },
        {"/": "<h1>3 ships in the harbor</h1>"},
    ),
)
