"""``application/x-protobuf-fixed``: a word, a length, and a protobuf message.

The format has no checksum and no escapes, so payload bytes equal to the word can be taken for a frame after an error.
Source: Gazette's message package, file fixed_framing.go.
"""

from struct import Struct
from typing import Final, Protocol, runtime_checkable

from tidelog.gazette.errors import (
    MalformedFrameError,
    NotFrameableError,
    UnexpectedEOFError,
    desync_detected,
    frame_too_large,
)
from tidelog.gazette.framings.byte_reader import ByteReader
from tidelog.gazette.framings.framing import MAX_FRAME_BYTES, FrameDecoder, WholeFrames
from tidelog.gazette.messages import Frameable

FIXED_CONTENT_TYPE: Final = "application/x-protobuf-fixed"
FIXED_FRAME_WORD: Final = b"\x66\x33\x93\x36"
"""Precedes every fixed frame."""
FIXED_FRAME_HEADER_LENGTH: Final = 8
"""Bytes of the header: the word and the length of the payload, 4 bytes, little-endian."""

_HEADER: Final = Struct("<4sI")


@runtime_checkable
class ProtoFrameable(Protocol):
    """What the framing requires of a message; every protobuf message has these methods."""

    def SerializeToString(self) -> bytes:
        """Return the message in protobuf's binary form."""
        ...

    def ParseFromString(self, serialized: bytes, /) -> int:
        """Replace the content by that of the binary form; raise if it is invalid."""
        ...


def encode_fixed_proto_frame(message: ProtoFrameable, buffer: bytearray | None = None) -> bytes:
    """Return the fixed frame of ``message``, and append it to ``buffer`` if there is one.

    Raises:
        FrameTooLargeError: The payload has more than 64 MiB.
    """
    frame = _frame_of(message.SerializeToString(), MAX_FRAME_BYTES)
    if buffer is not None:
        buffer += frame
    return frame


def unpack_fixed_frame(reader: ByteReader, max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    r"""Return the next fixed frame, with its header.

    Raises:
        EOFError: The data is at its end, or its last byte is a newline, which is left unread.
        UnexpectedEOFError: The last frame is incomplete. A partial header is left unread.
        DesyncDetectedError: The next bytes are not a frame: ``content`` has those before the next word in the buffer.
            They are consumed, and the next call continues after them.
        FrameTooLargeError: The declared length exceeds ``max_bytes``. The header is consumed.
    """
    header = reader.peek(FIXED_FRAME_HEADER_LENGTH)
    if len(header) < FIXED_FRAME_HEADER_LENGTH:
        if header in {b"", b"\n"}:
            raise EOFError("no frame follows")
        raise UnexpectedEOFError("Peek(FixedFrameHeaderLength): unexpected EOF")
    word, length = _HEADER.unpack(header)
    if word != FIXED_FRAME_WORD:
        raise desync_detected(_skip(reader))
    size = FIXED_FRAME_HEADER_LENGTH + length
    if length > max_bytes:
        reader.read(FIXED_FRAME_HEADER_LENGTH)
        raise frame_too_large(size, FIXED_FRAME_HEADER_LENGTH + max_bytes)
    frame = reader.read(size)
    if len(frame) < size:
        raise UnexpectedEOFError(f"reading frame (size {size}): unexpected EOF")
    return frame


def _skip(reader: ByteReader) -> bytes:
    """Read the bytes before the next word; without one, all buffered bytes but 3, with which a word may begin."""
    buffered = reader.buffered
    begin = buffered.find(FIXED_FRAME_WORD, 1)
    return reader.read(begin if begin >= 0 else len(buffered) - len(FIXED_FRAME_WORD) + 1)


def _frame_of(payload: bytes, max_bytes: int) -> bytes:
    if len(payload) > max_bytes:
        raise frame_too_large(FIXED_FRAME_HEADER_LENGTH + len(payload), FIXED_FRAME_HEADER_LENGTH + max_bytes)
    return _HEADER.pack(FIXED_FRAME_WORD, len(payload)) + payload


def _payload_of(frame: bytes) -> bytes:
    if len(frame) < FIXED_FRAME_HEADER_LENGTH or not frame.startswith(FIXED_FRAME_WORD):
        raise desync_detected(frame)
    length = len(frame) - FIXED_FRAME_HEADER_LENGTH
    declared = int.from_bytes(frame[4:FIXED_FRAME_HEADER_LENGTH], "little")
    if declared > length:
        raise UnexpectedEOFError(f"reading frame (size {FIXED_FRAME_HEADER_LENGTH + declared}): unexpected EOF")
    if declared < length:
        raise MalformedFrameError(f"{length - declared} bytes follow the frame, expected one whole frame")
    return frame[FIXED_FRAME_HEADER_LENGTH:]


class FixedFraming(WholeFrames):
    """The framing ``application/x-protobuf-fixed`` of ``ProtoFrameable`` messages."""

    content_type: Final = FIXED_CONTENT_TYPE

    def encode_frame(self, message: Frameable) -> bytes:
        """Return the frame of a message.

        Raises:
            NotFrameableError: The message is not ``ProtoFrameable``.
            FrameTooLargeError: The payload exceeds the limit.
        """
        return _frame_of(_frameable(message).SerializeToString(), self._max_bytes)

    def unpack(self, reader: ByteReader) -> bytes:
        """Return the next frame; see ``unpack_fixed_frame``."""
        return unpack_fixed_frame(reader, self._max_bytes)

    def new_frame_decoder(self) -> FrameDecoder:
        """Return the function that decodes one whole frame."""
        return lambda frame, message: _parse(_payload_of(frame), message)


def _parse(payload: bytes, message: Frameable) -> None:
    target = _frameable(message)
    try:
        target.ParseFromString(payload)
    except MalformedFrameError:
        raise
    except Exception as error:
        # The classes of protobuf's errors differ between its implementations, and a message may have its own.
        raise MalformedFrameError(f"a protobuf message of {len(payload)} bytes is invalid: {error}") from error


def _frameable(message: Frameable) -> ProtoFrameable:
    if not hasattr(message, "SerializeToString") or not hasattr(message, "ParseFromString"):
        raise NotFrameableError(
            f"{type(message).__name__} is not ProtoFrameable: the framing {FIXED_CONTENT_TYPE} requires "
            "SerializeToString and ParseFromString; see ProtoRecord"
        )
    # Both methods were looked up: `isinstance` of a protocol takes several times as long.
    return message
