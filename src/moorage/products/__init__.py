"""Resources of users: projects, functions, databases, cronjobs, monitors and all that belongs to them."""
