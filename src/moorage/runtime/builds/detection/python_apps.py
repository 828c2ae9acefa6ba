"""Search the Python files of a repository for the object or the script that serves it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import NamedTuple

from moorage.runtime.builds.detection.reading import Folder, without_comments

# Expanded by the shell that starts the app.
HOST, PORT = "${HOST:-0.0.0.0}", "${PORT:-8080}"
# Longer than the gateway's keep-alive, so that the app never closes a connection that the gateway is about to reuse.
KEEP_ALIVE_S = 150
UVICORN = f"--host {HOST} --port {PORT} --timeout-keep-alive {KEEP_ALIVE_S}"
# One process, as with uvicorn, because apps scale by replicas. `WEB_CONCURRENCY` makes both start several.
GUNICORN = f"--bind {HOST}:{PORT} --threads 8 --keep-alive {KEEP_ALIVE_S}"
# Names of modules in the order of preference; then come the others, those of upper folders first.
MODULES = (
    *("wsgi", "asgi", "main", "app", "server", "api", "application", "startup", "autoapp", "__init__", "index", "run"),
    "web",
)
SCRIPTS = (
    "main.py",
    "app.py",
    "server.py",
    "run.py",
    "start.py",
    "index.py",
    "__main__.py",
    "src/main.py",
    "src/app.py",
)
FACTORIES = r"(?:create|make|build|get|init)_(?:app|application|api|server)|app_factory"
_VARIABLE = r"^(\w+)\s*(?::\s*[\w.\[\]]+\s*)?=\s*(?:\w+\.)*"
_FACTORY = re.compile(rf"^(?:async\s+)?def\s+({FACTORIES})\s*\(([^)]{{0,1000}})\)", re.MULTILINE)
_MADE = re.compile(rf"{_VARIABLE}(?:{FACTORIES})\(", re.MULTILINE)
_IMPORTED = re.compile(r"^from\s+([.\w]+)\s+import\s+\(?(?:\w+\s*,\s*)*(app|application)\b", re.MULTILINE)
_SERVED = re.compile(
    r"^(?:async[ \t]+)?def[ \t]+(application|app)\b|^(application|app)\s*(?::[^=\n]+)?="
    r"|^from[ \t]+[.\w]+[ \t]+import[ \t]+(?:\w[\w, ]*\bas[ \t]+)?(application|app)\b",
    re.MULTILINE,
)
_IMPORTS = re.compile(r"^[ \t]*(?:from\s+(\w+)(?:\.[\w.]*)?\s+import|import\s+(\w+))", re.MULTILINE)

_TEST = re.compile(r"(?:^|/)(?:(?:run)?tests?|tests?[_-][^/]*|conftest|[^/]*[_-]tests?)\.py$")
_RUNS = re.compile(r"__main__|\.run\(|launch\(|^from shiny\.express\b|^app = App\(", re.MULTILINE)
_DATABASE_URL = re.compile(r"\bdj_database_url\b|\benv\.(?:db|db_url|dj_db_url)\(")
# The file is part of the release, so that it is new at each start; a server's tables are changed by its owner.
_IF_SQLITE = 'test "${DATABASE_URL#sqlite}" != "$DATABASE_URL"'
_SETTINGS = re.compile(r"DJANGO_SETTINGS_MODULE['\"](?:\s*,|\]\s*=)\s*['\"]([\w.]+)")
_SETTINGS_NAME = re.compile(r"DJANGO_SETTINGS_MODULE['\"](?:\s*,|\]\s*=)\s*([A-Za-z_]\w*)\b(?!\s*[.(\[])")
_MIGRATE = "python manage.py migrate --noinput"
_MODEL = re.compile(r"^class\s+\w+\([^)]{0,300}\b(?:Model|AbstractUser|AbstractBaseUser)\b", re.MULTILINE)
_ALL_HOSTS = re.compile(r"^[ \t]*ALLOWED_HOSTS\s*=\s*[\[(][^\])]{0,1000}['\"]\*['\"]", re.MULTILINE)
_LOCAL_DATABASE = re.compile(
    r"['\"]ENGINE['\"]\s*:\s*['\"]django\.(?:db|contrib\.gis\.db)\.backends\.(?:postg|mysql)[^}]{0,1000}?"
    r"['\"]HOST['\"]\s*:\s*['\"](?:localhost|127\.0\.0\.1|db|postgres|mysql)?['\"]"
)


_GUNICORN = re.compile(
    r"(?P<cd>cd (?:'[^']+'|\S+) && )?gunicorn (?:--pythonpath (?P<path>'[^']+'|\S+) )?(?P<target>'[^']+'|[^\s'-]\S*)"
)
_FLASK_SQLALCHEMY = re.compile(r"^from flask_sqlalchemy import\b|^import flask_sqlalchemy\b", re.MULTILINE)
_OTHER_URL = re.compile(
    r"SQLALCHEMY_DATABASE_URI['\"\]]*\s*=\s*(?:os\.)?(?:environ(?:\.get)?\s*[\[(]|getenv\()\s*['\"]"
    r"([A-Z][A-Z0-9_]*)['\"]\s*[\])](?!\s*or\b)"
)


# A factory may have arguments.
_FLASK_APP = re.compile(
    r"^[ \t]*(?:export\s+)?FLASK_APP\s*=\s*['\"]?([\w./:]+(?:\([\w.,=' -]{0,200}\))?)", re.MULTILINE
)


class AppObject(NamedTuple):
    target: str  # `module:variable`
    folder: str  # that has to be on the search path of modules; "" for the base folder
    is_factory: bool = False
    is_script_folder: bool = False  # the app imports its neighbours by name, so it runs in their folder


def find_app(folder: Folder, *classes: str) -> AppObject | None:
    """Return the app object or the factory of a framework."""
    creates = re.compile(rf"{_VARIABLE}(?:{'|'.join(classes)})\(", re.MULTILINE)
    uses = re.compile(rf"\b(?:{'|'.join(classes)})\(")
    files = sorted(folder.python_files.items(), key=lambda each: _rank(each[0]))
    if not any(uses.search(text) for _, text in files):
        return None
    for name, text in files:
        if match := creates.search(text) or (_MADE.search(text) if _is_entry(name) else None):
            return _at(folder, name, text, match[1])
        if (match := _IMPORTED.search(text)) and _is_entry(name) and "/" not in name:
            return _at(folder, name, text, match[2])
    for name, text in files:
        match = _FACTORY.search(text)
        if match and uses.search(text, match.end()) and all("=" in each for each in _parameters(match[2])):
            return _at(folder, name, text, match[1])._replace(is_factory=True)
    return None


def asgi(*classes: str) -> Callable[[Folder], str]:
    """Return the uvicorn command of an app, "" without one."""

    def start(folder: Folder) -> str:
        app = find_app(folder, *classes)
        if app is None:
            return ""
        factory = "--factory " if app.is_factory else ""
        place = f"--app-dir {shlex.quote(app.folder)} " if app.folder and not app.is_script_folder else ""
        return f"{_cd(app)}uvicorn {factory}{place}{app.target} {UVICORN}"

    return start


def wsgi(*classes: str) -> Callable[[Folder], str]:
    """Return the gunicorn command of an app, "" without one."""

    def start(folder: Folder) -> str:
        app = find_app(folder, *classes)
        if app is None:
            return ""
        target = f"'{app.target}()'" if app.is_factory else app.target
        place = f"--pythonpath {shlex.quote(app.folder)} " if app.folder and not app.is_script_folder else ""
        return f"{_cd(app)}gunicorn {place}{target} {GUNICORN}"

    return start


# As in the tutorial of Flask. The file is part of the release, so that it is new at each start.
_INIT_DB = re.compile(r"^[ \t]*@(?:click|\w+\.cli)\.command\(\s*['\"]init-db['\"]", re.MULTILINE)


def flask(folder: Folder) -> str:
    """Return the gunicorn command of a Flask app, after the command that makes the tables of its SQLite file."""
    command = _flask_server(folder)
    match = _GUNICORN.match(command)
    if match is None:
        return command
    texts = folder.python_files.values()
    makes_tables = any(_INIT_DB.search(text) for text in texts) and any("sqlite3.connect(" in text for text in texts)
    cd, path, target = match["cd"] or "", f"PYTHONPATH={match['path']} " if match["path"] else "", match["target"]
    server = command.removeprefix(cd)
    # Old versions of Flask do not search the current folder for the app, but `python -m` does.
    flask_command = f"{path}FLASK_APP={target} python -m flask"
    if makes_tables:
        return f"{cd}{flask_command} init-db; {server}"
    if "flask-migrate" in folder.python_packages and folder.has("migrations/env.py"):
        return command if folder.has("Procfile") else f"{_IF_SQLITE} && {flask_command} db upgrade; {command}"
    return f"{cd}{_creating_tables(folder, shlex.split(target)[0], path)}{server}"


def _creating_tables(folder: Folder, target: str, path: str) -> str:
    """Return the command that makes the tables of Flask-SQLAlchemy in a SQLite file, or ""."""
    command = create_all(folder, target)
    if not command or not any("sqlite:///" in text or databases_url(text) for text in folder.python_files.values()):
        return ""
    return f'case "${{DATABASE_URL:-sqlite}}" in sqlite*) {path}{command};; esac; '


def create_all(folder: Folder, target: str) -> str:
    """Return the command that makes the tables of a Flask app with Flask-SQLAlchemy; "" for other apps.

    Tutorials make them by hand, or below `if __name__ == "__main__"`, which a server does not run.
    """
    if not any(_FLASK_SQLALCHEMY.search(text) for text in folder.python_files.values()):
        return ""
    module, _, name = target.partition(":")
    name, call, arguments = name.replace('"', "'").partition("(")
    # Any file name may be a module.
    made = f"app = getattr(importlib.import_module('{module}'), '{name or 'application'}')"
    made = f"import importlib; {made}; app = {f'app({arguments}' if call else 'app'}"
    code = f"{made}; app.app_context().push(); db = app.extensions['sqlalchemy']; getattr(db, 'db', db).create_all()"
    return f'python -c "{code}"'


def databases_url(text: str) -> str:
    """Return the variable, other than DATABASE_URL, from which settings take the address of a database; or ""."""
    match = _OTHER_URL.search(text)
    return match[1] if match and match[1] != "DATABASE_URL" else ""


def _flask_server(folder: Folder) -> str:
    """Return the gunicorn command of a Flask app; FLASK_APP of its settings comes first."""
    for name in (".flaskenv", ".env", ".env.example"):
        match = _FLASK_APP.search(folder.find_text(name) or "")
        module, _, variable = match[1].partition(":") if match else ("", "", "")
        path = module.removesuffix(".py").strip("./").replace(".", "/")
        text = next(
            (folder.find_text(each) for each in (f"{path}.py", f"{path}/__init__.py") if folder.has(each)), None
        )
        if not path or text is None:
            continue
        made = re.search(rf"{_VARIABLE}Flask\(", text, re.M) or _MADE.search(text) or _IMPORTED.search(text)
        variable = variable or (made[made.lastindex or 1] if made else "create_app()" if _FACTORY.search(text) else "")
        if variable:
            target = f"{path.replace('/', '.')}:{variable}".replace("'", '"')
            return f"gunicorn {shlex.quote(target)} {GUNICORN}"
    return wsgi("Flask", "APIFlask", "OpenAPI")(folder)


def server_module(folder: Folder) -> str:
    """Return the command of a `wsgi.py` or `asgi.py` that names its app, of any framework; "" without one."""
    for module, command, options in (("wsgi", "gunicorn", GUNICORN), ("asgi", "uvicorn", UVICORN)):
        text = folder.find_text(f"{module}.py") or ""
        if match := _SERVED.search(text):
            return f"{command} {module}:{match[1] or match[2] or match[3]} {options}"
    return ""


def script(*imports: str, names: tuple[str, ...] = SCRIPTS) -> Callable[[Folder], str]:
    """Return `python x.py` of the script that imports one of these modules, "" without one."""

    def start(folder: Folder) -> str:
        name = find_script(folder, *imports, names=names)
        return f"python {shlex.quote(name)}" if name else ""

    return start


def find_script(folder: Folder, *imports: str, names: tuple[str, ...] = SCRIPTS) -> str:
    """Return the script that imports one of these modules: by name, else one that runs, of the upper folders first."""
    pattern = re.compile(rf"^[ \t]*(?:import|from)\s+(?:{'|'.join(imports)})\b", re.MULTILINE)
    texts = folder.python_files.items()
    files = {name: text for name, text in texts if pattern.search(text) and not _TEST.search(name)}
    if named := next((name for name in names if name in files), ""):
        return named
    runs = [name for name, text in files.items() if _RUNS.search(text)]
    stems = [name.rpartition("/")[2] for name in names]

    def rank(name: str) -> tuple[int, int]:
        own = name.rpartition("/")[2]
        return name.count("/"), stems.index(own) if own in stems else len(stems)

    return min(runs or files, key=rank, default="")


def main_script(folder: Folder) -> str:
    """Return the start of a Python app without a known framework."""
    if name := next((name for name in SCRIPTS if folder.has(name)), ""):
        return f"python {name}"
    package = next(
        (each for each in (*folder.folders(), *folder.folders("src")) if folder.has(f"{each}/__main__.py")), ""
    )
    if package and "/" not in package:
        return f"python -m {package}"
    project = folder.project.get("project")
    commands = project.get("scripts") if isinstance(project, dict) else None
    if isinstance(commands, dict) and len(commands) == 1 and "build-system" in folder.project:
        return shlex.quote(str(next(iter(commands))))
    names = (name for name in folder.glob("*.py") if name not in ("setup.py", "conf.py"))
    scripts = [name for name in names if not _TEST.search(name)]
    return f"python {shlex.quote(scripts[0])}" if len(scripts) == 1 and not folder.has("index.html") else ""


def django_folder(folder: Folder) -> str | None:
    """Return the folder of manage.py: "" for the base folder, or the only one below it; None without one."""
    places = [each for each in ("", *folder.folders()) if _is_django(folder, each)]
    return places[0] if places and (places[0] == "" or len(places) == 1) else None


def django_settings(folder: Folder, place: str = "") -> str:
    """Return the settings module that manage.py names, or ""."""
    text = folder.find_text(f"{place}/manage.py".lstrip("/")) or ""
    return _named_settings(text)


def _named_settings(text: str) -> str:
    """Return the settings module that a file names, itself or by a variable; "" without one.

    Of `a if the variable of a host is set else b`, the module is b.
    """
    if match := _SETTINGS.search(text):
        return match[1]
    name = _SETTINGS_NAME.search(text)
    value = rf"^[ \t]*{name[1]}[ \t]*=[ \t]*(?:[^\n]*\belse[ \t]+)?['\"]([\w.]+)['\"]" if name else r"(?!)"
    match = re.search(value, text, re.MULTILINE)
    return match[1] if match else ""


def django_settings_texts(folder: Folder, place: str = "") -> list[str]:
    """Return the texts of a Django app's settings, which are a module or a package."""
    path = django_settings(folder, place).replace(".", "/")
    if not path:
        return []
    at = f"{place}/{path}".lstrip("/")
    names = [f"{at}.py", *folder.glob(f"{at}/*.py"), *folder.glob(f"{at.rpartition('/')[0]}/*.py")]
    return [without_comments(folder.find_text(name) or "") for name in dict.fromkeys(names)]


