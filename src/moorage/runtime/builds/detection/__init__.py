"""Detection of a build plan from the files of a repository."""
