"""One-off commands in the environment of an app."""