def django(folder: Folder) -> str:
    """Return the start of a Django app."""
    place = django_folder(folder)
    if place is None:
        return ""
    at = f"{place}/" if place else ""
    cd = f"cd {shlex.quote(place)} && " if place else ""
    package = _django_package(folder, at, django_settings(folder, place))
    texts, migrate = django_settings_texts(folder, place), ""
    if any("django.db.backends.sqlite3" in text for text in texts):
        migrate = f"{django_migrate(folder, place)}; "
    elif any(_DATABASE_URL.search(text) for text in texts):
        migrate = f"{_IF_SQLITE} && {django_migrate(folder, place)}; "
    is_asgi = not {"channels", "daphne"}.isdisjoint(folder.python_packages)
    if is_asgi and package and folder.has(f"{at}{package.replace('.', '/')}/asgi.py"):
        server = _daphne(folder.find_text(f"{at}{package.replace('.', '/')}/asgi.py") or "")
        return f"{cd}{migrate}{server} -b {HOST} -p {PORT} {package}.asgi:application"
    if package and folder.has(f"{at}{package.replace('.', '/')}/wsgi.py"):
        variable = _settings_variable(folder, at, f"{at}{package.replace('.', '/')}/wsgi.py", place)
        return f"{cd}{migrate}{variable}gunicorn {package}.wsgi {GUNICORN}"
    if not package and _SERVED.search(folder.find_text(f"{at}wsgi.py") or ""):
        return f"{cd}{migrate}gunicorn wsgi {GUNICORN}"
    return f"{cd}{migrate}python manage.py runserver --noreload {HOST}:{PORT}"


