"""Errors of exactly-once messages, part of the client's hierarchy (``tidelog.TidelogError``).

The tree::

    TidelogError
    └── GazetteError
        ├── UnknownContentTypeError     set the journal's label content-type, or register a framing
        ├── FramingError
        │   ├── DesyncDetectedError     call again: the next frame follows the skipped bytes
        │   ├── UnexpectedEOFError      the last frame is incomplete: read the rest of it
        │   ├── FrameTooLargeError      check what writes the journal, or raise the limit
        │   ├── MalformedFrameError     call again: the frame is consumed
        │   │   ├── FieldCountError     write records with the number of fields of the first one
        │   │   └── InvalidUUIDError    write the UUID of the message in its place
        │   ├── NotFrameableError       implement what the framing of the journal requires
        │   └── UnmarshalError          call again: reading continues behind the frame
        ├── MissingJournalError         create the journal, or correct its name
        ├── EmptyListResponseError      create a journal that the selector matches, or retry later
        ├── MustStartReplayError        start a replay of ``replay_range()``, then dequeue again
        └── ReplayError                 start a replay of ``replay_range()`` again
            ├── ReplayReaderError       check its cause first
            ├── ReplayJournalError      replay the journal of the range
            ├── ReplayBeginError        replay from the begin of the range
            └── ReplayEndError          replay to the end of the range, exclusive

Where Go's package panics, ``RuntimeError`` is raised: the program is wrong. A clean end of data is ``EOFError``.
"""

from tidelog.errors import TidelogError, number_value, text_value


class GazetteError(TidelogError):
    """A message could not be published, read or sequenced."""


class UnknownContentTypeError(GazetteError):
    """The content type of a journal has no registered framing; the text is ``unrecognized content-type (<type>)``."""

    content_type = text_value("The content type.")


class FramingError(GazetteError):
    """A frame could not be encoded or decoded."""


class DesyncDetectedError(FramingError):
    """Bytes between frames are not a frame; the text is ``detected de-synchronization``.

    Attributes:
        content: The skipped bytes. Those of consecutive errors are consecutive, so nothing is lost.
    """

    content: bytes = b""


class UnexpectedEOFError(FramingError):
    """The data ends within a frame; the text ends with ``unexpected EOF``."""


class FrameTooLargeError(FramingError):
    """A frame exceeds the limit. The bytes examined are consumed; those after them are read as de-synchronized."""

    size_bytes = number_value("Size of the frame, or the bytes of it that were read.")
    max_bytes = number_value("Maximum size of a frame.")


class MalformedFrameError(FramingError):
    """A frame has the expected boundaries and invalid content. It is consumed."""


class FieldCountError(MalformedFrameError):
    """A CSV record has another number of fields; the text is ``record on line <n>: wrong number of fields``."""

    line = number_value("The record's line, from 1.")
    fields = number_value("Fields of the record.")
    expected_fields = number_value("Fields of the first record.")


class InvalidUUIDError(MalformedFrameError):
    """A text is not a UUID; the text for a wrong length is ``invalid UUID length: <n>``."""


class NotFrameableError(FramingError):
    """A message does not implement what a framing requires."""


class UnmarshalError(FramingError):
    """A frame that was read could not be decoded; the text is ``framing.Unmarshal(offset <n>): <cause>``."""

    offset = number_value("Position of the frame.")


class MissingJournalError(GazetteError):
    """A journal does not exist; the text is ``named journal does not exist (<journal>)``."""

    journal = text_value("Name of the journal.")


class EmptyListResponseError(GazetteError):
    """No journal matches the selector of a mapping; the text is ``empty ListResponse``."""

    def __init__(self, message: str = "empty ListResponse", **details: object) -> None:
        super().__init__(message, **details)  # type: ignore[arg-type]  # TidelogError declares them


class MustStartReplayError(GazetteError):
    """Committed messages are no longer in the ring; the text is ``must start reader``."""

    def __init__(self, message: str = "must start reader", **details: object) -> None:
        super().__init__(message, **details)  # type: ignore[arg-type]  # TidelogError declares them


class ReplayError(GazetteError):
    """A replay failed, or read outside of the requested range. Delivered messages are not affected."""


class ReplayReaderError(ReplayError):
    """The iterator of a replay failed; the text is ``replay reader: <cause>``.

    If frames of the range were trimmed, the attributes are set; otherwise they are empty and 0.
    """

    journal = text_value("Journal of the range.")
    begin = number_value("Begin of the range.")
    end = number_value("End of the range, exclusive.")
    first_available = number_value("Position after the last trimmed frame.")


class ReplayJournalError(ReplayError):
    """The text is ``replay of wrong journal (<journal>; expected <journal>)``."""

    journal = text_value("Journal that was replayed.")
    expected_journal = text_value("Journal of the range.")


class ReplayBeginError(ReplayError):
    """The text is ``replay has wrong Begin (<position>; expected >= <position>)``."""

    begin = number_value("Position of the replayed message.")
    min_begin = number_value("Position of the first message that is expected.")


class ReplayEndError(ReplayError):
    """The text is ``replay has wrong End (<position>; expected <= <position>)``."""

    end = number_value("Position after the replayed message.")
    max_end = number_value("Position after the range.")


def desync_detected(content: bytes) -> DesyncDetectedError:
    """Return the error for skipped bytes."""
    error = DesyncDetectedError("detected de-synchronization", values={"skipped_bytes": str(len(content))})
    error.content = content
    return error


def unknown_content_type(content_type: str) -> UnknownContentTypeError:
    """Return the error for a content type without a framing."""
    text = f"unrecognized content-type ({content_type})"
    return UnknownContentTypeError(text, values={"content_type": content_type})


def frame_too_large(size_bytes: int, max_bytes: int) -> FrameTooLargeError:
    """Return the error for a frame over the limit."""
    text = f"the frame has {size_bytes} bytes, expected at most {max_bytes}: split the message, or raise the limit"
    return FrameTooLargeError(text, values={"size_bytes": str(size_bytes), "max_bytes": str(max_bytes)})
