"""Files of Docker Compose."""

from __future__ import annotations

from tests.cli.importing.import_case import DOCKER, Case, mysql, postgres

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
