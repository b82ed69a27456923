"""Checks of replayed messages. The texts are those of Gazette's message package since September 2021."""

from tidelog.gazette.errors import (
    ReplayBeginError,
    ReplayEndError,
    ReplayJournalError,
)
from tidelog.gazette.messages import Envelope, Journal, Offset


def check_replayed(envelope: Envelope, journal: Journal, begin: Offset, end: Offset) -> None:
    """Return if ``envelope`` lies within ``[begin, end)`` of ``journal``.

    Raises:
        ReplayJournalError: It is of another journal.
        ReplayBeginError: It begins before ``begin``.
        ReplayEndError: It ends after ``end``.
    """
    name = envelope.journal.name
    if name != journal:
        text = f"replay of wrong journal ({name}; expected {journal})"
        raise ReplayJournalError(text, values={"journal": name, "expected_journal": journal})
    if envelope.begin < begin:
        text = f"replay has wrong Begin ({envelope.begin}; expected >= {begin})"
        raise ReplayBeginError(text, values={"begin": str(envelope.begin), "min_begin": str(begin)})
    if envelope.end > end:
        text = f"replay has wrong End ({envelope.end}; expected <= {end})"
        raise ReplayEndError(text, values={"end": str(envelope.end), "max_end": str(end)})
