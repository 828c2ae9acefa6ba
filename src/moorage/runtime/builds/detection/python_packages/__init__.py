"""Python packages that a project needs: from the files of its package manager, from its code, and besides both."""
