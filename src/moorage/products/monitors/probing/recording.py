"""Records a batch of checks and evaluates the alerts, in one transaction.

Recording is idempotent: a prober that does not know whether a batch was committed sends it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.products.monitors.alerts import expiry, incidents
from moorage.products.monitors.probing import tables as recording_tables
from moorage.products.monitors.probing.beats import Beat
from moorage.products.monitors.probing.tables import as_list
from moorage.products.monitors.tables import SPANS, Monitor

MAX_LAG_MS = 2**31 - 1  # largest value of the column; only a clock that was set gives more
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


@across_organizations("a prober checks the monitors of all organizations")
def record(tx: Tx, prober: str, beats: Sequence[Beat]) -> int:
    """Record checks and evaluate alerts. Return the number of recorded checks.

    Ignores checks of monitors that are deleted, paused or held by another prober, and of slots that are recorded
    already. Safe to repeat.
    """
    new = _select_new(tx, prober, beats)
    if not new:
        return 0
    # The heartbeats first: the evaluation of alerts reads them.
    tx.run_many(recording_tables.ADD_HEARTBEAT, [_heartbeat(beat) for _, beat in new])
    tx.run_many(recording_tables.ADD_TO_ROLLUP, [_rollup(beat, span_s) for _, beat in new for span_s in SPANS])
    tx.run_many(recording_tables.SET_STATE, [_state(beat) for _, beat in new])
    incidents.on_beats(tx, new)
    for monitor, beat in new:
        expiry.on_beat(tx, monitor.org_id, monitor, beat)
    return len(new)


@across_organizations("a prober checks the monitors of all organizations")
def _select_new(tx: Tx, prober: str, beats: Sequence[Beat]) -> list[tuple[Monitor, Beat]]:
    """Lock the monitors; return each with a check to record, by monitor and slot."""
    ids = as_list({beat.monitor_id for beat in beats})
    held = {monitor.id: monitor for monitor in tx.all(recording_tables.HOLD, prober=prober, ids=ids)}
    mine = [beat for beat in beats if beat.monitor_id in held and held[beat.monitor_id].org_id == beat.org_id]
    by_slot = {(beat.monitor_id, beat.slot): beat for beat in reversed(mine)}  # of two for one slot the first counts
    # Heartbeats are added only under the lock of their monitor, so the result cannot change until the commit.
    known = set(tx.all(recording_tables.KNOWN, beats=as_list(by_slot))) if by_slot else set()
    return [(held[key[0]], _storable(by_slot[key])) for key in sorted(by_slot.keys() - known)]


def _storable(beat: Beat) -> Beat:
    """Replace unprintable characters from servers, which databases may reject."""
    outcome, certificate = beat.outcome, beat.outcome.certificate
    texts = (outcome.message, certificate.subject, certificate.issuer) if certificate else (outcome.message,)
    if all(map(str.isprintable, texts)):
        return beat
    if certificate is not None:
        subject, issuer = _printable(certificate.subject), _printable(certificate.issuer)
        certificate = replace(certificate, subject=subject, issuer=issuer)
    return replace(beat, outcome=replace(outcome, message=_printable(outcome.message), certificate=certificate))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else UNKNOWN for character in text)


def _heartbeat(beat: Beat) -> dict[str, Any]:
    return {
        "org_id": beat.org_id,
        "monitor_id": beat.monitor_id,
        "slot": beat.slot,
        "at": beat.at,
        "status": beat.status,
        "response_ms": beat.outcome.response_ms,
        "code": beat.outcome.code,
        "message": beat.outcome.message,
    }


def _rollup(beat: Beat, span_s: int) -> dict[str, Any]:
    is_up = beat.outcome.is_up
    return {
        "org_id": beat.org_id,
        "monitor_id": beat.monitor_id,
        "span_s": span_s,
        "start": beat.slot - beat.slot % (span_s * 1000),
        "up": int(is_up),
        "down": int(not is_up),
        "response_sum": (beat.outcome.response_ms or 0) if is_up else 0,
    }


def _state(beat: Beat) -> dict[str, Any]:
    certificate = beat.outcome.certificate
    return {
        "org_id": beat.org_id,
        "monitor_id": beat.monitor_id,
        "status": beat.status,
        "response_ms": beat.outcome.response_ms,
        "code": beat.outcome.code,
        "at": beat.at,
        "slot": beat.slot,
        "late_ms": min(beat.lag_ms, MAX_LAG_MS),
        "skipped": beat.missed,
        "new_ssl_subject": certificate and certificate.subject,
        "new_ssl_issuer": certificate and certificate.issuer,
        "new_ssl_valid_to": certificate and certificate.valid_to,
        "new_ssl_fingerprint": certificate and certificate.fingerprint,
    }
