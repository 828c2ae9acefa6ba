"""The processes of the platform, and what its operator does with them."""

import gc

# Loading a process makes many objects, nearly all of which stay: looking through them again and again while there are
# ever more of them takes a tenth of the time of a start. `http.server.settle_memory` settles what comes after.
gc.set_threshold(50_000, 20, 50)