def django_migrate(folder: Folder, place: str) -> str:
    """Return the command that makes the tables, after that which writes migrations which the repository leaves out."""
    at = f"{place}/" if place else ""
    models = [name for name, text in folder.python_files.items() if name.startswith(at) and _MODEL.search(text)]
    places = [name.rpartition("/")[0] for name in models if name.endswith("/models.py")]
    apps = [each for each in places if each != place and not folder.glob(f"{each}/migrations/[0-9]*.py")]
    # One command for each: an app that is not installed fails its own.
    made = [f"python manage.py makemigrations --noinput {shlex.quote(each.rpartition('/')[2])}" for each in apps]
    return f"{{ {'; '.join((*made, _MIGRATE))}; }}" if made else _MIGRATE


def _daphne(asgi: str) -> str:
    """Return the command of Daphne; with `django.setup()` before, as under `runserver`, for modules that need it."""
    head = asgi.partition("get_asgi_application()")[0]
    settings = _SETTINGS.search(asgi)
    if not settings or not re.search(r"^(?:from|import) (?!channels|django).*\b(?:routing|consumers)\b", head, re.M):
        return "daphne"
    code = "import django; django.setup(); from daphne.cli import CommandLineInterface as Daphne; Daphne.entrypoint()"
    return f"DJANGO_SETTINGS_MODULE=${{DJANGO_SETTINGS_MODULE:-{settings[1]}}} python -c '{code}'"


