"""Outputs of failed builds and apps, and the sentences that explain them."""

from __future__ import annotations

import pytest

from moorage.runtime.builds.diagnosis import (
    MAX_CHARS,
    MAX_OUTPUT_CHARS,
    explain,
    lacks_database,
    needed_python,
    reason,
    refused_visitors,
)
from moorage.runtime.sandbox.runs.job import Finished

NODE_STACK = """
node:internal/modules/cjs/loader:1404
  throw err;
  ^

Error: Cannot find module {!r}
Require stack:
- /work/index.js
    at Function._resolveFilename (node:internal/modules/cjs/loader:1401:15) {{
  code: 'MODULE_NOT_FOUND'
}}

Node.js v24.0.0
"""
CASES = {
    "a Go package that vendor lacks": (
        'app/route.go:14:2: cannot find package "code.test/router" in any of:\n\t/tmp/go/src/vendor/code.test/router\n',
        ("the package code.test/router is not in the folder vendor", "go mod tidy"),
    ),
    "a Go module of a program without go.mod": (
        "go: finding module for package code.test/router\ngo: app imports\n\tcode.test/router: cannot find module "
        'providing package code.test/router: Get "https://proxy.test/@v/list": dial tcp: lookup a.test: no such host\n',
        ("go mod vendor",),
    ),
    "a package of Node.js": (NODE_STACK.format("express"), ("package express", "npm install express", "package.json")),
    "a package with a scope": (NODE_STACK.format("@hono/node-server/x"), ("npm install @hono/node-server`",)),
    "a module of the app": (
        NODE_STACK.format("./config.json"),
        ("index.js requires ./config.json", "commit that file"),
    ),
    "a file": (NODE_STACK.format("/work/dist/server.js"), ("no file dist/server.js", "`start` script")),
    "an import": (
        'Traceback (most recent call last):\n  File "/work/app.py", line 1, in <module>\n    import requests\n'
        "ModuleNotFoundError: No module named 'requests'\n",
        ("module requests", "requirements.txt"),
    ),
    "syntax": (
        '  File "/work/app.py", line 2\n    def index(:\n              ^\nSyntaxError: invalid syntax\n',
        ("app.py, line 2: SyntaxError: invalid syntax",),
    ),
    "a variable that a value is taken from": (
        '    HOSTS = os.environ.get("SHOP_HOSTS").split(" ")\n            ^^^^^^^^\n'
        "AttributeError: 'NoneType' object has no attribute 'split'\n",
        ("the variable SHOP_HOSTS is not set",),
    ),
    "a module that an old node-gyp compiles": (
        "npm ERR! ValueError: invalid mode: 'rU' while trying to load binding.gyp\nnpm ERR! gyp ERR! configure error\n"
        "npm ERR! gyp ERR! cwd /work/node_modules/node-sass\nnpm ERR! gyp ERR! node -v v16.20.2\n",
        ("the version of node-sass in package.json", "raise it"),
    ),
    "a type error": (
        "> tsc -b && vite build\n\nsrc/App.tsx(3,5): error TS6133: 'React' is declared but its value is never read.\n",
        ("src/App.tsx, line 3: TS6133: 'React' is declared", "build script in package.json"),
    ),
    "a variable that an app misses": (
        "Traceback (most recent call last):\nException: DATABASE_URL environment variable not defined\n",
        ("the variable DATABASE_URL is not set", "`moorage databases create <project>-db --project <project>`"),
    ),
    "a variable that a schema requires": (
        'Error: Config validation error: "MONGODB_URL" is required\n    at Object.<anonymous> (/work/config.js:27:9)',
        ("the variable MONGODB_URL is not set", "the platform has no MongoDB", "`secrets`"),
    ),
    "a variable that a client requires": (
        "OpenAIError: The OPENAI_API_KEY environment variable is missing or empty; either provide it",
        ("the variable OPENAI_API_KEY is not set",),
    ),
    "a variable that a message asks for": ("Error: Please set STRIPE_SECRET_KEY\n", ("variable STRIPE_SECRET_KEY is",)),
    "variables that a build checks": (
        "❌ Invalid environment variables: [\n  {\n    code: 'invalid_type',\n    path: [ 'AUTH_DISCORD_ID' ],\n",
        ("the variable AUTH_DISCORD_ID is not set",),
    ),
    "a database that is gone": (
        "Error: querySrv ENOTFOUND _mongodb._tcp.cluster0.abc.mongodb.net\n",
        ("MongoDB at cluster0.abc.mongodb.net", "variable"),
    ),
    "a page that requests its content while it is built": (
        'Error occurred prerendering page "/isr". Read more: https://nextjs.org/docs\nTypeError: fetch failed\n',
        ("the page /isr requests", "force-dynamic"),
    ),
    "the programs of Prisma": (
        "Error: request to https://binaries.prisma.sh/all_commits/6b0a/libquery_engine.so.node.sha256 failed, reason: "
        "getaddrinfo ENOTFOUND binaries.prisma.sh\nnpm error command failed\n",
        ("Prisma, which package.json lists", "have the operator allow that host"),
    ),
    "an entry that is not in the repository": (
        'error during build:\nCould not resolve entry module "resources/js/app.js".\n    at getRollupError\n',
        ("resources/js/app.js, which is not in the repository", "vite.config"),
    ),
    "a source of a Gatsby site": (
        'error Invalid plugin options for "gatsby-source-contentful":\n\n- "accessToken" is required\n- "spaceId" is '
        "required\nnot finished load plugins - 2.580s\n",
        ("gatsby-config", "gatsby-source-contentful no valid accessToken, spaceId", "`secrets`"),
    ),
    "a package of a workspace": (
        'npm error code EUNSUPPORTEDPROTOCOL\nnpm error Unsupported URL Type "workspace:": workspace:*\n',
        ("package.json", "`workspace:`", "baseDir"),
    ),
    "a host of Docker Compose": (
        "Error: getaddrinfo ENOTFOUND redis\n    at GetAddrInfoReqWrap.onlookup (node:dns:107:26)\n",
        ("the host redis", "the platform has no Redis"),
    ),
    "a database of Docker Compose": (
        'psycopg2.OperationalError: could not translate host name "db" to address: Name or service not known\n',
        ("the host db", "moorage databases create"),
    ),
    "a host that a build downloads from": (
        "[cause]: Error: getaddrinfo ENOTFOUND fonts.example.com\nError: Cannot find the font path.\n",
        ("fonts.example.com", "commit the files"),
    ),
    "an old lock file": (
        "npm error code EUSAGE\nnpm error `npm ci` can only install packages when your package.json and "
        "package-lock.json or npm-shrinkwrap.json are in sync.\n",
        ("package-lock.json does not match package.json", "npm install"),
    ),
    "a package for a newer Python": (
        "error: No solution found when resolving dependencies\n  cause: Because the current Python version (3.11.2) "
        "does not satisfy Python>=3.12 and django>=6.0,<=6.0.10 depends on Python>=3.12, we can conclude that\n",
        ("django needs Python >=3.12, and this app has 3.11.2", "requirements.txt"),
    ),
    "a package that downloads": (
        "npm warn Could not resolve dependency:\nnpm warn peer react@17 from x\nnpm error code 1\n"
        "npm error path /work/node_modules/sharp\nnpm error command failed\n"
        "npm error sharp: Installation error: getaddrinfo ENOTFOUND files.example.test\n",
        ("sharp", "package.json", "files.example.test"),
    ),
    "a tool that downloads in the build": (
        "Error: request to https://binaries.example.test/all_commits/0c1f/schema-engine.gz failed, reason: getaddrinfo "
        "ENOTFOUND binaries.example.test\n",
        ("package.json", "binaries.example.test", "operator"),
    ),
    "a package from a repository": (
        "npm error request to https://codeload.example.test/acme/tides/tar.gz/0c1f failed, reason: getaddrinfo "
        "ENOTFOUND codeload.example.test\n",
        ("package.json", "acme/tides", "package registry"),
    ),
    "settings that are not valid": (
        "pydantic_core.ValidationError: 1 validation error for Config\n  Value error, no tide [type=value]\n",
        ("Config", "Value error, no tide", "`env`"),
    ),
    "a client of Prisma that was not generated": (
        "Error: @prisma/client did not initialize yet. Please run it.\n",
        ("prisma generate", "package.json", "operator"),
    ),
    "an old package on a newer Python": (
        "Error: module 'inspect' has no attribute 'getargspec'\n",
        ("too old for its version of Python", ".python-version", "getargspec"),
    ),
    "a new package beside an old one": (
        "ImportError: cannot import name 'url_quote' from 'werkzeug.urls' (/work/.venv/lib/urls.py)\n",
        ("too new for another package", "requirements.txt", "url_quote"),
    ),
    "a variable of a file of variables": (
        '  File "/work/db.py", line 7, in <module>\n    URL = config["DATABASE_URL"]\nKeyError: \'DATABASE_URL\'\n',
        ("variable DATABASE_URL is not set", "moorage databases create"),
    ),
    "a variable of Python": (
        "Traceback:\n  File \"<frozen os>\", line 679, in __getitem__\nKeyError: 'STRIPE_KEY'\n",
        ("the variable STRIPE_KEY is not set", "`env`"),
    ),
    "a variable of Pydantic": (
        "pydantic_core.ValidationError: 1 validation error for Settings\nAPI_TOKEN\n  Field required [type=missing]\n",
        ("the variable API_TOKEN is not set",),
    ),
    "a variable of Pydantic for a database": (
        "pydantic.error_wrappers.ValidationError: 1 validation error for Settings\ndatabase_hostname\n  field required "
        "(type=value_error.missing)\n",
        ("the variable database_hostname is not set", "moorage databases create"),
    ),
    "no address of a database": (
        "AttributeError: 'NoneType' object has no attribute '_instantiate_plugins'\n",
        ("no address of its database", "DATABASE_URL"),
    ),
    "a database on its own machine": (
        "Error: connect ECONNREFUSED 127.0.0.1:5432\n    at TCPConnectWrap\n",
        ("PostgreSQL on its own machine", "moorage databases create"),
    ),
    "a MongoDB on its own machine": (
        "MongooseServerSelectionError: connect ECONNREFUSED ::1:27017\n",
        ("MongoDB on its own machine", "the platform has no MongoDB"),
    ),
    "a database that asyncpg expects": (
        "ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 5432)\n\nERROR:    Application startup "
        "failed. Exiting.\n",
        ("PostgreSQL on its own machine", "moorage databases create"),
    ),
    "an address of MongoDB without its values": (
        "Error: Unable to parse undefined:undefined with URL {\n  cause: TypeError: Invalid URL\n"
        "      at parseOptions (/work/node_modules/mongodb/lib/connection_string.js:197:45)\n",
        ("no valid address of MongoDB", "`secrets`"),
    ),
    "a theme that is a Hugo module": (
        'ERROR failed to load modules: failed to download modules: binary with name "go" not found in PATH',
        ("go.mod", "hugo mod vendor", "_vendor"),
    ),
    "TypeORM without its settings": (
        "Error: No connection options were found in any of configurations file.\n    at a.js",
        ("commit a file ormconfig.js", "DATABASE_URL"),
    ),
    "a request that fails": (
        "[500] GET /\nTypeError: fetch failed\n    at node:internal/deps/undici/undici:14976:13\n",
        ("an address that cannot be reached", "allow its host"),
    ),
    "a download at the start of a Python app": (
        '  File "/work/.venv/bin/gunicorn", line 10, in <module>\n    run()\n'
        '  File "/work/ships/data.py", line 7, in <module>\n    TABLE = read_csv(URL)\n'
        '  File "/work/.venv/lib/python3.11/site-packages/pandas/io.py", line 9, in read_csv\n    return get()\n'
        "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>\n",
        ("ships/data.py, line 7 downloads from a host", "commit the files"),
    ),
    "a request of a Python app that fails": (
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='tides.example', port=443): Max retries "
        "exceeded with url: / (Caused by NameResolutionError(\"HTTPSConnection(host='tides.example', port=443)\"))",
        ("the code connects to tides.example, which", "allow that host"),
    ),
    "an error of Vite": (
        'error during build:\nmain.js (1:7): "default" is not exported by "shared.js".\nfile: /work/main.js:1:7\n',
        ('main.js (1:7): "default" is not exported by "shared.js".',),
    ),
    "an old lock file of pnpm": ("ERR_PNPM_OUTDATED_LOCKFILE  Cannot install\n", ("pnpm-lock.yaml", "pnpm install")),
    "a package that does not exist": (
        "npm error code E404\nnpm error 404  'no-such-harbor@1.0.0' is not in this registry.\n",
        ("package.json names no-such-harbor@1.0.0",),
    ),
    "a version that does not exist": (
        "npm error code ETARGET\nnpm error notarget No matching version found for express@99.0.0.\n",
        ("package.json, or a package that it names, needs express@99.0.0, which", "lock file"),
    ),
    "a requirement that does not exist": (
        "ERROR: No matching distribution found for no-such-harbor==1.0\n",
        ("requirements.txt names no-such-harbor==1.0",),
    ),
    "an invalid requirement": (
        "ERROR: Invalid requirement: 'flask=>3' (from line 2 of requirements.txt)\n",
        ("requirements.txt has the invalid line `flask=>3`",),
    ),
    "an invalid requirement of uv": (
        "error: Couldn't parse requirement in `requirements.txt` at position 15\n  cause: no such comparison operator\n"
        "         flask=>3\n              ^^^\n",
        ("requirements.txt has the invalid line `flask=>3`",),
    ),
    "a package that is not in the index": (
        "error: No solution found\n  cause: Because no-such-harbor was not found in the package registry and you\n",
        ("has no no-such-harbor", "requirements.txt"),
    ),
    "a version that is not in the index": (
        "  cause: Because there is no version of django==99.0 and\n",
        ("django==99.0",),
    ),
    "a program": ("> vite build\n\nsh: 1: vite: not found\n", ("program vite", "devDependencies", "package.json")),
    "memory": ("FATAL ERROR: Reached heap limit - JavaScript heap out of memory\n", ("MOORAGE_BUILD_MEMORY_MB",)),
    "words after those of a process manager": (
        "10:17:02 0|app    | Error: Config validation error: URL is required\n10:17:02 0|app    |     at x.js\n",
        ("Error: Config validation error: URL is required",),
    ),
    "its own words": (
        "\x1b[31mError: the template is missing\x1b[0m\n    at build (/work/build.js:1:7)\nNode.js v24.0.0\n",
        ("Error: the template is missing",),
    ),
}


