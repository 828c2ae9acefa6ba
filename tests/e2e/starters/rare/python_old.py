"""Apps that pin packages from before the Python that they run with."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter

STARTERS = (
    Starter(
        # These versions import `Mapping` from `collections` and call `inspect.getargspec`.
        "flask-of-2017",
        "Flask",
        {
            "requirements.txt": """
                click==6.7
                Flask==0.12.2
                gunicorn==19.7.1
                itsdangerous==0.24
                Jinja2==2.9.6
                MarkupSafe==1.1.1
                Werkzeug==0.12.2
            """,
            "Procfile": "web: gunicorn berths:app\n",
            "berths.py": """
                from flask import Flask, render_template_string

                app = Flask(__name__)


                @app.route("/")
                def index():
                    return render_template_string("Rendered by Jinja {{ year }}", year=2017)
            """,
        },
        {"/": "Rendered by Jinja 2017"},
    ),
)
