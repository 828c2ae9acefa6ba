"""Explain why a build or an app failed, in one sentence from its output: the file, and the fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from moorage.runtime.builds import system_packages
from moorage.runtime.sandbox.runs.job import OUT_OF_MEMORY, TIMED_OUT, Finished

MEMORY_FIX = ": let it do less at once, or raise MOORAGE_BUILD_MEMORY_MB"
PROJECT = "<project>"  # stands for the name of the project in a sentence
MAX_VARIABLES = 8  # that are named
MAX_CHARS = 240  # of a line that is quoted
MAX_LINE_CHARS = 1000  # of a line that is searched
# Characters at the end of an output that are searched. All rules together take 50 ms for so many, in the event loop.
MAX_OUTPUT_CHARS = 64 * 1024
_ROOT = r"(?:/work/|file:///work/)"  # where sandboxes see the sources
ANY_VARIABLE = "a variable that the app reads"
_CREATE_COMMAND = "moorage databases create"
IGNORED_DATABASE = (
    "the app does not use its linked database: let it read the address from DATABASE_URL, or from PGHOST and the like "
    "(MYSQL_HOST for MySQL)"
)
_VARIABLE = r"[A-Z][A-Z0-9]{0,60}_[A-Z0-9_]{1,100}"
_VARIABLE_NAME = re.compile("[A-Z][A-Z0-9_]*")
# Of an error line: a value is missing.
_NOTHING = re.compile(
    r"(?i)\b(?:None(?:Type)?|undefined|null|missing|required|empty|token|api[ _-]?key|credentials?"
    r"|not been set|connection string)\b"
)
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Rule(NamedTuple):
    """Output of a program, and the sentence that it means."""

    pattern: re.Pattern[str]
    sentence: Callable[[re.Match[str]], str]


def explain(
    output: str, project: str = PROJECT, variables: Sequence[str] = (), addresses: Sequence[str] = ()
) -> str | None:
    """Return one sentence for the output of a failed program, or None.

    `variables` are those that the repository names in an example, and `addresses` those from which the code reads the
    address of a server; neither is set.
    """
    text = _COLOURS.sub("", output[-MAX_OUTPUT_CHARS:])
    sentence, error = _explained(text), error_line(text) or ""
    if sentence is None and variables and (not error or _NOTHING.search(error)):
        shown = ", ".join(variables[:MAX_VARIABLES]) + (" and others" if len(variables) > MAX_VARIABLES else "")
        sentence = f"its example of variables names {shown}, which are not set: set them in `env` or `secrets`"
        sentence = f"{error}; {sentence}" if error else sentence
    sentence = _with_address(sentence or error, addresses)
    return sentence.replace(PROJECT, project) if sentence else None


def _with_address(sentence: str, addresses: Sequence[str]) -> str:
    """Name the variable of an address in a sentence about a server that the platform does not have."""
    others = re.compile("MONGO" if "Redis" in sentence else "REDIS")
    name = next((each for each in addresses if not others.search(each)), "")
    shown = f"the variable {name}" if _VARIABLE_NAME.fullmatch(name) else f"a variable that {name} reads"
    return sentence.replace(ANY_VARIABLE, shown) if name else sentence


def _explained(text: str) -> str | None:
    if missing := system_packages.explain_missing(text):
        return missing
    for rule in RULES:
        if matches := list(rule.pattern.finditer(text)):
            return rule.sentence(matches[-1])
    return None


def lacks_database(sentence: str, parts: Collection[str] = ()) -> bool:
    """Return whether a PostgreSQL or MySQL would mend a failure, by its sentence.

    `parts` are variables that a linked database sets.
    """
    match = re.search(r"(?:^|: )the variable (\w+) is not set", sentence)
    return _CREATE_COMMAND in sentence or (match is not None and match[1] in parts)


def needed_python(output: str) -> str:
    """Return the version of Python that a dependency needs, such as `>=3.12`; "" if that is not the failure."""
    matches = _OTHER_PYTHON.findall(_COLOURS.sub("", output[-MAX_OUTPUT_CHARS:]))
    return str(matches[-1][1]) if matches else ""


def refused_visitors(output: str) -> str | None:
    """Return a sentence if a started app refuses the host name of its visitors, else None."""
    match = _REFUSED_HOST.search(output[-MAX_OUTPUT_CHARS:])
    return f"visitors get status 400: add {match[1]!r} to ALLOWED_HOSTS in the settings of Django" if match else None


def error_line(output: str) -> str | None:
    """Return the last line that names an error, without the prefix of a process manager."""
    error = None
    for line in output.splitlines():
        match = _ERROR.search(line.strip()[:MAX_LINE_CHARS])
        if match and not _NOISE.search(line[:MAX_LINE_CHARS]):
            error = match[0]
    return error if error is None or len(error) <= MAX_CHARS else f"{error[:MAX_CHARS]}…"


def rule(pattern: str, sentence: str | Callable[[re.Match[str]], str]) -> Rule:
    """Return a rule; `{0}` in its sentence stands for the first group that matched."""
    if callable(sentence):
        return Rule(re.compile(pattern, re.MULTILINE), sentence)

    def fill(match: re.Match[str]) -> str:
        return sentence.format(*(group for group in match.groups() if group))

    return Rule(re.compile(pattern, re.MULTILINE), fill)


def _missing_module(match: re.Match[str]) -> str:
    name, source = match[1], match.groupdict().get("source")
    if name.startswith(".") and source:
        return (
            f"{source} requires {name}, which is not in the repository: commit that file, or let the `build` script in "
            "package.json create it"
        )
    if name.startswith(("/", ".")):
        path = re.sub(f"^{_ROOT}", "", name)
        return (
            f"there is no file {path}: correct the `start` script in package.json, or the build that should create "
            "the file"
        )
    package = "/".join(name.split("/")[: 2 if name.startswith("@") else 1])
    return f"the package {package} is not installed: run `npm install {package}`, and commit package.json"


def _missing_import(match: re.Match[str]) -> str:
    name = match[1].partition(".")[0]
    return f"the module {name} is not installed: add its package to requirements.txt or pyproject.toml"


def _python_syntax(match: re.Match[str]) -> str:
    return f"{match[1]}, line {match[2]}: {match[3].strip()[:MAX_CHARS]}"


def _plugin_options(match: re.Match[str]) -> str:
    names = ", ".join(re.findall(r'- "([\w.[\]-]+)"', match[2])[:MAX_VARIABLES])
    return (
        f"gatsby-config gives the plugin {match[1]} no valid {names}: set the variables that it takes them from in "
        "`env` or `secrets`"
    )


def _missing_program(match: re.Match[str]) -> str:
    name = match[1]
    return (
        f"the program {name} is not installed: add its package to devDependencies in package.json, or to "
        "requirements.txt"
    )


def _peer_conflict(match: re.Match[str]) -> str:
    return (
        f"package.json: {match[1].strip()[:MAX_CHARS]} conflicts with another dependency; correct the versions, or add "
        "an .npmrc with legacy-peer-deps=true"
    )


def _no_database(match: re.Match[str]) -> str:
    name = _DATABASES.get(next((group for group in match.groups() if group), ""), "a database")
    return f"the app connects to {name} on its own machine, and there is none: {_database_fix(name)}"


def _no_variable(match: re.Match[str]) -> str:
    name = next(group for group in match.groups() if group)
    fix = "set it in `env` or `secrets`"
    if name.upper() == "DATABASE_URL":
        fix = f"`{_CREATE_COMMAND} {PROJECT}-db --project {PROJECT}` creates a PostgreSQL and sets it"
    elif engine := next((engine for engine, pattern in _OF_ENGINES.items() if pattern.search(name.upper())), ""):
        fix = _database_fix(engine)
    return f"the variable {name} is not set, and the app does not start without it: {fix}"


def _database_fix(name: str) -> str:
    """Return how an app gets a database; the platform has PostgreSQL and MySQL."""
    if name in ("MongoDB", "Redis"):
        return f"the platform has no {name}, so set the address of a server elsewhere in {ANY_VARIABLE}, in `secrets`"
    kind = " --type mysql" if name == "MySQL" else ""
    return (
        f"`{_CREATE_COMMAND} {PROJECT}-db{kind} --project {PROJECT}` creates one, and sets its address as "
        "DATABASE_URL; set other variables that the app reads to its parts"
    )


def _compose_host(match: re.Match[str]) -> str:
    host = next(group for group in match.groups() if group)
    name = next((name for name, pattern in _OF_ENGINES.items() if pattern.search(host.upper())), "")
    return f"the app connects to the host {host}, which exists only under Docker Compose: {_database_fix(name)}"


_DATABASES = {"5432": "PostgreSQL", "3306": "MySQL", "27017": "MongoDB", "6379": "Redis"}
# Names of variables and of hosts in Docker Compose.
_OF_ENGINES = {
    "MongoDB": re.compile("MONGO"),
    "Redis": re.compile("REDIS"),
    "MySQL": re.compile("MYSQL|MARIADB"),
    "PostgreSQL": re.compile(
        "^(?:PG(?:HOST|USER|PASSWORD|DATABASE|PORT)|DB|DB_.+|DATABASE.*)$|POSTGRES|_PG_|DBHOST|DBNAME"
    ),
}
_NO_ADDRESS = f"the app has no address of its database: {_database_fix('')}"
_OLD_PACKAGES = (
    "a package of this app is too old for its version of Python, or too new for another package: raise the versions in "
    "requirements.txt, or name the Python that it needs in .python-version ({0})"
)
_OTHER_PYTHON = re.compile(r"the current Python version \(([\d.]+)\) does not satisfy Python(\S+) and\s+([\w.-]+)")
_STALE_LOCK = "{} does not match package.json: run `{}`, and commit the lock file"
_NODE_MEMORY = (
    "Node.js ran out of memory: reduce what it loads at once, or give it more (MOORAGE_BUILD_MEMORY_MB for builds, a "
    "larger tier for apps)"
)
_OLD_HASHES = (
    "webpack 4 needs a hash that this Node.js refuses: update webpack, or ask for Node.js 16 in .nvmrc or in `engines` "
    "of package.json"
)
# The first rule that matches counts; of several places in the output, the last.
RULES = (
    rule(
        rf"Cannot find (?:module|package) '([^'\n]+)'(?:\nRequire stack:\n- {_ROOT}(?P<source>\S+))?",
        _missing_module,
    ),
    rule(r"Can't resolve '((?:@[\w.-]+/)?\w[\w.-]*)' in", _missing_module),
    rule(r"failed to resolve import \"((?:@[\w.-]+/)?\w[\w.-]*)\"", _missing_module),
    rule(r"ModuleNotFoundError: No module named '([\w.]+)'", _missing_import),
    rule(
        r"^[ \t]*(?:AttributeError|ImportError|Error): ((?:'xml\.etree\.ElementTree\.Element' object has no attribute"
        r" 'getiterator'|module '(?:inspect|collections|asyncio|fractions|time)' has "
        r"no attribute|cannot import name '\w+' from '(?:collections|werkzeug|jinja2|markupsafe|itsdangerous|flask"
        r"|click|typing|importlib)\b)[^\n]{0,120})",
        _OLD_PACKAGES,
    ),
    rule(
        r"in __getitem__\n(?:[^\n]*\n){0,3}?KeyError: '([A-Z][A-Z0-9_]+)'|^KeyError: '([A-Z][A-Z0-9]*_[A-Z0-9_]+)'$"
        r"|Environment variable not found: (\w+)|UndefinedValueError: (\w+) not found"
        r"|ImproperlyConfigured: Set the (\w+) environment variable"
        r"|validation errors? for \w*[Ss]ettings\n(\w+)\n\s+(?:Field required|field required)"
        r"|Missing required environment variable:? (\w+)"
        r"|(?:environ\.get|getenv)\(\s*['\"]([A-Z][A-Z0-9_]+)['\"]\s*\)[^\n]{0,300}\n(?:[ \t~^]{1,300}\n)?"
        r"(?:AttributeError: 'NoneType' object|TypeError: [^\n]*'?NoneType)",
        _no_variable,
    ),
    rule(
        rf"(?:Error|Exception)\b[^\n]{{0,80}}?\b({_VARIABLE})\b['\"`]?(?: environment| env)?(?: variable| var)?"
        r"(?: is| was| are| must be| has to be| needs to be)?(?: not)? ?"
        r"(?:set|defined|found|provided|required|missing|undefined|configured|empty)\b"
        r"|(?:Error|Exception): (?:Please )?(?:[Mm]issing|[Ss]et|[Pp]rovide|[Ss]pecify|[Dd]efine)\b"
        rf"[^\n]{{0,60}}?\b({_VARIABLE})\b"
        rf"|Invalid environment variables:?[\s\S]{{0,300}}?\b({_VARIABLE})\b",
        _no_variable,
    ),
    rule(
        r"ValidationError: \d{1,9} validation errors? for (\w+)\n(?:(\w+)\n)?[ \t]{1,20}([^\s\[][^\n\[]{0,300})",
        lambda match: (
            f"the variables that {match[1]} reads are not valid: {f'{match[2]}: ' if match[2] else ''}"
            f"{match[3].rstrip()}: set them in `env` or `secrets`"
        ),
    ),
    rule(
        r"binaries\.prisma\.sh\S{0,300} failed, reason|(?:ENOTFOUND|EAI_AGAIN) binaries\.prisma\.sh",
        "Prisma, which package.json lists, downloads its programs from binaries.prisma.sh, which cannot be reached "
        "from here: have the operator allow that host, or update to Prisma 7, whose client needs none",
    ),
    rule(
        r"@prisma/client did not initialize yet",
        "Prisma's client was not generated: add `prisma generate` to the `build` script in package.json; it downloads "
        "programs from binaries.prisma.sh, which the operator has to allow",
    ),
    rule(
        r"'NoneType' object has no attribute '_instantiate_plugins'|Expected string or URL object, got None"
        r"|Either 'SQLALCHEMY_DATABASE_URI' or 'SQLALCHEMY_BINDS' must be set",
        _NO_ADDRESS,
    ),
    rule(
        r"failed to (?:load|download) modules\b",
        "go.mod names a theme as a Hugo module, which cannot be downloaded from here: run `hugo mod vendor` and commit "
        "the folder _vendor",
    ),
    rule(
        r"No connection options were found in any \w+ configurations? files?",
        "TypeORM has no settings of a database: commit a file ormconfig.js that takes the address from DATABASE_URL, "
        "which a linked database sets",
    ),
    rule(
        r"ECONNREFUSED [^\n]{0,200}?:(5432|3306|27017|6379)\b"
        r"|(?:localhost|127\.0\.0\.1)[^\n]{0,200}\bport (5432|3306)\b[^\n]{0,200}failed"
        r"|Can't connect to MySQL server on '(?:localhost|127\.0\.0\.1)|localhost:(27017): \[Errno 111\]"
        r"|Error 111 connecting to localhost:(6379)|Connect call failed \('[\w.:]+', (5432|3306|27017|6379)\)",
        _no_database,
    ),
    rule(
        r"MongoParseError: [^\n]+|Error: Invalid connection string$|/mongodb/lib/connection_string\.js"
        r"|`uri` parameter to `openUri\(\)` must be a string, got \"undefined\""
        r"|MongooseError: Operation [^\n]{1,200} buffering timed out",
        f"the app has no valid address of MongoDB: {_database_fix('MongoDB')}",
    ),
    rule(
        r"querySrv (?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEOUT) _mongodb\._tcp\.([\w.-]+)",
        f"the app connects to MongoDB at {{0}}, which cannot be found: set the address of yours in {ANY_VARIABLE}",
    ),
    rule(
        r"getaddrinfo (?:ENOTFOUND|EAI_AGAIN) ([a-z][\w-]*)(?![\w.-])"
        r"|could not translate host name \"([a-z][\w-]*)\" to address|Unknown MySQL server host '([a-z][\w-]*)'"
        r"|Error -[235] connecting to ([a-z][\w-]*):\d+\.",
        _compose_host,
    ),
    rule(
        # The first message is found once, so that the search is linear.
        r"\A(?>[\s\S]*?(?:invalid mode: 'rU' while trying|SyntaxError: Missing parentheses in call to 'print'))[\s\S]*?"
        r"gyp ERR! cwd \S{0,300}node_modules/((?:@[\w.-]+/)?[\w.-]+)",
        "the version of {0} in package.json is too old to be compiled with this Python: raise it (`sass` is the "
        "successor of node-sass)",
    ),
    rule(
        rf"File \"{_ROOT}?([^\"\n]+)\", line (\d+)\n(?:[^\n]*\n){{1,3}}?\s*((?:Syntax|Indentation|Tab)Error: [^\n]+)",
        _python_syntax,
    ),
    rule(
        r"npm ci` can only install packages when your package\.json",
        _STALE_LOCK.format("package-lock.json", "npm install"),
    ),
    rule(
        r"ERR_PNPM_(?:OUTDATED_LOCKFILE|LOCKFILE_CONFIG_MISMATCH)",
        _STALE_LOCK.format("pnpm-lock.yaml", "pnpm install"),
    ),
    rule(
        r"Your lockfile needs to be updated|The lockfile would have been modified",
        _STALE_LOCK.format("yarn.lock", "yarn install"),
    ),
    rule(
        r"(?:npm error|npm ERR!) 404 +(?:'([^'\n]+)' is not in|The requested resource '([^'\n]+)' could not)",
        "package.json names {0}, which is not in the package registry: correct its name and version",
    ),
    rule(
        r"No matching version found for ([^\s\n]+?)\.?$",
        "package.json, or a package that it names, needs {0}, which the package registry does not have: correct the "
        "version, or commit a lock file of versions that exist",
    ),
    rule(r"Invalid plugin options for \"([\w@./-]+)\":\s{0,20}\n((?:\s{0,20}- \"[^\n]+\n)+)", _plugin_options),
    rule(
        r"Unsupported URL Type \"workspace:\"",
        "package.json has a dependency of version `workspace:`, which only pnpm, Yarn and Bun know: commit their lock "
        "file, or push the whole workspace and set baseDir",
    ),
    rule(r"npm (?:error|ERR!) Could not resolve dependency:\n[^\n]*?(peer [^\n]+)", _peer_conflict),
    rule(
        r"npm (?:error|ERR!) path \S*node_modules/((?:@[\w.-]+/)?[\w.-]+)\n"
        r"(?:npm (?:error|ERR!)[^\n]*\n){0,40}?[^\n]*getaddrinfo (?:ENOTFOUND|EAI_AGAIN) (\S+)",
        "the package {0} in package.json downloads a program from {1} when it is installed, which cannot be reached "
        "from here: use a newer version of it, which may bring the program along",
    ),
    rule(
        r"request to https?://codeload\.[\w.]{1,100}/([\w.-]{1,100}/[\w.-]{1,100})\S{0,300} failed, reason:[^\n]{0,300}"
        r"\b(?:ENOTFOUND|EAI_AGAIN)",
        "package.json or its lock file takes a package from the repository {0}, which cannot be reached from here: use "
        "a version of the package registry instead",
    ),
    rule(
        r"request to https?://([\w.-]{1,100})\S{0,300} failed, reason:[^\n]{0,300}"
        r"\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT)",
        "a package of package.json downloads a file from {0} when it builds, which cannot be reached from here: use a "
        "version of it that brings the file along, or have the operator allow that host",
    ),
    rule(
        r"No matching distribution found for ([^\n]+)",
        "requirements.txt names {0}, and the package index has no such version for this Python: correct it",
    ),
    rule(
        _OTHER_PYTHON.pattern,
        "{2} needs Python {1}, and this app has {0}: require an older {2} in requirements.txt or pyproject.toml, or "
        "have the operator install that Python",
    ),
    rule(
        r"Because there is no version of (\S+)",
        "the package index has no {0} for this Python: correct it in requirements.txt or pyproject.toml",
    ),
    rule(
        r"Because (\S+) was not found in the package registry",
        "the package index has no {0}: correct its name in requirements.txt or pyproject.toml",
    ),
    rule(
        r"Couldn't parse requirement in `([^`\n]+)`[^\n]{0,300}\n[^\n]{0,1000}\n"
        r"[ \t]{0,100}([^\s][^\n]{0,1000})\n\s{0,1000}\^",
        "{0} has the invalid line `{1}`: write it as name==version",
    ),
    rule(
        r"Invalid requirement: ['\"]?([^'\"\n]+)",
        "requirements.txt has the invalid line `{0}`: write it as name==version",
    ),
    rule(
        r"missing go\.sum entry|updates to go\.(?:mod|sum) needed|no required module provides package",
        "go.mod and go.sum do not match the sources: run `go mod tidy` and commit both files",
    ),
    rule(
        r"^\S+\.go:\d+:\d+: cannot find package \"([^\"\n]+)\" in any of:",
        "the package {0} is not in the folder vendor: add it, or run `go mod init` and `go mod tidy`, and commit "
        "go.mod and go.sum",
    ),
    rule(
        r"^(?:go: |(?>\S+\.go:\d+)|(?>[ \t]+[\w.-]+/\S+: ))[^\n]*"
        r"(?:proxy|lookup|no such host|connection refused|i/o timeout)",
        "its modules cannot be downloaded from here: run `go mod vendor` and commit the folder vendor",
    ),
    rule(
        r"getaddrinfo (?:ENOTFOUND|EAI_AGAIN) ([\w-]+(?:\.[\w-]+)+)",
        "the code downloads from {0}, which cannot be reached from here: commit the files that it needs, or have the "
        "operator allow that host",
    ),
    rule(
        r"HTTPS?ConnectionPool\(host='([\w.-]+)', port=\d+\): Max retries exceeded[^\n]{0,1000}"
        r"(?:NameResolutionError|Errno -)",
        "the code connects to {0}, which cannot be reached from here: set the address of a server that can be reached, "
        "or have the operator allow that host",
    ),
    rule(
        rf"File \"{_ROOT}((?!\.venv/)[^\"\n]+)\", line (\d{{1,9}})\b[^\n]{{0,300}}\n(?:[^\n]*\n){{1,60}}?"
        r"urllib\.error\.URLError: <urlopen error \[Errno -\d\]",
        "{0}, line {1} downloads from a host that cannot be reached from here: commit the files that it needs, or have "
        "the operator allow that host",
    ),
    rule(
        r"Error occurred prerendering page \"([^\"\n]+)\"[^\n]{0,300}\n(?:[^\n]*\n){0,3}?[^\n]*fetch failed",
        "the page {0} requests an address that cannot be reached from here while it is built: render it on request "
        "(`export const dynamic = 'force-dynamic'`), or have the operator allow that host",
    ),
    rule(
        r"^TypeError: fetch failed",
        "the app requests an address that cannot be reached from here, before it answers: set the address of a server "
        "that can be reached, or have the operator allow its host",
    ),
    rule(
        r"Could not resolve entry module [\"']([^\"'\n]+)[\"']",
        "the build begins with {0}, which is not in the repository: commit that file, or correct the entry in the "
        "settings of the bundler, such as vite.config",
    ),
    rule(r"^error during build:\n([^\n]+)", "{0}"),
    rule(
        r"^(?:\./)?(\S+\.[cm]?(?:tsx?|vue))[(:](\d+)[,:]\d+\)?(?::| -) error (TS\d+: [^\n]{1,200})",
        "{0}, line {1}: {2} Correct it, or leave the type check (`tsc`) out of the build script in package.json",
    ),
    rule(r"JavaScript heap out of memory", _NODE_MEMORY),
    rule(r"ERR_OSSL_EVP_UNSUPPORTED", _OLD_HASHES),
    rule(r"^(?:/bin/)?sh: (?:line )?\d+: ([\w@./-]+): (?:command )?not found", _missing_program),
    rule(
        r"EADDRINUSE[^\n]{0,200}?:(\d+)",
        "the app starts two servers on port {0}: start one, on the port of the variable PORT",
    ),
)  # fmt: skip
_REFUSED_HOST = re.compile(r"Invalid HTTP_HOST header: '[^'\n]+'\. You may need to add '([^'\n]+)' to ALLOWED_HOSTS")
_ERROR = re.compile(
    r"(?:^|(?<=[\s|]))(?:(?:\w+\.)*\w*(?:Error|Exception|Exit|ImproperlyConfigured)(?: \[\w+\])?: .+"
    r"|(?:fatal|panic): .+)"
    r"|^(?:error|ERROR|✘|\[(?:ERROR|error)\])[: ].+"
)
# Lines that only repeat that something failed.
_NOISE = re.compile(
    r"npm (?:error|ERR!)|error Command failed|subprocess-exited|ERROR: (?:Failed building|Could not build)|ELIFECYCLE"
    r"|\bexit(?:ed with)? (?:code|status)|Worker failed to boot"
)


def reason(done: Finished, output: str, build_minutes: int, project: str = "", variables: Sequence[str] = ()) -> str:
    """Return why a step failed: a limit of the build, else the error in its output."""
    if done.why is None:
        hint = explain(output, project or PROJECT, variables)
        return f"exit code {done.code}{f': {hint}' if hint else ''}"
    if done.code == TIMED_OUT:
        return timeout(build_minutes)
    return f"{done.why}{MEMORY_FIX if done.code == OUT_OF_MEMORY else ''}"


def timeout(build_minutes: int) -> str:
    return f"the build took longer than {build_minutes} minute{'' if build_minutes == 1 else 's'}"
