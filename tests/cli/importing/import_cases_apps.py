"""Files of platforms for apps: Heroku, Fly and Render."""

from __future__ import annotations

from tests.cli.importing.import_case import DOCKER, Case, mysql, postgres

HEROKU = (
    Case(
        "heroku: web, worker and release of a Procfile",
        {"Procfile": "# processes\nweb: gunicorn app:app\nworker: celery -A app worker\nrelease: flask db upgrade\n"},
        {"project": {"name": "shop", "start-cmd": "gunicorn app:app"}},
        ("process worker (celery -A app worker)", "process release"),
    ),
    Case(
        "heroku: app.json with add-ons, variables and formation",
        {
            "app.json": """{
  "name": "Small Shop",
  "env": {
    "LANG": "en",
    "SECRET_KEY": {"generator": "secret"},
    "STRIPE": {"description": "from the dashboard"},
    "OPTIONAL": {"required": false},
    "THEME": {"value": "dark"},
    "API_TOKEN": "hunter2"
  },
  "addons": ["heroku-postgresql:mini", {"plan": "heroku-redis:mini", "as": "CACHE"}, "scheduler"],
  "formation": {"web": {"quantity": 2, "size": "Standard-2X"}, "worker": {"quantity": 1}},
  "buildpacks": [{"url": "heroku/nodejs"}],
  "scripts": {"postdeploy": "npm run seed"}
}""",
            "Procfile": "web: npm start\n",
        },
        {
            "project": {
                "name": "small-shop",
                "secrets": ["SECRET_KEY", "STRIPE", "API_TOKEN"],
                "start-cmd": "npm start",
                "tier": "mini",
                "env": {"LANG": "en", "THEME": "dark"},
                "auto-scaling": {"enabled": True, "min-replicas": 2, "max-replicas": 2},
            },
            "databases": [postgres("small-shop-db")],
        },
        ("add-on heroku-redis", "add-on scheduler", "buildpack heroku/nodejs", "script postdeploy", "formation worker"),
        ("hunter2",),
    ),
    Case(
        "heroku: cron entries become cronjobs",
        {"app.json": '{"cron": [{"command": "node report.js", "schedule": "@daily"}]}'},
        {
            "project": {"name": "shop"},
            "cronjobs": [{"name": "shop-job-1", "cron-schedule": "@daily", "start-cmd": "node report.js"}],
        },
    ),
    Case(
        "heroku: two databases of MySQL",
        {"app.json": '{"addons": ["jawsdb:kitefin", "cleardb:ignite"]}'},
        {"project": {"name": "shop"}, "databases": [mysql("shop-db"), mysql("shop-db2")]},
    ),
    Case(
        "heroku: environments and a Procfile without web",
        {"app.json": '{"environments": {"test": {}}}', "Procfile": "clock: python clock.py\n"},
        {"project": {"name": "shop"}},
        ("process clock (python clock.py)", "environments"),
    ),
)
FLY = (
    Case(
        "fly: variables, health check, size, replicas and mount",
        {
            "fly.toml": """
app = "harbor"
primary_region = "fra"
[build]
dockerfile = "Dockerfile"
build-target = "web"
[build.args]
MODE = "fast"
[env]
LOG_LEVEL = "info"
[http_service]
internal_port = 4321
force_https = true
min_machines_running = 2
[[http_service.checks]]
path = "/up"
[[vm]]
memory = "512mb"
[mounts]
source = "data"
destination = "/var/data"
initial_size = "5gb"
"""
        },
        {
            "project": {
                "name": "harbor",
                **DOCKER,
                "docker-build-args": {"MODE": "fast"},
                "docker-build-target": "web",
                "health-check-path": "/up",
                "tier": "micro",
                "disk": 5,
                "env": {"LOG_LEVEL": "info", "PORT": "4321"},
                "auto-scaling": {"enabled": True, "min-replicas": 2, "max-replicas": 2},
            }
        },
        ("mount at /var/data",),
    ),
    Case(
        "fly: processes, release command and services without HTTP",
        {
            "fly.toml": """
app = "harbor"
[processes]
web = "npm start"
worker = "npm run worker"
[deploy]
release_command = "npm run migrate"
[[services]]
protocol = "tcp"
internal_port = 5432
[[services.ports]]
port = 5432
handlers = []
[[statics]]
guest_path = "/app"
url_prefix = "/"
"""
        },
        {"project": {"name": "harbor", "start-cmd": "npm start"}},
        ("process worker (npm run worker)", "deploy.release_command", "service on port 5432", "statics"),
    ),
    Case(
        "fly: an image, old service checks and a named size",
        {
            "fly.toml": """
app = "x"
[build]
image = "nginx:1"
[vm]
size = "performance-2x"
[[services]]
internal_port = 8080
[[services.ports]]
handlers = ["tls", "http"]
[[services.http_checks]]
path = "/ok"
"""
        },
        {
            "project": {
                "name": "x",
                "kind": "container",
                "public-image": "nginx:1",
                "health-check-path": "/ok",
                "tier": "medium",
            }
        },
    ),
    Case(
        "fly: the folder has a Dockerfile, and the file does not name it",
        {"fly.toml": 'app = "x"\n', "Dockerfile": "FROM scratch\n"},
        {"project": {"name": "x", **DOCKER}},
    ),
    Case(
        "fly: buildpacks",
        {"fly.toml": 'app = "x"\n[build]\nbuilder = "heroku/builder:22"\n', "Dockerfile": "FROM scratch\n"},
        {"project": {"name": "x"}},
        ("build",),
    ),
)
RENDER = (
    Case(
        "render: a web service with a database, a cron job and a worker",
        {
            "render.yaml": """
databases:
  - name: main-db
    databaseName: appdata
    user: app
    plan: basic-256mb
    postgresMajorVersion: "14"
services:
  - type: web
    name: api
    runtime: python
    rootDir: backend
    branch: release
    buildCommand: pip install -r requirements.txt
    startCommand: gunicorn app:app
    healthCheckPath: /health
    plan: standard
    preDeployCommand: flask db upgrade
    domains: [api.example.com, "*.example.com"]
    scaling: { minInstances: 1, maxInstances: 4, targetCPUPercent: 60 }
    envVars:
      - key: DATABASE_URL
        fromDatabase: { name: main-db, property: connectionString }
      - key: PG_HOST
        fromDatabase: { name: main-db, property: host }
      - key: SECRET_KEY
        generateValue: true
      - key: STRIPE
        sync: false
      - key: MODE
        value: fast
      - fromGroup: shared
  - type: cron
    name: nightly
    runtime: python
    schedule: "0 3 * * *"
    buildCommand: pip install -r requirements.txt
    startCommand: python nightly.py
    envVars: [{ key: DEPTH, value: 3 }]
  - type: worker
    name: queue
    runtime: python
  - type: keyvalue
    name: cache
envVarGroups:
  - name: shared
    envVars: [{ key: TZ, value: UTC }]
"""
        },
        {
            "project": {
                "name": "api",
                "base-dir": "backend",
                "build-cmd": "pip install -r requirements.txt",
                "start-cmd": "gunicorn app:app",
                "branch": "release",
                "health-check-path": "/health",
                "tier": "small",
                "secrets": ["SECRET_KEY", "STRIPE"],
                "env": {"MODE": "fast", "TZ": "UTC"},
                "auto-scaling": {
                    "enabled": True,
                    "min-replicas": 1,
                    "max-replicas": 4,
                    "target-cpu-percent": 60,
                },
            },
            "databases": [
                {**postgres("main-db", "14.8.0", username="app", **{"db-name": "appdata"}), "instance-type": "micro"}
            ],
            "domains": [{"domain": "api.example.com"}],
            "cronjobs": [
                {
                    "name": "nightly",
                    "cron-schedule": "0 3 * * *",
                    "language": "python",
                    "build-cmd": "pip install -r requirements.txt",
                    "start-cmd": "python nightly.py",
                    "env": {"DEPTH": "3"},
                }
            ],
        },
        (
            "variable PG_HOST",
            "domain *.example.com",
            "preDeployCommand",
            "service queue (worker)",
            "service cache",
        ),
    ),
    Case(
        "render: a static site with routes and headers",
        {
            "render.yaml": """
services:
  - type: web
    name: docs
    runtime: static
    buildCommand: npm run build
    staticPublishPath: ./dist
    pullRequestPreviewsEnabled: true
    routes:
      - { type: redirect, source: /old, destination: /new }
      - { type: rewrite, source: "/*", destination: /index.html }
    headers:
      - { path: /*, name: X-A, value: b }
"""
        },
        {
            "project": {
                "name": "docs",
                "kind": "static",
                "build-cmd": "npm run build",
                "build-dir": "dist",
                "pr-preview": True,
            },
            "redirects": [{"source": "/old", "destination": "/new", "status": 301}],
            "headers": [{"source": "/*", "name": "X-A", "value": "b"}],
        },
    ),
    Case(
        "render: a disk, an image, and a second web service",
        {
            "render.yaml": """
services:
  - { type: web, name: one, runtime: image, image: { url: "nginx:1" }, disk: { name: d, mountPath: /srv, sizeGB: 10 } }
  - { type: web, name: two, runtime: node }
  - { type: cron, name: tidy, runtime: docker, schedule: "@daily", dockerfilePath: ./tidy/Dockerfile }
"""
        },
        {
            "project": {"name": "one", "kind": "container", "public-image": "nginx:1", "disk": 10},
            "cronjobs": [
                {
                    "name": "tidy",
                    "cron-schedule": "@daily",
                    "language": "docker",
                    "dockerfile-path": "./tidy/Dockerfile",
                }
            ],
        },
        ("disk at /srv", "service two"),
    ),
    Case(
        "render: a Dockerfile with its context and command",
        {
            "render.yaml": """
services:
  - type: web
    name: one
    runtime: docker
    dockerfilePath: ./deploy/Dockerfile
    dockerContext: ./app
    dockerCommand: serve --fast
"""
        },
        {
            "project": {
                "name": "one",
                **DOCKER,
                "docker-file-path": "deploy/Dockerfile",
                "docker-build-context-dir": "app",
                "start-cmd": "serve --fast",
            }
        },
    ),
    Case(
        "render: databases alone",
        {"render.yaml": "databases: [{ name: db }]\n"},
        {"project": {"name": "shop"}, "databases": [postgres("db")]},
    ),
)
