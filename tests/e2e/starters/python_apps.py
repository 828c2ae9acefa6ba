"""Web apps in Python, as the documentation and tutorials of their frameworks lay them out."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter

FASTAPI = "fastapi==0.115.6\nuvicorn==0.34.0\n"
FLASK = "Flask==3.1.0\n"
MANAGE = """
    #!/usr/bin/env python
    import os
    import sys

    if __name__ == "__main__":
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
"""
# What `django-admin startproject` writes, SQLite beside the code, and the allowed hosts of a developer's machine.
SETTINGS = """
    from pathlib import Path

    BASE_DIR = Path(__file__).resolve().parent.parent
    SECRET_KEY = "django-insecure-of-a-starter"
    DEBUG = True
    ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
    INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.staticfiles"]
    MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
    ROOT_URLCONF = "mysite.urls"
    WSGI_APPLICATION = "mysite.wsgi.application"
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}
    STATIC_URL = "static/"
    DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
URLS = """
    from django.http import HttpResponse
    from django.urls import path

    urlpatterns = [path("", lambda request: HttpResponse("Hello from Django"))]
"""
WSGI = """
    import os

    from django.core.wsgi import get_wsgi_application

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
    application = get_wsgi_application()
"""


def django(folder: str = "") -> dict[str, str]:
    files = {
        "manage.py": MANAGE,
        "mysite/__init__.py": "",
        "mysite/settings.py": SETTINGS,
        "mysite/urls.py": URLS,
        "mysite/wsgi.py": WSGI,
    }
    return {folder + path: text for path, text in files.items()}