@pytest.mark.parametrize(("output", "parts"), CASES.values(), ids=CASES)
def test_output_of_a_failed_program_is_explained_in_one_sentence(output: str, parts: tuple[str, ...]) -> None:
    sentence = explain(output)

    assert sentence is not None
    assert [part for part in parts if part not in sentence] == []
    assert "\n" not in sentence


def test_output_without_an_error_is_not_explained() -> None:
    assert explain("listening\nerror Command failed with exit code 1.\nnpm error code ELIFECYCLE\n") is None


def test_a_long_error_is_cut() -> None:
    assert len(explain(f"Error: {'x' * 5000}") or "") == MAX_CHARS + 1


def test_a_started_django_app_that_refuses_the_host_of_its_visitors_is_noticed() -> None:
    output = "Invalid HTTP_HOST header: 'shop.localhost:8080'. You may need to add 'shop.localhost' to ALLOWED_HOSTS."

    warning = refused_visitors(f"Watching for file changes\n{output}\nBad Request: /")

    assert warning == "visitors get status 400: add 'shop.localhost' to ALLOWED_HOSTS in the settings of Django"
    assert refused_visitors("Invalid HTTP_HOST header: 'a b'. The domain name provided is not valid") is None


def test_the_version_of_python_that_a_dependency_needs_is_read_from_the_output_of_uv() -> None:
    output = (
        "  × No solution found when resolving dependencies:\n"
        "  ╰─▶ Because the current Python version (3.11.2) does not satisfy Python>=3.12 and\n"
        "      django==6.0 depends on Python>=3.12, we can conclude that django==6.0 cannot be used.\n"
    )

    assert needed_python(output) == ">=3.12"
    assert needed_python("ModuleNotFoundError: No module named 'django'") == ""


