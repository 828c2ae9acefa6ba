"""Table of cached layers of image builds."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, UniqueConstraint, delete, select, update

from moorage.core.db.query import Command, Query, arg, insert_or_ignore, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass

image_layer = table(
    "image_layer",
    id_column(),
    Column("org_id", Id, nullable=False),
    text("cache"),  # name of the cache: one per project, cronjob, and fork
    text("key"),  # digest of all inputs of an instruction
    text("digest"),  # of the layer, in lower-case hex; "" if the instruction changed no file
    Column("size", BigInteger, nullable=False),
    millis("created_at"),
    millis("used_at"),
    UniqueConstraint("org_id", "cache", "key"),
)
Index("ix_image_layer_used_at", image_layer.c.used_at)


@dataclass(frozen=True, slots=True)
class CachedLayer:
    id: int
    org_id: int
    cache: str
    key: str
    digest: str
    size: int
    created_at: int
    used_at: int


_l = image_layer.c
_all = (_l.id, _l.org_id, _l.cache, _l.key, _l.digest, _l.size, _l.created_at, _l.used_at)
_mine = (_l.org_id == arg("org_id")) & (_l.cache == arg("cache"))

FIND = Query(select(*_all).where(_mine & (_l.key == arg("key"))), CachedLayer)
OF_OWNER = Query(
    select(*_all).where(
        (_l.org_id == arg("org_id"))
        & ((_l.cache == arg("cache")) | _l.cache.startswith(arg("forks"), autoescape=False))
    ),
    CachedLayer,
)
ALL = Query(select(*_all).where(_mine).order_by(_l.used_at.desc(), _l.id.desc()), CachedLayer)
HAS_DIGEST = Query(select(_l.id).where(_mine & (_l.digest == arg("digest"))).limit(1), scalar)
ADD: Query[int] = Query(
    insert_or_ignore(image_layer),
    scalar,
    sets=("org_id", "cache", "key", "digest", "size", "created_at", "used_at"),
)
USE = Command(update(image_layer).where(_mine & (_l.key == arg("key"))).values(used_at=arg("now")))
DROP = Command(delete(image_layer).where((_l.org_id == arg("org_id")) & (_l.id == arg("id"))))
UNUSED = Query(
    select(*_all).where(_l.used_at < arg("before")).order_by(_l.id).limit(arg("most")),
    CachedLayer,
)
