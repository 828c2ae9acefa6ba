"""All files of other platforms that are imported, and broken ones."""

from __future__ import annotations

from tests.cli.importing.import_cases_apps import FLY, HEROKU, RENDER
from tests.cli.importing.import_cases_compose import COMPOSE
from tests.cli.importing.import_cases_sites import NETLIFY, VERCEL

CASES = (*COMPOSE, *HEROKU, *VERCEL, *NETLIFY, *FLY, *RENDER)

BILLION = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))]
)
MERGES = "\n".join(
    ["a0: &a0 { k: v }", *(f"a{n}: &a{n} {{ <<: [{', '.join([f'*a{n - 1}'] * 9)}] }}" for n in range(1, 10))]
)
# File name, content and the message.
BROKEN = (
    ("docker-compose.yml", BILLION, "docker-compose.yml:6: is not valid YAML: the aliases expand to too much"),
    ("docker-compose.yml", MERGES, "docker-compose.yml:6: is not valid YAML: the aliases expand to too much"),
    ("docker-compose.yml", "a: &a [*a]", "docker-compose.yml: services is missing or empty"),
    ("docker-compose.yml", "services: [a", "docker-compose.yml:1: is not valid YAML: expected ',' or ']'"),
    ("docker-compose.yml", "x: !!python/object/apply:os.system [id]", "could not determine a constructor"),
    ("docker-compose.yml", "services: 3", "docker-compose.yml: services should be a table, not a text"),
    ("docker-compose.yml", "services: {a: [x]}", "docker-compose.yml: services.a should be a table, not a list"),
    (
        "docker-compose.yml",
        "services: {a: {build: ., environment: 3}}",
        "services.a.environment should be a table, not a text",
    ),
    ("docker-compose.yml", "- a", "docker-compose.yml: the file should be a table, not a list"),
    ("docker-compose.yml", "[" * 20_000, "docker-compose.yml is nested too deeply"),
    ("docker-compose.yml", "a: 1\n---\nb: 2\n", "docker-compose.yml:2: is not valid YAML"),
    ("render.yaml", "services: {}", "render.yaml: services should be a list, not a table"),
    ("render.yaml", "x: 1", "render.yaml: services and databases are missing"),
    ("vercel.json", "{", "vercel.json:1: is not valid JSON"),
    ("vercel.json", '{"redirects": {"source": "/a"}}', "vercel.json: redirects should be a list, not a table"),
    ("vercel.json", '{"redirects": [{"source": ["/a"]}]}', "redirects[1].source should be a text, not a list"),
    ("vercel.json", '{"redirects": [{"source": "/a", "permanent": "yes"}]}', "should be true or false, not a text"),
    ("netlify.toml", "[build", "netlify.toml is not valid TOML"),
    ("fly.toml", '[http_service]\nmin_machines_running = "many"', "should be a number, not a text"),
    ("Procfile", "web gunicorn", "Procfile:1: should be `name: command`"),
    ("Procfile", "", "Procfile has no process"),
    ("app.json", '{"addons": "x"}', "app.json: addons should be a list, not a text"),
)
