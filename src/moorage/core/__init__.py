"""Mechanisms that know no product: the store, HTTP, jobs, artifacts, secrets, telemetry."""
