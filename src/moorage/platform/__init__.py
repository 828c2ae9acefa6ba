"""The platform's processes, and the operator's tools: backup, restore, doctor."""

import gc

# The start of a process creates many objects, and nearly all of them stay. Garbage collections during the imports take
# a tenth of the start time. `http.server.tune_garbage_collector` sets the thresholds for the time after.
gc.set_threshold(50_000, 20, 50)
