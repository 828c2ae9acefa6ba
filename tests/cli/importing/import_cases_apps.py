"""Files of platforms for apps: Docker Compose, Heroku, Fly and Render."""

from __future__ import annotations

from tests.cli.importing.import_case import Case, mysql, postgres

DOCKER = {"kind": "container", "language": "docker"}
COMPOSE = (
    Case(
        "compose: an app with PostgreSQL, whose password stays out",
        {
            "docker-compose.yml": """
services:
  web:
    build: .
    ports: ["3000:3000"]
    environment:
      NODE_ENV: production
      DATABASE_URL: postgres://app:hunter2@db:5432/app
      SESSION_SECRET: hunter2
    depends_on: [db]
    restart: unless-stopped
  db:
    image: postgres:16-alpine
    environment:
      POSTGRES_USER: app
      POSTGRES_PASSWORD: hunter2
      POSTGRES_DB: appdata
    volumes: [data:/var/lib/postgresql/data]
volumes:
  data: {}
"""
        },
        {
            "project": {"name": "shop", **DOCKER, "secrets": ["SESSION_SECRET"], "env": {"NODE_ENV": "production"}},
            "databases": [postgres("shop-db", username="app", **{"db-name": "appdata"})],
        },
        ("data of database db",),
        ("hunter2",),
    ),
    Case(
        "compose: anchors, merge keys and lists of variables",
        {
            "compose.yaml": """
x-env: &env
  LOG_LEVEL: info
  DEBUG: false
services:
  api:
    build:
      context: ./services/api
      dockerfile: Dockerfile.prod
      target: final
      args: { A: b, COMMIT: "${COMMIT}", NPM_TOKEN: hunter2 }
      secrets: [token]
    ports: ["80:80"]
    environment:
      <<: *env
      LOG_LEVEL: warning
  worker:
    build: ./worker
    environment: ["QUEUE=mail"]
"""
        },
        {
            "project": {
                "name": "shop",
                **DOCKER,
                "base-dir": "services/api",
                "docker-file-path": "Dockerfile.prod",
                "docker-build-args": {"A": "b"},
                "docker-build-target": "final",
                "env": {"LOG_LEVEL": "warning", "DEBUG": "false"},
            }
        },
        ("build argument COMMIT", "build argument NPM_TOKEN", "build.secrets", "service worker"),
        ("hunter2",),
    ),
    Case(
        "compose: memory, replicas, health check and command",
        {
            "docker-compose.yaml": """
name: Harbor App
services:
  app:
    build: .
    command: ["gunicorn", "app:app", "--bind", "0.0.0.0:8000"]
    healthcheck:
      test: ["CMD", "curl", "-f", "http://localhost:8000/healthz"]
    deploy:
      replicas: 3
      resources: { limits: { memory: 1G } }
"""
        },
        {
            "project": {
                "name": "harbor-app",
                **DOCKER,
                "start-cmd": "gunicorn app:app --bind 0.0.0.0:8000",
                "health-check-path": "/healthz",
                "tier": "mini",
                "auto-scaling": {"enabled": True, "min-replicas": 3, "max-replicas": 3},
            }
        },
        (),
    ),
    Case(
        "compose: MySQL 5.7, MariaDB and stores that are not offered",
        {
            "docker-compose.yml": """
services:
  app: { build: ., ports: ["80:80"] }
  old: { image: "mysql:5.7", environment: [MYSQL_DATABASE=blog, MYSQL_ROOT_PASSWORD=hunter2] }
  maria: { image: "mariadb:11" }
  cache: { image: "redis:7" }
  search: { image: docker.io/library/elasticsearch:8.1.0 }
  mail: { image: mailhog/mailhog }
"""
        },
        {
            "project": {"name": "shop", **DOCKER},
            "databases": [mysql("shop-old", "5.7.44", **{"db-name": "blog"}), mysql("shop-maria")],
        },
        ("MariaDB of maria", "service cache", "service search", "service mail"),
        ("hunter2",),
    ),
    Case(
        "compose: variables of the shell, defaults, env files and escapes",
        {
            "docker-compose.yml": """
services:
  app:
    build: .
    env_file: [.env, { path: other.env }]
    environment:
      - REGION=${REGION:-eu}
      - STRIPE=${STRIPE}
      - PASSED
      - PRICE=5$$
"""
        },
        {
            "project": {
                "name": "shop",
                **DOCKER,
                "secrets": ["STRIPE", "PASSED"],
                "env": {"REGION": "eu", "PRICE": "5$"},
            }
        },
        ("env_file .env", "env_file other.env"),
    ),
    Case(
        "compose: volumes become the disk",
        {
            "docker-compose.yml": """
services:
  app:
    build: .
    volumes: ["uploads:/app/uploads", "./:/app", "./config:/etc/app"]
    privileged: true
volumes: { uploads: }
"""
        },
        {"project": {"name": "shop", **DOCKER, "disk": 1}},
        ("volume uploads:/app/uploads", "volume ./config:/etc/app", "privileged"),
    ),
    Case(
        "compose: PostgreSQL 12, and an address in another variable",
        {
            "docker-compose.yml": """
services:
  app:
    build: .
    environment: { DB_HOST: pg, DB_PORT: 5432 }
  pg: { image: "postgres:12.4" }
"""
        },
        {
            "project": {"name": "shop", **DOCKER, "env": {"DB_PORT": "5432"}},
            "databases": [postgres("shop-pg", "14.8.0")],
        },
        ("version 12.4 of database shop-pg", "variable DB_HOST"),
    ),
    Case(
        "compose: words and numbers stay as they are written",
        {
            "docker-compose.yml": """
services:
  app:
    build: .
    environment: { A: on, B: 12:30, C: yes, D: 010, E: 1.10 }
"""
        },
        {"project": {"name": "shop", **DOCKER, "env": {"A": "on", "B": "12:30", "C": "yes", "D": "010", "E": "1.10"}}},
        (),
    ),
)
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
