"""What a framing is, and the registry of framings by content type."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from io import BytesIO
from typing import Final, Protocol, TypeAlias, runtime_checkable

from tidelog.gazette.errors import MalformedFrameError, UnexpectedEOFError, unknown_content_type
from tidelog.gazette.framings.byte_reader import ByteReader
from tidelog.gazette.messages import Frameable

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""Default limit of a frame: a corrupt length would otherwise reserve up to 4 GiB."""

UnmarshalFunc: TypeAlias = Callable[[Frameable], None]
"""Reads the next frame into a message, and never beyond its end.

It raises ``EOFError`` at a clean end of the data, and a ``FramingError`` for a frame that it cannot decode.
"""

FrameEncoder: TypeAlias = Callable[[Frameable], bytes]
FrameDecoder: TypeAlias = Callable[[bytes, Frameable], None]


class Writer(Protocol):
    """Where a frame is written, such as a ``BytesIO``."""

    def write(self, data: bytes | bytearray | memoryview, /) -> object:
        """Append ``data``."""
        ...


@runtime_checkable
class Framing(Protocol):
    """How messages become bytes of a journal."""

    @property
    def content_type(self) -> str:
        """The content type of journals with this framing."""
        ...

    def marshal(self, message: Frameable, writer: Writer) -> None:
        """Write the frame of a message that passed its validation.

        Raises:
            FramingError: The message cannot be encoded.
        """
        ...

    def new_unmarshal_func(self, reader: ByteReader) -> UnmarshalFunc:
        """Return a function that reads the frames of ``reader``, one a call."""
        ...


@runtime_checkable
class FrameFraming(Framing, Protocol):
    """A framing with a fast path for whole frames; those of this package have one."""

    def encode_frame(self, message: Frameable) -> bytes:
        """Return the frame of a message."""
        ...

    def new_frame_decoder(self) -> FrameDecoder:
        """Return a function that decodes one whole frame into a message, for the frames of one journal."""
        ...

    def unpack(self, reader: ByteReader) -> bytes:
        """Return the next frame without decoding it; raise as an ``UnmarshalFunc`` does."""
        ...


class WholeFrames(ABC):
    """Base of the framings of this package, which encode and decode whole frames.

    Args:
        max_bytes: Limit of a frame; of a fixed frame, that of its payload.
    """

    def __init__(self, *, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes

    def marshal(self, message: Frameable, writer: Writer) -> None:
        """Write the frame of a message. Raises as ``encode_frame``."""
        writer.write(self.encode_frame(message))

    def new_unmarshal_func(self, reader: ByteReader) -> UnmarshalFunc:
        """Return a function that reads the frames of ``reader``; see ``unpack``. An invalid one is consumed."""
        decode = self.new_frame_decoder()
        return lambda message: decode(self.unpack(reader), message)

    @abstractmethod
    def encode_frame(self, message: Frameable) -> bytes:
        """See ``FrameFraming``."""

    @abstractmethod
    def new_frame_decoder(self) -> FrameDecoder:
        """See ``FrameFraming``."""

    @abstractmethod
    def unpack(self, reader: ByteReader) -> bytes:
        """See ``FrameFraming``."""


_FRAMINGS: Final[dict[str, Framing]] = {}


def register_framing(framing: Framing) -> None:
    """Register ``framing`` by its content type, instead of an earlier one.

    Not safe for concurrent use, also of ``framing_by_content_type``: register framings at import.
    """
    _FRAMINGS[framing.content_type] = framing


def register_alias(content_type: str, framing: Framing) -> None:
    """Register ``framing`` under another content type."""
    _FRAMINGS[content_type] = framing


def framing_by_content_type(content_type: str) -> Framing:
    """Return the framing of a content type.

    Raises:
        UnknownContentTypeError: The content type has no framing.
    """
    framing = _FRAMINGS.get(content_type)
    if framing is None:
        raise unknown_content_type(content_type)
    return framing


def frame_encoder(framing: Framing) -> FrameEncoder:
    """Return the function that encodes a message as one frame; the fast path if the framing has one."""
    if isinstance(framing, FrameFraming):
        return framing.encode_frame

    return lambda message: written_by(lambda writer: framing.marshal(message, writer))


def frame_decoder(framing: Framing) -> FrameDecoder:
    """Return a function that decodes whole frames of one journal; the fast path if the framing has one."""
    if isinstance(framing, FrameFraming):
        return framing.new_frame_decoder()

    source = _Frames()
    reader = ByteReader(source)
    unmarshal = framing.new_unmarshal_func(reader)

    def decode(frame: bytes, message: Frameable) -> None:
        source.frame = frame
        try:
            unmarshal(message)
        except EOFError as error:
            raise UnexpectedEOFError("unexpected EOF") from error
        finally:
            rest = reader.read(len(frame))
        if rest:
            raise MalformedFrameError(f"{len(rest)} bytes follow the frame, expected one whole frame")

    return decode


def written_by(write: Callable[[Writer], None]) -> bytes:
    """Return what a function writes."""
    writer = BytesIO()
    write(writer)
    return writer.getvalue()


class _Frames:
    """A source of one frame at a time."""

    def __init__(self) -> None:
        self.frame = b""

    def read(self, size: int, /) -> bytes:
        taken, self.frame = self.frame[:size], self.frame[size:]
        return taken
