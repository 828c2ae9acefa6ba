"""Python packages that a project needs besides those that it lists, and their versions."""
