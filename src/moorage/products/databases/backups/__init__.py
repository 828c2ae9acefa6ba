"""Backups of databases: schedules, restores and restore tests."""
