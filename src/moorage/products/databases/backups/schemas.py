"""Request and response models of the backup routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from moorage.core.http.models import Input, Output, optional
from moorage.core.kit.clock import to_wire, to_wire_or_none
from moorage.core.kit.cron import MAX_EXPRESSION_CHARS, BadCron, Cron
from moorage.products.databases.backups.service import Changes
from moorage.products.databases.tables import Backup, Database

MAX_RETENTION_DAYS = 365
MAX_BACKUPS_TO_KEEP = 365
_DAYS = re.compile(r"([0-9]{1,3})d")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?([Zz]|[+-]\d{2}:?\d{2})")


def _cron(text: str) -> str:
    try:
        Cron.parse(text)
    except BadCron as error:
        raise ValueError(str(error)) from None
    return text


def _period(text: str) -> str:
    match = _DAYS.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= MAX_RETENTION_DAYS:
        raise ValueError(f"should be a number of days from 1d to {MAX_RETENTION_DAYS}d")
    return text


def _moment(text: str) -> str:
    try:
        if _MOMENT.fullmatch(text) is None:
            raise ValueError
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("should be a time with its zone, such as 2026-05-01T12:30:00Z") from None
    return text


CronText = Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION_CHARS), AfterValidator(_cron)]
Period = Annotated[str, AfterValidator(_period)]
Moment = Annotated[str, AfterValidator(_moment)]


class UpdateBackupsInput(Input):
    enabled: bool = optional()
    method: Literal["logical", "physical"] = optional(description="`physical` allows restores to any point in time.")
    cron_expression: CronText = optional(description="In UTC.")
    retention_period: Period = optional(description="A number of days, such as `7d`.")
    backups_to_keep: Annotated[int, Field(ge=1, le=MAX_BACKUPS_TO_KEEP)] = optional()

    def changes(self) -> Changes:
        days = int(self.retention_period.removesuffix("d")) if self.retention_period else None
        return Changes(self.enabled, self.method, self.cron_expression, days, self.backups_to_keep)


class RestoreDatabaseInput(Input):
    backup_name: Annotated[str, Field(min_length=1, max_length=200)]
    confirm: bool = False
    target_time: Moment = optional(description="The point in time to restore; needs a physical backup before it.")

    @property
    def target_ms(self) -> int | None:
        if not self.target_time:
            return None
        return int(datetime.fromisoformat(self.target_time).astimezone(UTC).timestamp() * 1000)


class BackupConfig(Output, frozen=True):
    enabled: bool
    method: str
    cron_expression: str
    retention_period: str
    backups_to_keep: int | None
    last_verified_restore: str | None

    @classmethod
    def of(cls, database: Database) -> BackupConfig:
        return cls(
            enabled=database.backup,
            method=database.backup_method,
            cron_expression=database.backup_cron,
            retention_period=f"{database.backup_days}d",
            backups_to_keep=database.backups_to_keep,
            last_verified_restore=to_wire_or_none(database.verified_at),
        )


class BackupItem(Output, frozen=True):
    name: str
    status: str
    method: str
    total_size: int | None
    started_at: str
    completed_at: str | None
    expires_at: str | None
    verified_at: str | None
    reason: str | None
    cause: str

    @classmethod
    def of(cls, backup: Backup) -> BackupItem:
        return cls(
            name=backup.name,
            status=backup.status,
            method=backup.method,
            total_size=backup.total_size,
            started_at=to_wire(backup.started_at),
            completed_at=to_wire_or_none(backup.completed_at),
            expires_at=to_wire_or_none(backup.expires_at),
            verified_at=to_wire_or_none(backup.verified_at),
            reason=backup.reason,
            cause=backup.cause,
        )


class DatabaseBackups(Output, frozen=True):
    config: BackupConfig | None
    items: list[BackupItem]

    @classmethod
    def of(cls, database: Database, backups: Sequence[Backup]) -> DatabaseBackups:
        config = BackupConfig.of(database) if database.backup else None
        return cls(config, [BackupItem.of(each) for each in backups])
