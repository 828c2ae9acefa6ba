"""Apps that do not start without variables, which are not set at the first push."""

from __future__ import annotations

from tests.e2e.starters.python_apps import SETTINGS, django
from tests.e2e.starters.shapes import Starter, package

_SQLITE = '{"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}'

STARTERS = (
    Starter(
        # As samples of hosts with a database of their own do it.
        "django-database-url",
        "Django",
        {
            **django(),
            "requirements.txt": "Django==5.1.4\ndj-database-url==2.3.0\ngunicorn==23.0.0\n",
            "mysite/settings.py": "import os\nimport dj_database_url\n"
            + SETTINGS.replace("\n    ", "\n").replace(
                _SQLITE, 'dj_database_url.parse(os.environ["DATABASE_URL"], conn_max_age=600)'
            ),
            "mysite/urls.py": """
                from django.contrib.auth.models import User
                from django.http import HttpResponse
                from django.urls import path

                urlpatterns = [path("", lambda request: HttpResponse(f"There are {User.objects.count()} users"))]
            """,
        },
        {"/": "There are 0 users"},
    ),
    Starter(
        # It declares its server in a Compose file, and reads the parts of its address.
        "express-postgres",
        "Express",
        {
            "package.json": package(
                scripts={"start": "node server.js", "db:migrate": "node migrate.js"},
                dependencies={"express": "^4.21.2", "pg": "^8.13.1"},
            ),
            "docker-compose.yml": """
                services:
                  db:
                    image: postgres:16
                    environment:
                      POSTGRES_PASSWORD: password
            """,
            "pool.js": """
                const { Pool } = require("pg");
                const { DB_HOST, DB_PORT, DB_USER, DB_PASSWORD, DB_NAME } = process.env;

                module.exports = new Pool({
                  host: DB_HOST || "localhost", port: DB_PORT || 5432, user: DB_USER || "postgres",
                  password: DB_PASSWORD || "password", database: DB_NAME || "postgres",
                });
            """,
            "migrate.js": """
                const pool = require("./pool");
                pool.query("CREATE TABLE IF NOT EXISTS ship (name TEXT)").then(() => pool.end());
            """,
            "server.js": """
                const express = require("express");
                const pool = require("./pool");

                const app = express();
                app.get("/", async (request, response) => {
                  const found = await pool.query("SELECT count(*) FROM ship");
                  response.send(`There are ${found.rows[0].count} ships`);
                });
                pool.query("SELECT 1").then(() => app.listen(process.env.PORT));
            """,
        },
        {"/": "There are 0 ships"},
    ),
    Starter(
        "express-required-variables",
        "Express",
        {
            "package.json": package(
                scripts={"start": "node server.js"}, dependencies={"express": "^4.21.2", "zod": "^3.24.1"}
            ),
            ".env.example": "HARBOR_NAME=West # of the quay\nADMIN_PASSWORD=changethis\n",
            "server.js": """
                const express = require("express");
                const { z } = require("zod");

                const env = z.object({
                  HARBOR_NAME: z.string(),
                  ADMIN_PASSWORD: z.string().min(16),
                }).parse(process.env);
                const app = express();
                app.get("/", (request, response) => response.send(`Harbor ${env.HARBOR_NAME}`));
                app.listen(process.env.PORT);
            """,
        },
        {"/": "Harbor West"},
    ),
)
