"""Sites without Node.js: plain pages, and generators of documentation and blogs."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, page

STARTERS = (
    Starter(
        "html",
        "plain files",
        {
            "index.html": page("Plain", head='<link rel="stylesheet" href="css/style.css">'),
            "about.html": page("About"),
            "css/style.css": "body { margin: 2rem }\n",
            "README.md": "# A site\n",
        },
        {"/": "<title>Plain</title>", "/about.html": "<title>About</title>", "/css/style.css": "margin", "/no": 404},
        kind="static",
    ),
    Starter(
        "html-in-public",
        "plain files",
        {"public/index.html": page("In public"), "public/app.js": "console.log(1)\n", "README.md": "# Site\n"},
        {"/": "<title>In public</title>", "/README.md": 404},
        kind="static",
    ),
    Starter(
        "html-in-docs",
        "plain files",
        {"docs/index.html": page("In docs"), "docs/guide/index.html": page("Guide"), "README.md": "# Project\n"},
        {"/": "<title>In docs</title>", "/guide/": "<title>Guide</title>", "/guide": 308},
        kind="static",
    ),
    Starter(
        "mkdocs",
        "MkDocs",
        {
            "requirements.txt": "mkdocs==1.6.1\n",
            "mkdocs.yml": "site_name: Handbook\ntheme: readthedocs\nnav:\n  - Home: index.md\n  - Berths: berths.md\n",
            "docs/index.md": "# Welcome to MkDocs\n",
            "docs/berths.md": "# Berths\n",
        },
        {"/": "Welcome to MkDocs", "/berths/": "Berths"},
        kind="static",
    ),
    Starter(
        # No requirements.txt: the tool follows from mkdocs.yml, its theme as well.
        "mkdocs-material",
        "MkDocs",
        {
            "mkdocs.yml": "site_name: Material\ntheme:\n  name: material\n",
            "docs/index.md": "# Made of Material\n",
        },
        {"/": "Made of Material"},
        kind="static",
    ),
    Starter(
        "sphinx",
        "Sphinx",
        {
            "docs/requirements.txt": "sphinx==8.1.3\n",
            "docs/conf.py": 'project = "Harbor"\nextensions = []\nhtml_theme = "alabaster"\n',
            "docs/index.rst": "Harbor\n======\n\nBuilt by Sphinx.\n",
            "docs/Makefile": "html:\n\tsphinx-build -b html . _build/html\n",
        },
        {"/": "Built by Sphinx."},
        kind="static",
    ),
    Starter(
        "pelican",
        "Pelican",
        {
            "requirements.txt": "pelican[markdown]==4.11.0\n",
            "pelicanconf.py": 'SITENAME = "Pelican"\nPATH = "content"\nTIMEZONE = "UTC"\nDEFAULT_LANG = "en"\n',
            "content/first.md": "Title: First article\nDate: 2025-01-01\n\nHello from Pelican.\n",
        },
        {"/": "First article"},
        kind="static",
    ),
    Starter(
        "hugo",
        "Hugo",
        {
            "hugo.toml": 'baseURL = "/"\ntitle = "Hugo"\nlanguageCode = "en-us"\n',
            "content/_index.md": "---\ntitle: Home\n---\nHello from Hugo.\n",
            "layouts/index.html": "<!doctype html><title>{{ .Site.Title }}</title>{{ .Content }}\n",
        },
        {"/": "Hello from Hugo."},
        kind="static",
    ),
    Starter(
        "hugo-with-old-config",
        "Hugo",
        {
            "config.toml": 'baseURL = "https://example.org/"\ntitle = "Old Hugo"\n',
            "archetypes/default.md": "---\ntitle: x\n---\n",
            "content/_index.md": "Old, and still built.\n",
            "layouts/index.html": "<!doctype html><title>{{ .Site.Title }}</title>{{ .Content }}\n",
        },
        {"/": "Old, and still built."},
        kind="static",
    ),
)
