"""Mechanisms without product knowledge: database, HTTP, jobs, artifacts, secrets."""