def _settings_variable(folder: Folder, at: str, wsgi: str, place: str) -> str:
    """Return the variable with the settings of manage.py where wsgi.py names an empty package, or ""."""
    match = _SETTINGS.search(folder.find_text(wsgi) or "")
    text = folder.find_text(f"{at}{match[1].replace('.', '/')}/__init__.py") if match else None
    is_empty = text is not None and not re.search(r"^[^#\s]", text, re.MULTILINE)
    name = django_settings(folder, place)
    variable = "DJANGO_SETTINGS_MODULE"
    return f"{variable}=${{{variable}:-{name}}} " if is_empty and match and name and name != match[1] else ""


def django_extended_settings(folder: Folder) -> str:
    """Return the settings module of a Django app, to which the platform adds its own.

    "" where the server and manage.py have different settings, and for classes of settings.
    """
    place = django_folder(folder)
    name = django_settings(folder, place) if place is not None else ""
    if not name or "django-configurations" in folder.python_packages:
        return ""
    at = f"{place}/" if place else ""
    package = _django_package(folder, at, name).replace(".", "/")
    servers = [folder.find_text(f"{at}{package}/{each}.py") or "" for each in ("wsgi", "asgi")]
    named = {match[1] for text in servers for match in _SETTINGS.finditer(text)}
    if any(_settings_variable(folder, at, f"{at}{package}/{each}.py", place or "") for each in ("wsgi", "asgi")):
        named = {name}
    return "" if named - {name} else name


