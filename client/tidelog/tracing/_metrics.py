"""Metrics of clients: what they send, receive and process, and the figures of open objects."""

from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from tidelog.tracing import _conventions
from tidelog.tracing._conventions import Target
from tidelog.transport.measures import INSTRUMENTS, Instrument, measures


class Messaging:
    """The metrics of the conventions for messaging. Recorded per call or batch, never per message."""

    def __init__(self, meter: Meter) -> None:
        self._operation_s = meter.create_histogram(
            _conventions.OPERATION_DURATION, "s", "Time until an append, commit or broadcast was answered.",
            explicit_bucket_boundaries_advisory=_conventions.DURATION_BUCKETS_S,
        )  # fmt: skip
        self._process_s = meter.create_histogram(
            _conventions.PROCESS_DURATION, "s", "Time from the delivery of batches to the next request of a consumer.",
            explicit_bucket_boundaries_advisory=_conventions.DURATION_BUCKETS_S,
        )  # fmt: skip
        self._sent = meter.create_counter(
            _conventions.SENT_MESSAGES, "{message}", "Messages that were sent, also those that were refused."
        )
        self._consumed = meter.create_counter(
            _conventions.CONSUMED_MESSAGES, "{message}", "Messages that scans and consumers received."
        )

    def sent(self, target: Target, duration_s: float, messages: int, error: BaseException | None) -> None:
        """Record an operation that has ended with ``error``, or without one."""
        by = _conventions.measured_by(target, _type_of(error))
        self._operation_s.record(duration_s, by)
        if messages:
            self._sent.add(messages, by)

    def consumed(self, target: Target, messages: int) -> None:
        """Record messages that were received."""
        self._consumed.add(messages, _conventions.measured_by(target))

    def processed(self, target: Target, duration_s: float, error: BaseException | None) -> None:
        """Record how long the caller of a consumer took."""
        self._process_s.record(duration_s, _conventions.measured_by(target, _type_of(error)))


def _type_of(error: BaseException | None) -> str:
    return "" if error is None else type(error).__name__


def observe(meter: Meter) -> None:
    """Create the instruments of open objects; the reader of the meter's provider decides when they are read."""
    for each in INSTRUMENTS:
        create = meter.create_observable_counter if each.is_total else meter.create_observable_gauge
        create(each.name, [_Callback(each)], each.unit, each.description)


class _Callback:
    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument

    def __call__(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(each.value, dict(each.attributes)) for each in measures.now(self._instrument)]
