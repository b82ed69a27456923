r"""``text/csv``: one record and ``\n``.

A field is quoted if it contains a comma, a quote or a line end, begins with white space, or is ``\.``. Bytes that are
not UTF-8 are kept. Sources: RFC 4180; Gazette's message package, file csv_framing.go; the rules of Go's CSV package.
"""

import re
from typing import Final, Protocol, runtime_checkable

from tidelog.gazette.errors import (
    FieldCountError,
    MalformedFrameError,
    NotFrameableError,
    UnexpectedEOFError,
    frame_too_large,
)
from tidelog.gazette.framings.byte_reader import ByteReader
from tidelog.gazette.framings.csv_record_text import OpenQuoteError, parse_record, record_text
from tidelog.gazette.framings.framing import FrameDecoder, UnmarshalFunc, WholeFrames
from tidelog.gazette.messages import Frameable

CSV_CONTENT_TYPE: Final = "text/csv"
CSV_CONTENT_TYPE_OF_SEED: Final = "test/csv"
"""A misspelling in the documents of Gazette, which is accepted."""

_BLANK_LINES: Final = re.compile(rb"(?:\r?\n)*+")


@runtime_checkable
class CSVFrameable(Protocol):
    """What the framing requires of a message."""

    def marshal_csv(self) -> list[str]:
        """Return the fields of the message."""
        ...

    def unmarshal_csv(self, fields: list[str]) -> None:
        """Replace the content by ``fields``; raise if they are invalid."""
        ...


class _Records:
    """The records of one journal: all have the number of fields of the first."""

    def __init__(self) -> None:
        self._count = 0
        self._line = 1

    def apply(self, frame: bytes, parsed: list[str] | MalformedFrameError, message: Frameable) -> None:
        """Check a parsed record, and apply it to ``message``."""
        line = self._line + _blank_prefix(frame).count(b"\n")
        self._line += frame.count(b"\n")
        if isinstance(parsed, MalformedFrameError):
            raise parsed
        self._count = self._count or len(parsed)
        if parsed and len(parsed) != self._count:
            raise FieldCountError(
                f"record on line {line}: wrong number of fields",
                values={"line": str(line), "fields": str(len(parsed)), "expected_fields": str(self._count)},
            )
        _frameable(message).unmarshal_csv(parsed)

    def decode(self, frame: bytes, message: Frameable) -> None:
        """Parse one whole frame, and apply it to ``message``."""
        if not frame.endswith(b"\n"):
            raise UnexpectedEOFError("unexpected EOF")
        try:
            parsed = _parsed(frame)
        except OpenQuoteError as error:
            raise UnexpectedEOFError("the record ends within a quoted field: unexpected EOF") from error
        self.apply(frame, parsed, message)


class CSVFraming(WholeFrames):
    """The framing ``text/csv`` of ``CSVFrameable`` messages."""

    content_type: Final = CSV_CONTENT_TYPE

    def encode_frame(self, message: Frameable) -> bytes:
        """Return the record of a message.

        Raises:
            NotFrameableError: The message is not ``CSVFrameable``.
            FrameTooLargeError: The record exceeds the limit.
        """
        frame = record_text(_frameable(message).marshal_csv()).encode("utf-8", "surrogateescape")
        if len(frame) > self._max_bytes:
            raise frame_too_large(len(frame), self._max_bytes)
        return frame

    def unpack(self, reader: ByteReader) -> bytes:
        r"""Return the next record, with the blank lines before it.

        Raises:
            EOFError: At most blank lines follow.
            UnexpectedEOFError: The last record has no newline, or its last quote is not closed. It is consumed.
            FrameTooLargeError: The record exceeds the limit. What was read of it is consumed.
            MalformedFrameError: A quote is misplaced. The line is consumed.
        """
        frame, parsed = self._read(reader)
        if isinstance(parsed, MalformedFrameError):
            raise parsed
        return frame

    def new_unmarshal_func(self, reader: ByteReader) -> UnmarshalFunc:
        """Return a function that reads the records of ``reader``; see ``unpack``.

        A record whose number of fields is not that of the first raises ``FieldCountError``.
        """
        records = _Records()

        def unmarshal(message: Frameable) -> None:
            frame, parsed = self._read(reader)
            records.apply(frame, parsed, message)

        return unmarshal

    def new_frame_decoder(self) -> FrameDecoder:
        """Return the function that decodes one whole record of a journal."""
        return _Records().decode

    def _read(self, reader: ByteReader) -> tuple[bytes, list[str] | MalformedFrameError]:
        """Read the lines of a record; the error of a malformed one is returned, because its lines count."""
        frame = b""
        while True:
            line = reader.read_through(b"\n", self._max_bytes + 1 - len(frame))
            frame += line
            if len(frame) > self._max_bytes:
                raise frame_too_large(len(frame), self._max_bytes)
            is_blank = len(_blank_prefix(frame)) == len(frame)
            if not line and is_blank:
                raise EOFError("no record follows")
            if not line.endswith(b"\n"):
                raise UnexpectedEOFError("unexpected EOF")
            if is_blank:
                continue
            try:
                return frame, _parsed(frame)
            except OpenQuoteError:
                continue


def _parsed(frame: bytes) -> list[str] | MalformedFrameError:
    try:
        return parse_record(frame.decode("utf-8", "surrogateescape"))
    except MalformedFrameError as error:
        return error


def _blank_prefix(frame: bytes) -> bytes:
    match = _BLANK_LINES.match(frame)
    return match[0] if match else b""


def _frameable(message: Frameable) -> CSVFrameable:
    if not hasattr(message, "marshal_csv") or not hasattr(message, "unmarshal_csv"):
        raise NotFrameableError(
            f"{type(message).__name__} is not CSVFrameable: the framing {CSV_CONTENT_TYPE} requires "
            "marshal_csv and unmarshal_csv; see CSVRecord"
        )
    # Both methods were looked up: `isinstance` of a protocol takes several times as long.
    return message
