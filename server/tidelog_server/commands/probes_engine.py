"""Checks of an engine for ``tidelog doctor``: what a log in it needs, on a topic that is deleted afterwards."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from secrets import token_bytes, token_hex
from typing import Final

from tidelog_server.commands.probes import Finding, Severity
from tidelog_server.core.errors import DataLossError
from tidelog_server.recordlog.access import Copies, LogAccess
from tidelog_server.recordlog.engine import EngineUnavailableError, LogSetupError
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.records import EMPTY, INCARNATION_BYTES, MAX_PAYLOAD_BYTES, MAX_RECORD_BYTES
from tidelog_server.recordlog.rules import START, FencedError, Reader, TenureEndedError
from tidelog_server.runtime.clock import SystemClock

_APPENDS: Final = 50
_WARM_UP: Final = 5
_PAYLOAD_BYTES: Final = 1_000
_WITHIN_S: Final = 10.0
_CONFIRMING: Final = 2
_FAILURES: Final = (
    LogSetupError, EngineUnavailableError, TenureEndedError, FencedError, DataLossError,
)  # fmt: skip


class _StepFailedError(Exception):
    """A step of the check failed; the text names the operation."""


def check_engine(access: LogAccess, topic: str, about: str) -> list[Finding]:
    """Check that an engine answers, how many copies a log gets, what this user may do, and how long appends take.

    Args:
        access: The engine.
        topic: Topic of a log whose settings are checked, too; empty for none.
        about: Begins the names of the findings.
    """
    try:
        answered = access.answering()
    except _FAILURES as error:
        return [Finding(about, Severity.FAILURE, str(error))]
    findings = [Finding(about, Severity.OK, f"{answered} at {access.address}")]
    if topic:
        findings.append(_check_log(access, topic, about))
    return [*findings, *_check_appends(access, about)]


def _copies(copies: Copies, about: str) -> Finding:
    confirmed = f"an append is confirmed by {copies.confirming} of {copies.copies} copies"
    if copies.confirming < _CONFIRMING:
        return Finding(
            f"{about} copies",
            Severity.WARNING,
            f"{confirmed}: the loss of a disk, or a power failure, may lose acknowledged messages. {copies.advice}",
        )
    return Finding(f"{about} copies", Severity.OK, f"in a new log {confirmed}")


def _check_log(access: LogAccess, topic: str, about: str) -> Finding:
    about = f"{about} topic"
    try:
        access.check(topic)
        copies = access.copies_of(topic)
    except _FAILURES as error:
        return Finding(about, Severity.FAILURE, str(error))
    if copies.confirming < _CONFIRMING:
        text = f"in the topic '{topic}' an append is confirmed by {copies.confirming} of {copies.copies} copies"
        return Finding(about, Severity.WARNING, f"{text}. {copies.advice}")
    return Finding(about, Severity.OK, f"the settings of the topic '{topic}' are those that a log needs")


def _check_appends(access: LogAccess, about: str) -> list[Finding]:
    """Create a log, use it as a server does, and delete it."""
    topic, permissions = f"tidelog-doctor-{token_hex(6)}", f"{about} permissions"
    try:
        access.create(topic)
    except _FAILURES as error:
        text = f"{error}. A server does not create topics, but appends could not be checked"
        return [Finding(permissions, Severity.WARNING, text)]
    findings: list[Finding] = []
    try:
        topic_id = access.check_created(topic)
        with closing(RecordLog(access.engine(topic), SystemClock())) as log:
            findings.append(_copies(access.copies_of(topic), about))
            findings.extend(_use(log, topic_id, about))
    except (_StepFailedError, *_FAILURES) as error:
        findings.append(Finding(permissions, Severity.FAILURE, str(error)))
    else:
        text = "this user may create, describe, read, append to, trim and delete topics"
        findings.append(Finding(permissions, Severity.OK, text))
    try:
        access.delete(topic)
    except _FAILURES as error:
        findings.append(Finding(f"{about} topics", Severity.WARNING, f"{error}. Delete this topic of the check"))
    return findings


def _use(log: RecordLog, topic_id: bytes, about: str) -> Iterator[Finding]:
    _step("append a record", lambda: log.create(token_bytes(INCARNATION_BYTES), topic_id))
    _step("read records", lambda: log.claim(Reader(START), log.bounds().begin, None, lambda _: None))
    _step(f"append a record of {MAX_RECORD_BYTES} bytes", lambda: _append(log, MAX_PAYLOAD_BYTES))
    yield Finding(f"{about} record size", Severity.OK, f"records may have {MAX_RECORD_BYTES} bytes, as a log needs")
    appends = range(_WARM_UP + _APPENDS)
    durations_s = [_step("append a record", lambda: _append(log, _PAYLOAD_BYTES)) for _ in appends]
    median_ms = statistics.median(durations_s[_WARM_UP:]) * 1e3
    text = f"a confirmed append of {_PAYLOAD_BYTES} bytes takes {median_ms:.1f} ms (median of {_APPENDS})"
    yield Finding(f"{about} appends", Severity.OK, text)
    _step("delete records, which a trim needs", lambda: log.trim(log.bounds().begin + 1))


def _append(log: RecordLog, size_bytes: int) -> None:
    ticket = log.append(bytes(size_bytes), EMPTY, EMPTY, None)
    if not log.wait(ticket, _WITHIN_S):
        raise EngineUnavailableError(f"no confirmation within {_WITHIN_S:.0f} s")


def _step(what: str, run: Callable[[], object]) -> float:
    """Run a step, and return the seconds that it took; ``what`` completes 'cannot'."""
    start_s = time.perf_counter()
    try:
        run()
    except _FAILURES as error:
        raise _StepFailedError(f"cannot {what}: {error}") from error
    return time.perf_counter() - start_s
