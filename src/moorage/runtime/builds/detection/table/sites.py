"""Rows for sites without a package.json: Hugo, Jekyll, and plain pages."""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table.row import Row, Sign, contains, file, subfolder

INDEX = "index.html"
JEKYLL = "Jekyll"
HUGO_SITE = "Hugo"
MAX_SHOWN = 12
OLDEST_HUGO = 124  # minor version that the package index has
# Folders that repositories keep built or plain pages in.
PAGES = (
    "dist",
    "public",
    "build",
    "out",
    "_site",
    "site",
    "docs",
    "www",
    "html",
    "htdocs",
    "web",
    "static",
    "src",
    "app",
)
# Folders of pages that a server or a generator fills.
_TEMPLATES = frozenset({"templates", "template", "views", "view", "layouts", "layout", "partials", "themes", "include"})
HUGO_FILES = ("hugo.toml", "hugo.yaml", "hugo.yml", "hugo.json", "config/_default/hugo.*", "config/_default/config.*")
_ZOLA = contains(r"^base_url\s*=", "config.toml", words="`base_url`")
_OLD_CONFIG = file("config.toml", "config.yaml", "config.yml", "config.json") & ~_ZOLA & (
    subfolder("archetypes", "layouts") | (subfolder("content") & subfolder("themes")) | contains(
        r"(?i)^[ \t]*[\"']?baseurl[\"']?\s*[:=]", "config.toml", "config.yaml", "config.json", words="`baseURL`"
    )
)  # fmt: skip


def pages(folder: Folder) -> str | None:
    """Return the folder with the index page: the base folder, or a usual one below it."""
    return next((each for each in ("dist", "", *PAGES) if folder.has(f"{each}/{INDEX}".lstrip("/"))), None)


def page_folders(folder: Folder) -> list[str]:
    """Return the sub-folders with an index page, else those one level deeper."""
    places = folder.folders()
    for level in (places, [inner for place in places for inner in folder.folders(place)]):
        if found := [place for place in level if _is_page(folder, place)]:
            return found
    return []


def _is_page(folder: Folder, place: str) -> bool:
    """Return whether a folder has an index page that is no template of a server."""
    text = folder.find_text(f"{place}/{INDEX}") or ""
    is_part = not _TEMPLATES.isdisjoint(place.lower().split("/")) or re.search(r"\{%|<%|<\?php", text)
    return not is_part and re.search(r"(?i)<!doctype html|<html\b", text) is not None


def without_index(folder: Folder) -> str:
    """Return the sentence about pages that are no site yet; "" where there are none."""
    if places := page_folders(folder):
        shown = ", ".join(places[:MAX_SHOWN]) + (f" and {len(places) - MAX_SHOWN} more" if places[MAX_SHOWN:] else "")
        return f"there are several sites, in {shown}: set baseDir to the folder of one"
    names = folder.glob("*.html")[:MAX_SHOWN]
    return f"the base folder has {', '.join(names)} and no {INDEX}: rename the page to {INDEX}" if names else ""


def submodule(folder: Folder) -> str:
    """Return the folder of a theme that is a git submodule without files."""
    paths = re.findall(r"^[ \t]*path[ \t]*=[ \t]*(themes/\S+)", folder.find_text(".gitmodules") or "", re.MULTILINE)
    return next((path for path in paths if not folder.has_folder(path) or not any((folder.path / path).iterdir())), "")


def _hugo_output(folder: Folder) -> str:
    texts = (folder.find_text(name) or "" for name in (*HUGO_FILES[:4], "config.toml", "config.yaml"))
    matches = (re.search(r"(?im)^[ \t]*publishDir[ \t]*[:=][ \t]*['\"]?([\w./-]+)", text) for text in texts)
    return next((match[1].strip("./") for match in matches if match), "public")


def _hugo(folder: Folder) -> str:
    """Return Hugo, not newer than the version that the settings for another host name: themes depend on it."""
    names = ("netlify.toml", "vercel.json", "render.yaml", "amplify.yml", *folder.glob(".github/workflows/*.y*ml"))
    matches = (re.search(r"\bHUGO_VERSION\W{1,10}0\.(\d{1,3})\b", folder.find_text(name) or "") for name in names)
    minor = next((int(match[1]) for match in matches if match), 0)
    return f"hugo<0.{max(minor, OLDEST_HUGO) + 1}" if minor else "hugo"


HUGO = file(*HUGO_FILES) | _OLD_CONFIG
_THEME = file("theme.toml") & subfolder("layouts")
_EXAMPLE = file(
    *(f"exampleSite/{each}" for each in ("hugo.*", "config.*", "config/_default/hugo.*", "config/_default/config.*"))
)
HUGO_THEMES = (
    Row("Hugo theme", "static", "python", _THEME & _EXAMPLE, output="exampleSite/public", server=_hugo,
        build="hugo --gc --minify --source exampleSite --themesDir ../.. --theme $(basename $PWD) --baseURL /",
        note="theme.toml is of a Hugo theme: its example site is built"),
    Row("Hugo theme without a site", "static", "python", _THEME & ~HUGO,
        refusal="theme.toml is of a Hugo theme, and the repository has no site: push the site that uses the theme, or "
                "add an example in the folder exampleSite"),
)  # fmt: skip
ROWS = (
    Row("Hugo without its theme", "static", "python",
        HUGO & Sign("a theme that is an empty submodule", lambda folder: submodule(folder) or None),
        refusal=lambda folder: f".gitmodules has the theme {submodule(folder)}, and its folder is empty: use a public "
                               "repository of the same code host, or commit the files of the theme"),
    # Links with the address of the configuration would lead to another host.
    Row(HUGO_SITE, "static", "python", HUGO, build="hugo --gc --minify --baseURL /", output=_hugo_output, server=_hugo),
    Row(JEKYLL, "static", "", file("_config.yml") & (
            contains(r"jekyll|github-pages", "Gemfile", words="jekyll") | subfolder("_posts", "_layouts", "_includes")
            | contains(r"(?m)^(?:theme|remote_theme|plugins|markdown)\s*:", "_config.yml", words="a theme or plugins"))
        & ~file("_site/index.html")
        & (~file(".nojekyll") | contains(r"\A---\s*$", "index.html", "index.md", words="front matter")),
        build="jekyll build", output="_site"),
    Row("Zola", "static", "", _ZOLA,
        refusal="config.toml is of a Zola site, and zola is not available here: run `zola build`, push the folder "
                "public, and set buildDir to public"),
    Row("mdBook", "static", "", file("book.toml"),
        refusal="book.toml is of an mdBook, and mdbook is not available here: run `mdbook build`, push the folder "
                "book, and set buildDir to book"),
)  # fmt: skip
PLAIN = (
    Row("plain files", "static", "", Sign(f"`{INDEX}` in the base folder or in a folder such as `public` or `docs`",
        lambda folder: None if (at := pages(folder)) is None else f"{at}/{INDEX}".lstrip("/")),
        output=lambda folder: pages(folder) or ""),
)  # fmt: skip
