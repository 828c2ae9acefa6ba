"""CPU time of function sandboxes: fair shares, and short waits for all others."""
