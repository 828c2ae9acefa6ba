"""Files of platforms for sites: Vercel and Netlify."""

from __future__ import annotations

from tests.cli.importing.import_case import Case

VERCEL = (
    Case(
        "vercel: build settings and redirects with patterns",
        {
            "vercel.json": """{
  "buildCommand": "npm run build",
  "outputDirectory": "dist",
  "redirects": [
    {"source": "/old", "destination": "/new"},
    {"source": "/blog/:slug", "destination": "/posts/:slug", "permanent": false},
    {"source": "/docs/:path*", "destination": "https://docs.example.com/:path*", "statusCode": 301},
    {"source": "/raw/(.*)", "destination": "/files/$1"},
    {"source": "/post-(\\\\d+)", "destination": "/p/$1"},
    {"source": "/me", "destination": "/login", "has": [{"type": "cookie", "key": "a"}]}
  ]
}"""
        },
        {
            "project": {"name": "shop", "build-cmd": "npm run build", "build-dir": "dist"},
            "redirects": [
                {"source": "/old", "destination": "/new", "status": 308},
                {"source": "/blog/:slug", "destination": "/posts/:slug", "status": 307},
                {"source": "/docs/*", "destination": "https://docs.example.com/*", "status": 301},
                {"source": "/raw/*", "destination": "/files/*", "status": 308},
            ],
        },
        ("redirect /post-(\\d+)", "redirect /me"),
    ),
    Case(
        "vercel: headers, and the rewrite of a single-page app",
        {
            "vercel.json": """{
  "headers": [
    {"source": "/(.*)", "headers": [{"key": "X-Frame-Options", "value": "DENY"}, {"key": "X-A", "value": "b"}]},
    {"source": "/api/:path*", "headers": [{"key": "Cache-Control", "value": "no-store"}]}
  ],
  "rewrites": [{"source": "/(.*)", "destination": "/index.html"}]
}"""
        },
        {
            "project": {"name": "shop"},
            "headers": [
                {"source": "/*", "name": "X-Frame-Options", "value": "DENY"},
                {"source": "/*", "name": "X-A", "value": "b"},
                {"source": "/api/*", "name": "Cache-Control", "value": "no-store"},
            ],
        },
    ),
    Case(
        "vercel: crons, functions, regions and rewrites to other hosts",
        {
            "vercel.json": """{
  "name": "api",
  "regions": ["fra1"],
  "crons": [{"path": "/api/daily", "schedule": "0 5 * * *"}],
  "functions": {"api/*.ts": {"maxDuration": 30}},
  "rewrites": [{"source": "/v1/:path*", "destination": "https://api.example.com/:path*"},
               {"source": "/a", "destination": "/b"}],
  "installCommand": "pnpm i"
}"""
        },
        {"project": {"name": "api"}},
        ("rewrite /v1/:path*", "rewrite /a", "cron /api/daily", "functions", "installCommand", "regions"),
    ),
    Case(
        "vercel: variables, where an @ names a secret",
        {
            "vercel.json": """{
  "env": {"MODE": "x", "DB": "@db-url"},
  "build": {"env": {"CI": "1", "NPM_TOKEN": "hunter2"}}
}"""
        },
        {"project": {"name": "shop", "secrets": ["DB", "NPM_TOKEN"], "env": {"MODE": "x", "CI": "1"}}},
        (),
        ("hunter2",),
    ),
    Case("vercel: an empty file", {"vercel.json": "{}"}, {"project": {"name": "shop"}}),
    Case(
        "vercel: the old form with routes and builds",
        {"vercel.json": '{"version": 2, "builds": [{"src": "*.js"}], "routes": [{"src": "/x", "dest": "/y"}]}'},
        {"project": {"name": "shop"}},
        ("builds", "routes"),
    ),
)
NETLIFY = (
    Case(
        "netlify: build settings, redirects and headers",
        {
            "netlify.toml": """
[build]
base = "site/"
command = "hugo"
publish = "site/public"
[build.environment]
HUGO_VERSION = "0.120"
GITHUB_TOKEN = "hunter2"
[[redirects]]
from = "/news/*"
to = "/blog/:splat"
[[redirects]]
from = "/store"
to = "https://store.example.com/"
status = 302
force = true
[[headers]]
for = "/*"
[headers.values]
X-Frame-Options = "DENY"
"""
        },
        {
            "project": {
                "name": "shop",
                "base-dir": "site",
                "build-cmd": "hugo",
                "build-dir": "public",
                "secrets": ["GITHUB_TOKEN"],
                "env": {"HUGO_VERSION": "0.120"},
            },
            "redirects": [
                {"source": "/news/*", "destination": "/blog/*", "status": 301},
                {"source": "/store", "destination": "https://store.example.com/", "status": 302},
            ],
            "headers": [{"source": "/*", "name": "X-Frame-Options", "value": "DENY"}],
        },
        (),
        ("hunter2",),
    ),
    Case(
        "netlify: rewrites, conditions, hosts, contexts, plug-ins and functions",
        {
            "netlify.toml": """
[build]
publish = "dist"
ignore = "git diff"
[[redirects]]
from = "/*"
to = "/index.html"
status = 200
[[redirects]]
from = "/api/*"
to = "https://api.example.com/:splat"
status = 200
[[redirects]]
from = "/de"
to = "/german"
conditions = { Country = ["de"] }
[[redirects]]
from = "https://old.example.com/*"
to = "/new"
[[redirects]]
from = "/gone"
to = "/404.html"
status = 404
[[plugins]]
package = "x"
[context.production]
command = "npm run prod"
[functions]
directory = "functions"
"""
        },
        {"project": {"name": "shop", "build-dir": "dist"}},
        (
            "rewrite /api/*",
            "redirect /de",
            "redirect https://old.example.com/*",
            "redirect /gone",
            "context",
            "functions",
            "plugins",
            "build.ignore",
        ),
    ),
    Case(
        "netlify: lists of redirects and headers beside the file",
        {
            "netlify.toml": '[build]\npublish = "public"\n',
            "_redirects": "# old\n/a  /b\n/c/:id /d/:id 302!\n/e /f Country=de 301\n/* /index.html 200\n",
            "public/_headers": "/*\n  X-A: one\n  Basic-Auth: me:hunter2\n/assets/*\n  Cache-Control: public,\n",
        },
        {
            "project": {"name": "shop", "build-dir": "public"},
            "redirects": [
                {"source": "/a", "destination": "/b", "status": 301},
                {"source": "/c/:id", "destination": "/d/:id", "status": 302},
            ],
            "headers": [
                {"source": "/*", "name": "X-A", "value": "one"},
                {"source": "/assets/*", "name": "Cache-Control", "value": "public,"},
            ],
        },
        ("redirect /e /f Country=de 301", "password of /*"),
        ("hunter2",),
    ),
    Case(
        "netlify: two wildcards in one path are too many",
        {"netlify.toml": '[[redirects]]\nfrom = "/a/*/b/*"\nto = "/c"\n'},
        {"project": {"name": "shop"}},
        ("redirect /a/*/b/*",),
    ),
)
