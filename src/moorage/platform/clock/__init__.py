"""Detection and repair of clock steps."""
