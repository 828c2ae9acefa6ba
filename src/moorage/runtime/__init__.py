"""Where users' code runs: sandboxes, builds, images, shims, function workers, database servers."""