def django_additions(folder: Folder) -> list[str]:
    """Return what the settings of a Django app lack, in words of the plan: hosts, static files, a database."""
    texts = django_settings_texts(folder, django_folder(folder) or "")
    additions = []
    if not any(_ALL_HOSTS.search(text) for text in texts):
        additions.append("ALLOWED_HOSTS of the settings is extended by the hosts of this project")
    if any("django.contrib.staticfiles" in text for text in texts) and not any("whitenoise" in text for text in texts):
        additions.append("files below STATIC_URL are served by the app itself, because no WhiteNoise serves them")
    if any(_LOCAL_DATABASE.search(text) for text in texts):
        additions.append("a linked database takes the place of the local one in DATABASES")
    return additions


def django_server(folder: Folder) -> str:
    return next((f"django {name}" for name in ("daphne", "gunicorn") if name in django(folder)), "django")


def _django_package(folder: Folder, at: str, settings: str) -> str:
    """Return the package of the settings in manage.py, else one with a wsgi.py."""
    match = re.match(r"([\w.]+)\.settings\b", settings)
    if match and folder.has(f"{at}{match[1].replace('.', '/')}/wsgi.py", f"{at}{match[1].replace('.', '/')}/asgi.py"):
        return match[1]
    names = (each.rpartition("/")[2] for each in folder.folders(at.rstrip("/")))
    return next((name for name in names if name.isidentifier() and folder.has(f"{at}{name}/wsgi.py")), "")


