"""`moorage databases`: create, connect, back up and restore databases."""
