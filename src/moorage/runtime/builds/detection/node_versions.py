"""Node.js version that a repository asks for, and ranges of versions as npm writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.workspaces import install_folder
from moorage.runtime.builds.ports import BuildFailed

Version = tuple[int, int, int]
FILES = (".nvmrc", ".node-version")
CODENAMES = {
    name: 4 + 2 * number
    for number, name in enumerate(
        ["argon", "boron", "carbon", "dubnium", "erbium", "fermium", "gallium", "hydrogen", "iron", "jod", "krypton"]
    )
}
_ANY = frozenset({"", "*", "x", "node", "stable", "latest", "current", "system", "lts", "lts/*"})
_END: Version = (10**9, 0, 0)
_PART = r"(?:\d{1,6}|[xX*])"
_COMPARATOR = re.compile(rf"(\^|~>?|>=|<=|>|<|=)?v?({_PART})(?:\.({_PART}))?(?:\.({_PART}))?(?:[-+][\w.+-]*)?")
_OLDER = (16, 14)
_COMPILER_ERROR = re.compile(r"\.(?:cc|cpp|cxx|c|hpp|hh|h):\d+:\d+: error: ")
_MAX_CHARS = 200
_LAST_MINOR = 99
# Package, newest major version of it, and the newest Node.js that it runs with. OpenSSL 3, which Node.js has since
# version 17, lacks the digest that webpack 4 uses; versions of node-sass have binaries for few versions of Node.js.
# Node.js 24.19 and newer aborts when it collects a statement of better-sqlite3 before version 13. Umi imports spdy,
# which needs the internal module http_parser that Node.js 24 removed. The msgpackr in lock files of Gatsby writes
# beyond the end of its buffers, which Node.js 24 refuses. lottie-web uses `document` where there is a `navigator`,
# which Node.js has since version 21. Strapi names its newest Node.js, and Yarn checks that. The last ones are
# compiled, and fit to the V8 of their time.
_OLD_TOOLS = (
    ("gulp", 3, "10"), ("node-sass", 4, "14"), ("node-sass", 6, "16"), ("node-sass", 8, "18"),
    ("webpack", 4, "16"), ("react-scripts", 4, "16"), ("@vue/cli-service", 4, "16"), ("gatsby", 2, "16"),
    ("gatsby", 5, "22"), ("nuxt", 2, "18"), ("next", 11, "16"), ("@angular/cli", 12, "14"),
    ("lottie-web", 5, "20"), ("lottie-react", 2, "20"), ("react-lottie", 1, "20"),
    ("better-sqlite3", 7, "18"), ("better-sqlite3", 12, "22"), ("umi", 4, "22"), ("@umijs/max", 4, "22"),
    ("strapi", 3, "14"), ("@strapi/strapi", 4, "18"), ("@strapi/strapi", 5, "22"),
    ("sqlite3", 4, "14"), ("bcrypt", 4, "14"), ("grpc", 1, "14"), ("fibers", 5, "14"),
)  # fmt: skip
# Package, oldest major version of it, and the versions of Node.js that it runs with. Tools that are newer than the
# machine's Node.js stop or fail in the middle of a build, and a file such as .nvmrc is often older than the tools.
_NEW_TOOLS = (
    ("next", 14, ">=18.17"), ("next", 15, ">=18.18"), ("next", 16, ">=20.9"),
    ("astro", 4, ">=18.17.1"), ("astro", 6, ">=22.12"),
    ("vite", 5, "^18 || >=20"), ("vite", 7, "^20.19 || >=22.12"),
    ("nuxt", 3, ">=18"), ("nuxt", 4, "^22.19 || ^24.11 || >=26"),
    ("@angular/cli", 17, "^18.13 || >=20.9"), ("@angular/cli", 18, "^18.19.1 || ^20.11.1 || >=22"),
    ("@angular/cli", 20, "^20.19 || ^22.12 || >=24"), ("@angular/cli", 22, "^22.22.3 || ^24.15 || >=26"),
    ("@adonisjs/core", 6, ">=20.6"), ("@adonisjs/core", 7, ">=24"), ("hexo", 8, ">=20.19"), ("gatsby", 5, ">=18"),
    ("@docusaurus/core", 3, ">=18"), ("@sveltejs/kit", 2, ">=18.13"), ("@nestjs/core", 11, ">=20"),
    ("@react-router/dev", 7, ">=20"),
)  # fmt: skip
# First major versions of bundlers that do without the digests of OpenSSL 1.
_NEW_DIGESTS = {"react-scripts": 5, "@vue/cli-service": 5, "nuxt": 3, "webpack": 5, "gatsby": 3, "preact-cli": 4}
_NEWEST = frozenset({"latest", "*", "x", "next", "canary"})  # versions of a dependency without a number
_NEW_PNPM = re.compile(r"pnpm@(?:1[1-9]|[2-9]\d)\.")
_NODE_OF_NEW_PNPM = ">=22.13"


class Wanted(NamedTuple):
    source: str  # name of the file, with the field of package.json
    text: str  # as the file has it
    range: str


def find_wanted(folder: Folder) -> Wanted | None:
    """Return the version that an app or its workspace asks for, or None.

    Old build tools ask for one too, which counts if the declared range has it. New tools do not run with an older one,
    whatever is declared.
    """
    declared, old = _first_declared(folder), _of_old_tool(folder)
    if old is not None and declared is not None and not matches((int(old.range), _LAST_MINOR, 0), declared.range):
        old = None
    return _for_new_tools(folder, old or declared)


def _for_new_tools(folder: Folder, wanted: Wanted | None) -> Wanted | None:
    """Return the wanted version within the range of all new tools, or that of the tools."""
    for tool in _of_new_tools(folder):
        both = _common(wanted.range, tool.range) if wanted is not None else tool.range
        wanted = wanted._replace(range=both) if wanted is not None and both else tool
    return wanted


def _of_new_tools(folder: Folder) -> list[Wanted]:
    """Return the versions that the tools of package.json and its package manager run with."""
    requirements = {}
    for name, oldest_major, range_ in _NEW_TOOLS:
        version = folder.node_packages.get(name, "")
        match = re.match(r"[\^~>=v\s]*(\d{1,4})\b", version)
        if version in _NEWEST or (match and int(match[1]) >= oldest_major):
            shown = match[1] if match else version
            requirements[name] = Wanted(f"{name} {shown} of package.json", range_, range_)
    root = install_folder(folder)
    manager = (root.package or {}).get("packageManager")
    if isinstance(manager, str) and _NEW_PNPM.match(manager):
        requirements["pnpm"] = Wanted("packageManager of package.json", _NODE_OF_NEW_PNPM, _NODE_OF_NEW_PNPM)
    return list(requirements.values())


def _common(first: str, second: str) -> str:
    """Return the range of the versions in two ranges; "" where there is none."""
    pairs = (f"{_comparators(one)} {other}".strip() for one in first.split("||") for other in second.split("||"))
    return " || ".join(each for each in pairs if (interval := _interval(each)) and interval[0] < interval[1])


def _first_declared(folder: Folder) -> Wanted | None:
    root = install_folder(folder)
    for each in (folder, *([root] if root.base != folder.base else [])):
        for source, text in _declared(each):
            if text := text.strip()[:_MAX_CHARS]:
                return Wanted(source, text, _as_range(text, is_engines="engines" in source))
    return None


def _of_old_tool(folder: Folder) -> Wanted | None:
    """Return the newest version that all old tools and modules of package.json run with, or None."""
    requirements = []
    for name, newest_major, version in _OLD_TOOLS:
        match = re.match(r"[\^~>=v\s]*(\d{1,4})\b", folder.node_packages.get(name, ""))
        if match and int(match[1]) <= newest_major:
            requirements.append(Wanted(f"{name} {match[1]} of package.json", version, version))
    return min(requirements, key=lambda each: int(each.range), default=None)


def needs_old_digests(folder: Folder) -> bool:
    """Return whether a bundler uses digests that Node.js since version 17 refuses by default.

    The scripts of a server often build pages in a sub-folder.
    """
    words = set(re.findall(r"[\w-]+", " ".join(folder.scripts.values())))
    pages = [Folder(folder.root, f"{folder.base}/{name}".strip("/")) for name in folder.folders() if name in words]
    return _has_old_bundler(folder) or any(map(_has_old_bundler, pages))


def _has_old_bundler(folder: Folder) -> bool:
    try:
        packages = folder.node_packages
    except BuildFailed:  # The package.json of a sub-folder is not valid, and may not be needed.
        return False
    majors = {name: re.match(r"[^0-9]*(\d{1,6})", packages.get(name, "")) for name in _NEW_DIGESTS}
    return any(match and 0 < int(match[1]) < _NEW_DIGESTS[name] for name, match in majors.items())


def older(folder: Folder, current: Version, output: str) -> str:
    """Return the older major version for a native module that was not compiled, by the compiler's errors; "" if none.

    Modules use the V8 of their time, and its headers need a newer standard of C++ in each version.
    """
    is_compiled = _COMPILER_ERROR.search(output) is None or "gyp ERR! build error" not in output
    newest_major = next((major for major in _OLDER if major < current[0]), None)
    declared = _first_declared(folder)
    if is_compiled or newest_major is None:
        return ""
    is_allowed = declared is None or matches((newest_major, _LAST_MINOR, 0), declared.range)
    return str(newest_major) if is_allowed else ""


def matches(version: Version, wanted: str) -> bool:
    """Return whether a version is in a range such as `^18 || >=20.5 <23`; False for an invalid range."""
    return any(low <= version < high for low, high in filter(None, map(_interval, wanted.split("||"))))


def newest(versions: Iterable[str], wanted: str) -> str | None:
    """Return the newest release in a range."""
    parsed = [each for each in map(parse, versions) if each is not None and matches(each, wanted)]
    return ".".join(map(str, max(parsed))) if parsed else None


def parse(text: str) -> Version | None:
    match = re.fullmatch(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})", text.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _declared(folder: Folder) -> list[tuple[str, str]]:
    """Return the versions that the files name; the first counts."""
    versions = [(name, next(iter(_lines(folder, name)), "")) for name in FILES]
    for line in _lines(folder, ".tool-versions"):
        if match := re.match(r"(?:nodejs|node)\s+(\S+)", line):
            versions.append((".tool-versions", match[1]))
    for field in ("volta", "engines"):
        value = (folder.package or {}).get(field)
        version = value.get("node") if isinstance(value, dict) else None
        versions.append((f"{field} of package.json", version if isinstance(version, str) else ""))
    return versions


def _lines(folder: Folder, name: str) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in (folder.find_text(name) or "").splitlines())
    return [line for line in lines if line]


def _as_range(text: str, *, is_engines: bool) -> str:
    """Return the range of a version. A pinned one means its major: newer releases of it have security fixes."""
    name = text.lower()
    if name in _ANY:
        return "*"
    codename = name.removeprefix("lts/")
    if codename in CODENAMES:
        return f"^{CODENAMES[codename]}"
    return f"^{text.removeprefix('v')}" if parse(text) and not is_engines else text


def _interval(text: str) -> tuple[Version, Version] | None:
    """Return the versions of a set of comparators as a half-open interval; None for an invalid one."""
    text = _comparators(text)
    low, high = (0, 0, 0), _END
    for word in re.sub(r"([<>=^~])\s+", r"\1", text).replace(",", " ").split():
        match = _COMPARATOR.fullmatch(word)
        if match is None:
            return None
        start, end = _bounds(match[1] or "=", [int(each) for each in match.groups()[1:] if each and each.isdigit()])
        low, high = max(low, start), min(high, end)
    return low, high


def _comparators(text: str) -> str:
    """Return a set of comparators without the notation `16 - 18`."""
    hyphen = re.fullmatch(r"(\S+)\s+-\s+(\S+)", text.strip())
    return f">={hyphen[1]} <={hyphen[2]}" if hyphen else text.strip()


def _bounds(operator: str, parts: list[int]) -> tuple[Version, Version]:
    """Return the interval of one comparator; `parts` are the numbers that it names."""
    start = _filled(parts)
    end = _after(parts)
    match operator:
        case ">=":
            return start, _END
        case ">":
            return end, _END
        case "<":
            return (0, 0, 0), start if parts else (0, 0, 0)
        case "<=":
            return (0, 0, 0), end
        case "^":
            # Up to the next change of the first number that is not 0.
            fixed = next((at for at, number in enumerate(parts) if number), len(parts) - 1)
            return start, _after(parts[: fixed + 1])
        case "~" | "~>":
            return start, _after(parts[:2])
        case _:
            return start, end


def _filled(parts: list[int]) -> Version:
    first, second, third = [*parts, 0, 0, 0][:3]
    return first, second, third


def _after(parts: list[int]) -> Version:
    """Return the first version after a series: 19.0.0 for the numbers of 18, 18.3.0 for those of 18.2."""
    return _filled([*parts[:-1], parts[-1] + 1]) if parts else _END