def _is_django(folder: Folder, place: str) -> bool:
    text = folder.find_text(f"{place}/manage.py".lstrip("/")) or ""
    return (
        re.search(r"DJANGO_SETTINGS_MODULE|execute_from_command_line|^[ \t]*(?:import|from) django\b", text, re.M)
        is not None
    )


def _rank(name: str) -> tuple[int, int, str]:
    path = PurePosixPath(name)
    order = MODULES.index(path.stem) if path.stem in MODULES else len(MODULES)
    return len(path.parts) - (path.stem == "__init__"), order, name


def _is_entry(name: str) -> bool:
    return PurePosixPath(name).stem in (
        "wsgi",
        "asgi",
        "main",
        "app",
        "run",
        "server",
        "application",
        "startup",
        "autoapp",
        "manage",
        "index",
    )


def _parameters(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip() and each.strip()[0] not in "*/"]


def _cd(app: AppObject) -> str:
    return f"cd {shlex.quote(app.folder)} && " if app.is_script_folder else ""


def _at(folder: Folder, name: str, text: str, variable: str) -> AppObject:
    """Return the import path of a module, from the folder that its imports expect."""
    path = PurePosixPath(name)
    parts = list(path.parts[:-1]) + ([] if path.stem == "__init__" else [path.stem])
    parents = path.parts[:-1]
    if not parents:
        return AppObject(f"{'.'.join(parts)}:{variable}", "")
    imported = {match[0] or match[1] for match in _IMPORTS.findall(text)}
    if (
        parents[0] not in imported
        and path.stem != "__init__"
        and not re.search(r"^[ \t]*from[ \t]+\.", text, re.MULTILINE)
    ):
        here = "/".join(parents)
        beside = [each for each in imported if folder.has(f"{here}/{each}.py", f"{here}/{each}/__init__.py")]
        if any(not folder.has(f"{each}.py", f"{each}/__init__.py") for each in beside) or not _is_name(parents):
            return AppObject(f"{path.stem}:{variable}", here, is_script_folder=True)
    top = len(parents)
    while top > 0 and folder.has("/".join((*parents[:top], "__init__.py"))):
        top -= 1
    is_plain = parents[0] in imported or top == 0 or (top == len(parents) and _is_name(parents))
    root = "" if is_plain else "/".join(parents[:top])
    return AppObject(f"{'.'.join(parts if is_plain else parts[top:])}:{variable}", root)


def _is_name(parts: tuple[str, ...]) -> bool:
    return all(part.isidentifier() for part in parts)
