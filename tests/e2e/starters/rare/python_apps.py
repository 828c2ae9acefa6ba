"""Dashboards and notebooks in Python, as the documentation of their frameworks lays them out."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.starters.shapes import Starter


def notebook(*sources: str) -> str:
    """Return a notebook with these cells of code, as Jupyter saves it before it is run."""
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": None, "id": f"cell-{number}", "metadata": {}, "outputs": [],
         "source": source.splitlines(keepends=True)}
        for number, source in enumerate(sources)
    ]  # fmt: skip
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


STARTERS = (
    Starter(
        "chainlit",
        "Chainlit",
        {
            "requirements.txt": "chainlit==2.9.6\n",
            "app.py": """
                import chainlit as cl


                @cl.on_message
                async def main(message: cl.Message):
                    await cl.Message(content=f"Received: {message.content}").send()
            """,
            "chainlit.md": "# Welcome to the harbor\n",
        },
        {"/": "<title>Assistant</title>", "/project/translations?language=en-US": "translation"},
    ),
    Starter(
        # `marimo edit notebook.py` writes this file.
        "marimo",
        "Marimo",
        {
            "requirements.txt": "marimo==0.23.16\n",
            "notebook.py": '''
                import marimo

                __generated_with = "0.23.16"
                app = marimo.App(width="medium", app_title="Berths of the harbor")


                @app.cell
                def _():
                    import marimo as mo

                    return (mo,)


                @app.cell
                def _(mo):
                    mo.md("""# Free berths""")
                    return


                if __name__ == "__main__":
                    app.run()
            ''',
        },
        {"/": "Berths of the harbor", "/health": "healthy"},
    ),
    Starter(
        "panel",
        "Panel",
        {
            "requirements.txt": "panel==1.8.10\n",
            "app.py": """
                import panel as pn

                pn.extension()

                length = pn.widgets.IntSlider(name="Length", start=5, end=30, value=12)


                def free(value):
                    return f"Free berths of {value} m"


                pn.Column("# Harbor", length, pn.bind(free, length)).servable(title="Berths")
            """,
        },
        {"/app": "<title>Berths</title>", "/nothing": 404},
    ),
    Starter(
        # The kernel is not a dependency of Voilà, and repositories of notebooks seldom list it.
        "voila",
        "Voilà",
        {
            "requirements.txt": "voila==0.5.12\nipywidgets==8.1.8\n",
            "berths.ipynb": notebook(
                "import ipywidgets as widgets\n\nwidgets.IntSlider(value=3, description='Boats')\n",
                "print('free berths:', 6 * 7)\n",
            ),
        },
        {"/": "free berths: 42"},
    ),
    Starter(
        # `jupyter-book create` of version 1 writes these files; the requirements name no version.
        "jupyter-book",
        "Jupyter Book",
        {
            "requirements.txt": "jupyter-book\nmatplotlib\nnumpy\n",
            "_config.yml": """
                title: Harbor handbook
                author: The harbor master
                execute:
                  execute_notebooks: force
                only_build_toc_files: true
            """,
            "_toc.yml": """
                format: jb-book
                root: intro
                chapters:
                  - file: tides
                  - file: notebooks
            """,
            "intro.md": "# Welcome to the handbook\n\n```{tableofcontents}\n```\n",
            "tides.md": "# Tides\n\n:::{note}\nHigh water at noon.\n:::\n",
            "notebooks.ipynb": notebook("import numpy as np\n\nprint('depth', np.array([1, 2, 3]).sum())\n"),
        },
        {"/intro.html": "Welcome to the handbook", "/tides.html": "High water", "/notebooks.html": "depth 6"},
        kind="static",
    ),
)