def test_the_sentence_names_the_project_and_the_database() -> None:
    sentence = explain("Error: connect ECONNREFUSED 127.0.0.1:3306\n", "shop")

    assert sentence is not None
    assert "`moorage databases create shop-db --type mysql --project shop`" in sentence
    finished = Finished(1, "")
    assert reason(finished, "Error: connect ECONNREFUSED 127.0.0.1:3306\n", 10, "shop") == f"exit code 1: {sentence}"


def test_variables_of_the_example_are_named_for_an_app_that_prints_no_error() -> None:
    names = [f"TIDE_{number}" for number in range(10)]

    assert explain("listening soon\n", "shop", names[:2]) == (
        "its example of variables names TIDE_0, TIDE_1, which are not set: set them in `env` or `secrets`"
    )
    assert "TIDE_7 and others, which" in (explain("", "shop", names) or "")
    assert explain("Error: no tide\n", "shop", names) == "Error: no tide"
    assert explain("TypeError: expected token to be a str, received NoneType\n", "shop", ["TOKEN"]) == (
        "TypeError: expected token to be a str, received NoneType; its example of variables names TOKEN, which are not "
        "set: set them in `env` or `secrets`"
    )


def test_a_database_mends_failures_of_missing_servers_and_of_variables_with_their_parts() -> None:
    refused = explain("Error: connect ECONNREFUSED 127.0.0.1:5432\n") or ""

    assert lacks_database(refused)
    assert lacks_database("the variable DBUSER is not set, and so on", ("DBUSER",))
    assert not lacks_database("the variable API_KEY is not set, and so on", ("DBUSER",))


@pytest.mark.parametrize(
    "output",
    [
        "MongoParseError: Invalid scheme\n",
        'MongooseError: The `uri` parameter to `openUri()` must be a string, got "undefined". Make sure\n',
        "MongooseError: Operation `tasks.find()` buffering timed out after 10000ms\n",
    ],
)
def test_the_variable_of_a_server_that_the_platform_lacks_is_named(output: str) -> None:
    assert "in the variable MONGO_URI, in `secrets`" in (explain(output, addresses=["REDIS_URL", "MONGO_URI"]) or "")
    assert "in a variable that the app reads" in (explain(output, addresses=["REDIS_URL"]) or "")
    assert "in a variable that lib/db.js reads" in (explain(output, addresses=["lib/db.js"]) or "")


def test_only_the_end_of_an_output_is_searched() -> None:
    cause = "ModuleNotFoundError: No module named 'requests'\n"
    more = "line\n" * (MAX_OUTPUT_CHARS // 5)

    assert "requests" in (explain(more + cause) or "")
    assert explain(cause + more) is None
