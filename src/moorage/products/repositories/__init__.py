"""Built-in git server, and checkout of commits from it or from the code host."""
