"""Rules of the log that are left out, so that a test shows that its judge finds that."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias
from unittest import mock

from tidelog_server.recordlog.records import Kind, Position, Record
from tidelog_server.recordlog.rules import Reader, Tenure

_Take: TypeAlias = Callable[[Reader, Position, Record | None], Any]


def take_without_numbers(take: _Take) -> _Take:
    """Return a ``Reader.take`` that ignores the numbers of groups, and so what they follow: rule 3."""

    def without_numbers(self: Reader, position: Position, record: Record | None) -> Any:
        if record is not None and record.kind is Kind.GROUP and record.term == self.term:
            self.number = record.number
            self.mark = record.before
        return take(self, position, record)

    return without_numbers


def leave_out_numbers() -> None:
    """Make this process ignore the numbers of groups until it owns the log.

    An owner that ignores them has no place for its own next record, and ends by itself.
    """
    take, begin = Reader.take, Tenure.__init__

    def with_numbers(self: Tenure, reader: Reader, fence: Position) -> None:
        begin(self, reader, fence)
        # Of this reader.
        mock.patch.object(reader, "take", partial(take, reader)).start()

    # Not ended: the process serves nothing else.
    mock.patch.object(Reader, "take", take_without_numbers(take)).start()
    mock.patch.object(Tenure, "__init__", with_numbers).start()


def leave_out_rule_5() -> None:
    """Make the owner of this process confirm its records without reading what lies between."""
    mock.patch.object(Tenure, "unread_before", lambda _tenure, position: range(position, position)).start()
