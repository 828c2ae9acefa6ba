"""What users create: projects, functions, databases, cronjobs, monitors and all that belongs to them."""
