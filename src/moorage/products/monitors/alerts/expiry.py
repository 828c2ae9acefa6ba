"""Sends notices about expiring certificates, once per certificate and threshold."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import insert, select

from moorage.core.db.query import Command, Query, arg, sets_of
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.records import dataclass
from moorage.products.monitors.alerts import notices
from moorage.products.monitors.alerts.notices import Observed
from moorage.products.monitors.probing.beats import Beat
from moorage.products.monitors.probing.certificates import days_left
from moorage.products.monitors.tables import Monitor, certificate_notice

THRESHOLDS = (21, 14, 7, 1)  # days
# Servers behind one name may alternate between certificates; only one of them causes a notice in this time.
MIN_NOTICE_INTERVAL_MS = DAY_MS


@dataclass(frozen=True, slots=True)
class SentNotice:
    fingerprint: str
    threshold_days: int
    created_at: int


_c = certificate_notice.c
# Notices about a certificate, and recent ones about other certificates of the monitor.
SENT = Query(
    select(_c.fingerprint, _c.threshold_days, _c.created_at).where(
        (_c.org_id == arg("org_id"))
        & (_c.monitor_id == arg("monitor_id"))
        & ((_c.fingerprint == arg("fingerprint")) | (_c.created_at > arg("since")))
    ),
    SentNotice,
)
ADD = Command(insert(certificate_notice), sets=sets_of(certificate_notice))


def on_beat(tx: Tx, org_id: int, monitor: Monitor, beat: Beat) -> None:
    """Add a notice if the certificate of a check reaches a threshold.

    The caller has locked the monitor. Of several thresholds that have passed, only the lowest causes a notice.
    """
    certificate = beat.outcome.certificate
    if certificate is None or not monitor.expire_cert_notify:
        return
    days = days_left(certificate.valid_to, beat.at)
    passed = [threshold for threshold in THRESHOLDS if days <= threshold]
    if not passed:
        return
    fingerprint, since = certificate.fingerprint, tx.now - MIN_NOTICE_INTERVAL_MS
    sent = tx.all(SENT, org_id=org_id, monitor_id=monitor.id, fingerprint=fingerprint, since=since)
    marked = {each.threshold_days for each in sent if each.fingerprint == fingerprint}
    threshold = passed[-1]
    if any(mark <= threshold for mark in marked) or any(each.created_at > since for each in sent):
        return
    _mark(tx, org_id, monitor.id, fingerprint, set(passed) - marked)
    notices.add(
        tx,
        org_id,
        monitor=monitor,
        alert=None,
        incident=None,
        about=f"certificate:{monitor.id}:{fingerprint}:{threshold}",
        kind="certificate",
        observed=Observed.of(beat, days),
        certificate=certificate,
    )


def _mark(tx: Tx, org_id: int, monitor_id: int, fingerprint: str, thresholds: Iterable[int]) -> None:
    of_certificate = {"org_id": org_id, "monitor_id": monitor_id, "fingerprint": fingerprint, "created_at": tx.now}
    tx.run_many(ADD, [{**of_certificate, "threshold_days": threshold} for threshold in thresholds])
