"""The table of detectors, in order of precedence: the first row that matches decides.

To add a framework, add a row to one of the modules, and a case for it to tests/runtime/builds/detection_cases.py.
"""

from __future__ import annotations

from moorage.runtime.builds.detection.table import deno, functions, go, node, nx, other, python, sites
from moorage.runtime.builds.detection.table.row import Row

ROWS: tuple[Row, ...] = (
    *other.REFUSED_FIRST,
    *python.DJANGO,
    *nx.ROWS,  # package.json of a workspace lists the frameworks of all its apps
    *node.FULL_STACK,
    *node.GENERATORS,
    *sites.HUGO_THEMES,
    *sites.ROWS[:2],  # Hugo sites have a package.json for their styles
    *node.BUNDLERS,
    *node.SERVERS,
    *deno.ROWS,
    *functions.ROWS,
    *python.APPS,
    *node.ANY,
    *python.SITES,
    *sites.ROWS[2:],
    *functions.ALONE,
    *go.ROWS,
    *other.REFUSED,
    *python.SCRIPTS,
    *sites.PLAIN,
    *functions.HOSTED,
    *node.LAST,
    *other.DOCKER,
)
