"""Queries of backups and archived WAL files."""

from __future__ import annotations

from sqlalchemy import delete, select, update

from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar, sets_of
from moorage.core.kit.records import dataclass
from moorage.products.databases.tables import Backup, Database, backup, database, wal

_b, _d, _w = backup.c, database.c, wal.c
_all = select(*columns(backup))
_of_database = (_b.org_id == arg("org_id")) & (_b.database_id == arg("database_id"))
_this = (_b.org_id == arg("org_id")) & (_b.id == arg("id"))

# Newest first; the id orders backups that started in the same millisecond.
OF_DATABASE = Query(_all.where(_of_database).order_by(_b.started_at.desc(), _b.id.desc()), Backup)
FIND = Query(_all.where(_this), Backup)
FIND_BY_NAME = Query(_all.where(_of_database & (_b.name == arg("name"))), Backup)
ADD: Query[int] = Query(insert_or_ignore(backup), scalar, sets=sets_of(backup))
SET_VERIFIED = Command(update(backup).where(_this).values(verified_at=arg("now"), updated_at=arg("now")))
DELETE = Command(delete(backup).where(_this))
WITH_BACKUPS = Query(
    select(*columns(database)).where(_d.id.in_(select(_b.database_id)) & _d.deleted_at.is_(None)).order_by(_d.id),
    Database,
)


@dataclass(frozen=True, slots=True)
class WalFile:
    """An archived WAL file; its name is `folder of the server/file name`."""

    id: int
    name: str
    digest: str
    size: int

    @property
    def folder(self) -> str:
        return self.name.partition("/")[0]

    @property
    def file(self) -> str:
        return self.name.partition("/")[2]


_wal_of = (_w.org_id == arg("org_id")) & (_w.database_id == arg("database_id"))
WAL_FILES = Query(select(_w.id, _w.name, _w.digest, _w.size).where(_wal_of).order_by(_w.name), WalFile)
ADD_WAL_FILE: Query[int] = Query(
    insert_or_ignore(wal), scalar, sets=("org_id", "database_id", "name", "digest", "size", "stored_at")
)
DELETE_WAL_FILE = Command(delete(wal).where((_w.org_id == arg("org_id")) & (_w.id == arg("id"))))
ARCHIVING = Query(
    select(*columns(database))
    .where(_d.backup & (_d.backup_method == "physical") & _d.deleted_at.is_(None))
    .order_by(_d.id),
    Database,
)
