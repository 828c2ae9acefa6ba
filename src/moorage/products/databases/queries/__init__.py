"""Statements of users, and the tables of a database, for people who look at its data."""
