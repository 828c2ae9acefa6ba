"""`python -m moorage.docs.store_script`, a part of `make docs`: writes the script that creates new SQLite stores."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from moorage.core.db import migrate, new_store


def main() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        migrate.run_migrations(path)
        new_store.SCRIPT.write_text(new_store.script_of(path))
    print(new_store.SCRIPT)


if __name__ == "__main__":
    main()
