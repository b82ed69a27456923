"""Lines: the frames of ``application/x-ndjson``, and the parts of CSV records."""

from tidelog.gazette.errors import UnexpectedEOFError, frame_too_large
from tidelog.gazette.framings.byte_reader import ByteReader
from tidelog.gazette.framings.framing import MAX_FRAME_BYTES


def unpack_line(reader: ByteReader, max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    r"""Return the bytes through the next ``\n``.

    Raises:
        EOFError: The data is at its end.
        UnexpectedEOFError: The last line has no newline. It is consumed.
        FrameTooLargeError: The line has more than ``max_bytes`` bytes. What was read of it is consumed.
    """
    line = reader.read_through(b"\n", max_bytes + 1)
    if not line:
        raise EOFError("no line follows")
    if len(line) > max_bytes:
        raise frame_too_large(len(line), max_bytes)
    if not line.endswith(b"\n"):
        raise UnexpectedEOFError("unexpected EOF")
    return line