STARTERS = (
    Starter(
        "fastapi-main",
        "FastAPI",
        {
            "requirements.txt": FASTAPI,
            "main.py": """
                from fastapi import FastAPI

                app = FastAPI()


                @app.get("/")
                async def root():
                    return {"message": "Hello World"}
            """,
        },
        {"/": '{"message":"Hello World"}', "/docs": "swagger", "/nothing": 404},
    ),
    Starter(
        "fastapi-app-package",
        "FastAPI",
        {
            "requirements.txt": "fastapi[standard]==0.115.6\n",
            "app/__init__.py": "",
            "app/main.py": """
                from fastapi import FastAPI

                from app.routers import items

                app = FastAPI(title="Items")
                app.include_router(items.router)
            """,
            "app/routers/__init__.py": "",
            "app/routers/items.py": """
                from fastapi import APIRouter

                router = APIRouter(prefix="/items")


                @router.get("/")
                def read_items():
                    return [{"name": "anchor"}]
            """,
        },
        {"/": 404, "/items/": '[{"name":"anchor"}]'},
    ),
    Starter(
        "fastapi-src-layout",
        "FastAPI",
        {
            "pyproject.toml": """
                [project]
                name = "harbor"
                version = "0.1.0"
                requires-python = ">=3.10"
                dependencies = ["fastapi==0.115.6", "uvicorn==0.34.0"]

                [build-system]
                requires = ["hatchling"]
                build-backend = "hatchling.build"

                [tool.hatch.build.targets.wheel]
                packages = ["src/harbor"]
            """,
            "src/harbor/__init__.py": "",
            "src/harbor/main.py": """
                from fastapi import FastAPI

                from harbor.names import NAME

                app = FastAPI()


                @app.get("/")
                def home() -> dict[str, str]:
                    return {"harbor": NAME}
            """,
            "src/harbor/names.py": 'NAME = "south"\n',
        },
        {"/": '{"harbor":"south"}'},
    ),
    Starter(
        "fastapi-factory",
        "FastAPI",
        {
            "requirements.txt": FASTAPI,
            "app/__init__.py": "",
            "app/main.py": """
                from fastapi import FastAPI


                def create_app() -> FastAPI:
                    application = FastAPI()

                    @application.get("/")
                    def home():
                        return {"made": "by a factory"}

                    return application
            """,
        },
        {"/": '{"made":"by a factory"}'},
    ),
    Starter(
        "flask-app",
        "Flask",
        {
            "requirements.txt": FLASK,
            "app.py": """
                from flask import Flask, render_template

                app = Flask(__name__)


                @app.route("/")
                def hello_world():
                    return render_template("index.html", name="Flask")


                if __name__ == "__main__":
                    app.run(debug=True)
            """,
            "templates/index.html": "<p>Hello, {{ name }}!</p>\n",
        },
        {"/": "<p>Hello, Flask!</p>"},
    ),
    Starter(
        # The layout of Flask's tutorial: a factory, and a database in the instance folder.
        "flask-factory",
        "Flask",
        {
            "pyproject.toml": """
                [project]
                name = "flaskr"
                version = "1.0.0"
                description = "A blog"
                dependencies = ["flask==3.1.0"]

                [build-system]
                requires = ["flit_core<4"]
                build-backend = "flit_core.buildapi"

                [tool.flit.module]
                name = "flaskr"
            """,
            "flaskr/__init__.py": '''
                """A blog."""
                __version__ = "1.0.0"

                import os
                import sqlite3

                from flask import Flask


                def create_app(test_config=None):
                    app = Flask(__name__, instance_relative_config=True)
                    app.config.from_mapping(SECRET_KEY="dev", DATABASE=os.path.join(app.instance_path, "flaskr.sqlite"))
                    os.makedirs(app.instance_path, exist_ok=True)

                    @app.route("/hello")
                    def hello():
                        with sqlite3.connect(app.config["DATABASE"]) as db:
                            return f"Hello, {db.execute('select 41 + 1').fetchone()[0]}!"

                    return app
            ''',
        },
        {"/": 404, "/hello": "Hello, 42!"},
    ),
    Starter(
        "flask-wsgi",
        "Flask",
        {
            "requirements.txt": "flask==3.1.0\ngunicorn==23.0.0\n",
            "wsgi.py": """
                from project import create_app

                app = create_app()

                if __name__ == "__main__":
                    app.run()
            """,
            "project/__init__.py": """
                from flask import Flask


                def create_app():
                    app = Flask(__name__)

                    from project.views import main

                    app.register_blueprint(main)
                    return app
            """,
            "project/views.py": """
                from flask import Blueprint

                main = Blueprint("main", __name__)


                @main.route("/")
                def index():
                    return "Index of a blueprint"
            """,
        },
        {"/": "Index of a blueprint"},
    ),
    Starter(
        # Nothing but a script that listens on a port of its own, on loopback.
        "flask-run-in-a-function",
        "Python",
        {
            "requirements.txt": "flask\n",
            "run.py": """
                import flask


                def serve():
                    application = flask.Flask("tutorial")
                    application.add_url_rule("/", view_func=lambda: "port 5000")
                    application.run(port=5000)


                if __name__ == "__main__":
                    serve()
            """,
        },
        {"/": "port 5000"},
    ),
    Starter(
        "flask-nested-requirements",
        "Flask",
        {
            "requirements.txt": "-r requirements/base.txt\n",
            "requirements/base.txt": "# of all environments\nFlask==3.1.0\n",
            "requirements/dev.txt": "-r base.txt\npytest\n",
            "app.py": """
                from flask import Flask, jsonify
                app = Flask(__name__)
                @app.get("/")
                def index(): return jsonify(nested=True)
            """,
        },
        {"/": '"nested":true'},
    ),
    Starter(
        "django",
        "Django",
        {"requirements.txt": "Django==5.1.5\n", **django()},
        {"/": "Hello from Django", "/missing": 404},
    ),
    Starter("django-without-requirements", "Django", django(), {"/": "Hello from Django"}),
    Starter(
        "django-nested",
        "Django",
        {"requirements.txt": "django==5.1.5\n", "README.md": "# Tutorial\n", **django("mysite/")},
        {"/": "Hello from Django"},
    ),
    Starter(
        "django-without-migrations",
        "Django",
        {
            "requirements.txt": "django==4.2.11\n",
            "manage.py": """
                import os
                import sys

                from django.core.management import execute_from_command_line

                os.environ.setdefault("DJANGO_SETTINGS_MODULE", "harbor.settings")
                execute_from_command_line(sys.argv)
            """,
            "harbor/__init__.py": "",
            "harbor/wsgi.py": """
                import os

                from django.core.wsgi import get_wsgi_application

                os.environ.setdefault("DJANGO_SETTINGS_MODULE", "harbor.settings")
                application = get_wsgi_application()
            """,
            "harbor/settings.py": """
                SECRET_KEY = "of a starter"
                ROOT_URLCONF = "harbor.urls"
                INSTALLED_APPS = ["django.contrib.staticfiles", "berths"]
                MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
                STATIC_URL = "/static/"
                STATIC_ROOT = "/vol/web/static"
                STATICFILES_STORAGE = "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"
                DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
                TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
                DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
            """,
            "harbor/urls.py": """
                from berths.views import index
                from django.urls import path

                urlpatterns = [path("", index)]
            """,
            "berths/__init__.py": "",
            "berths/models.py": """
                from django.db import models


                class Berth(models.Model):
                    name = models.TextField()
            """,
            "berths/static/site.css": "body {}\n",
            "berths/templates/index.html": "{% load static %}{{ count }} berths, {% static 'site.css' %}\n",
            "berths/views.py": """
                from berths.models import Berth
                from django.shortcuts import render


                def index(request):
                    return render(request, "index.html", {"count": Berth.objects.count()})
            """,
        },
        {"/": "0 berths, /static/site.css", "/static/site.css": "body {}"},
    ),
)
