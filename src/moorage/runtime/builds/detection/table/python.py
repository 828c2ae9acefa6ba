"""Rows for Python: Django, apps of other frameworks, sites, and scripts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from moorage.runtime.builds.detection import python_apps
from moorage.runtime.builds.detection.python_apps import HOST, PORT, asgi, find_script, script, wsgi
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table.row import Row, Sign, Value, file, pip

MANIFESTS = (
    *("requirements.txt", "pyproject.toml", "uv.lock", "Pipfile", "setup.py", "environment.yml", "requirements.in"),
    *("poetry.lock", "pdm.lock", "setup.cfg"),
)


def app(name: str, package: str, start: Value, server: Value = "") -> Row:
    def needed(folder: Folder) -> str:
        return f"{package} {server if isinstance(server, str) else server(folder)}".strip()

    return Row(name, "container", "python", pip(package), start=start, server=needed)


def _runs(command: str, *imports: str, names: tuple[str, ...] = python_apps.SCRIPTS) -> Callable[[Folder], str]:
    """Return a command with the name of the script that imports one of these modules."""

    def start(folder: Folder) -> str:
        name = find_script(folder, *imports, names=names)
        return command.replace("SCRIPT", shlex.quote(name)) if name else ""

    return start


def _dash(folder: Folder) -> str:
    """Serve the Flask app of a Dash app where the code names it; "" where a Flask app has Dash as one of its parts."""
    name = find_script(folder, "dash")
    if "/" in name and "flask" in folder.python_packages and python_apps.flask(folder):
        return ""
    text = folder.find_text(name) or ""
    if "/" not in name and (match := re.search(r"^(\w+)\s*=\s*\w+\.server\b", text, re.MULTILINE)):
        return f"gunicorn {name.removesuffix('.py')}:{match[1]} {python_apps.GUNICORN}"
    return f"python {shlex.quote(name)}" if name else ""


def _gunicorn(folder: Folder) -> str:
    return "gunicorn" if _dash(folder).startswith("gunicorn") else ""


STREAMLIT = ("streamlit_app.py", "app.py", "main.py", "Home.py", "home.py", "Hello.py", "dashboard.py", "src/app.py")
_OPTIONS = f"--server.port {PORT} --server.address {HOST} --server.headless true --browser.gatherUsageStats false"
DJANGO = (
    Row("Django", "container", "python", Sign("`manage.py` of Django, also one folder below", lambda folder: (
        None if (place := python_apps.django_folder(folder)) is None else f"{place}/manage.py".lstrip("/"))),
        start=python_apps.django, server=python_apps.django_server,
        note=lambda folder: "; ".join(
            python_apps.django_additions(folder) if python_apps.django_extended_settings(folder) else [])),
)  # fmt: skip
APPS = (
    app("Streamlit", "streamlit", _runs(f"streamlit run SCRIPT {_OPTIONS}", "streamlit", names=STREAMLIT)),
    app("Chainlit", "chainlit", _runs(f"chainlit run SCRIPT --host {HOST} --port {PORT} --headless", "chainlit")),
    app("Gradio", "gradio", _runs(f"GRADIO_SERVER_NAME={HOST} GRADIO_SERVER_PORT={PORT} python SCRIPT", "gradio")),
    app("Marimo", "marimo", _runs(f"marimo run SCRIPT --host {HOST} --port {PORT} --headless", "marimo")),
    app("Shiny", "shiny", _runs(f"shiny run --host {HOST} --port {PORT} SCRIPT", "shiny")),
    app("Dash", "dash", _dash, _gunicorn),
    app("Panel", "panel", _runs(
        f"panel serve SCRIPT --address {HOST} --port {PORT} --allow-websocket-origin '*'", "panel")),
    app("FastAPI", "fastapi", asgi("FastAPI"), "uvicorn"),
    app("FastHTML", "python-fasthtml", script("fasthtml")),
    app("Litestar", "litestar", asgi("Litestar"), "uvicorn"),
    app("Starlette", "starlette", asgi("Starlette"), "uvicorn"),
    app("Quart", "quart", asgi("Quart"), "uvicorn"),
    app("Sanic", "sanic", lambda folder: (
        f"sanic {sanic_app.target} --host {HOST} --port {PORT} --single-process"
        if (sanic_app := python_apps.find_app(folder, "Sanic")) and not sanic_app.folder else script("sanic")(folder))),
    app("Flask", "flask", python_apps.flask, "gunicorn"),
    app("Falcon", "falcon", lambda folder: asgi("asgi\\.App", "falcon\\.asgi\\.App")(folder) or wsgi("App")(folder),
        lambda folder: "uvicorn" if asgi("asgi\\.App", "falcon\\.asgi\\.App")(folder) else "gunicorn"),
    app("aiohttp", "aiohttp", script("aiohttp\\.web", "aiohttp import web")),
    app("Tornado", "tornado", script("tornado\\.web", "tornado\\.httpserver", "tornado import")),
    app("Bottle", "bottle", script("bottle")),
    app("CherryPy", "cherrypy", script("cherrypy")),
    app("NiceGUI", "nicegui", script("nicegui")),
    app("Voilà", "voila", lambda folder: next(
        (f"voila --no-browser --Voila.ip={HOST} --port={PORT} {shlex.quote(name)}" for name in folder.glob("*.ipynb")),
        ""), "ipykernel"),
    Row("WSGI or ASGI module", "container", "python", file("wsgi.py", "asgi.py"), start=python_apps.server_module,
        server=lambda folder: python_apps.server_module(folder).partition(" ")[0]),
)  # fmt: skip

# Python packages of themes, plugins and extensions, by the names in the settings of MkDocs and Sphinx.
_MKDOCS = {
    "material": "mkdocs-material", "mkdocstrings": "mkdocstrings[python]", "minify": "mkdocs-minify-plugin",
    "awesome-pages": "mkdocs-awesome-pages-plugin", "macros": "mkdocs-macros-plugin", "redirects": "mkdocs-redirects",
    "git-revision-date-localized": "mkdocs-git-revision-date-localized-plugin", "glightbox": "mkdocs-glightbox",
    "gen-files": "mkdocs-gen-files", "literate-nav": "mkdocs-literate-nav", "section-index": "mkdocs-section-index",
}  # fmt: skip
_SPHINX = {
    "sphinx_rtd_theme": "sphinx-rtd-theme", "furo": "furo", "pydata_sphinx_theme": "pydata-sphinx-theme",
    "sphinx_book_theme": "sphinx-book-theme", "alabaster": "alabaster", "myst_parser": "myst-parser",
    "sphinx_copybutton": "sphinx-copybutton", "sphinx_design": "sphinx-design", "nbsphinx": "nbsphinx",
    "sphinx_autodoc_typehints": "sphinx-autodoc-typehints", "sphinx_tabs": "sphinx-tabs",
    "recommonmark": "recommonmark",
}  # fmt: skip
SPHINX_FOLDERS = ("docs", "docs/source", "doc", "doc/source", "source", "documentation", "")


def _docs_server(tool: str, known: dict[str, str], find: Callable[[Folder], str]) -> Callable[[Folder], str]:
    """Return a documentation tool, the packages that its settings name, and the requirements of its pages."""

    def server(folder: Folder) -> str:
        text = find(folder)
        named = [
            package for name, package in known.items() if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
        ]
        files = [name for name in ("docs/requirements.txt", "doc/requirements.txt") if folder.has(name)]
        return " ".join([*(f"-r {name}" for name in files), tool, *named])

    return server


def _mkdocs_text(folder: Folder) -> str:
    text = folder.find_text("mkdocs.yml") or folder.find_text("mkdocs.yaml") or ""
    return "\n".join(re.findall(r"^[ \t]*(?:-[ \t]+|theme:[ \t]*|name:[ \t]*)[\w'\"-]+", text, re.MULTILINE))


def _mkdocs_output(folder: Folder) -> str:
    text = folder.find_text("mkdocs.yml") or folder.find_text("mkdocs.yaml") or ""
    match = re.search(r"^site_dir:\s*['\"]?([\w./-]+)", text, re.MULTILINE)
    return match[1].removeprefix("./").strip("/") if match else "site"


def _sphinx_folder(folder: Folder) -> str | None:
    pattern = re.compile(r"^[ \t]*(?:extensions|html_theme|project)\s*=", re.MULTILINE)
    return next((each for each in SPHINX_FOLDERS if pattern.search(_sphinx_text(folder, each))), None)


def _sphinx_text(folder: Folder, place: str) -> str:
    return folder.find_text(f"{place}/conf.py".lstrip("/")) or ""


def _sphinx_output(folder: Folder) -> str:
    return f"{_sphinx_folder(folder) or ''}/_build/html".lstrip("/")


SITES = (
    Row("MkDocs", "static", "python", file("mkdocs.yml", "mkdocs.yaml"), build="mkdocs build", output=_mkdocs_output,
        server=_docs_server("mkdocs", _MKDOCS, _mkdocs_text)),
    Row("Jupyter Book", "static", "python", file("_toc.yml") & file("_config.yml"), build="jupyter-book build .",
        output="_build/html", server="jupyter-book<2"),
    Row("Pelican", "static", "python", file("pelicanconf.py"), build="pelican content -s pelicanconf.py -o output",
        output="output", server="pelican[markdown]"),
    Row("Sphinx", "static", "python", Sign("`conf.py` of Sphinx in `docs`, `docs/source`, `source` or the base folder",
        lambda folder: None if (at := _sphinx_folder(folder)) is None else f"{at}/conf.py".lstrip("/")),
        build=lambda folder: f"sphinx-build -b html {_sphinx_folder(folder) or '.'} {_sphinx_output(folder)}",
        output=_sphinx_output,
        server=_docs_server("sphinx", _SPHINX, lambda folder: _sphinx_text(folder, _sphinx_folder(folder) or ""))),
)  # fmt: skip
SCRIPTS = (
    Row("Python", "container", "python", file(*MANIFESTS) | file("*.py", "src/*.py"), start=python_apps.main_script),
)
