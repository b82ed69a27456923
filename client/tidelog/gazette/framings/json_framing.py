r"""``application/x-ndjson``: one JSON value and ``\n``."""

from dataclasses import is_dataclass
from typing import Any, Final, Protocol, runtime_checkable

from tidelog.gazette.errors import (
    FramingError,
    MalformedFrameError,
    NotFrameableError,
    UnexpectedEOFError,
    frame_too_large,
)
from tidelog.gazette.framings.byte_reader import ByteReader
from tidelog.gazette.framings.framing import (
    MAX_FRAME_BYTES,
    FrameDecoder,
    FrameEncoder,
    WholeFrames,
    Writer,
    written_by,
)
from tidelog.gazette.framings.json_codecs import JSONCodec, JSONCodecName, json_codec
from tidelog.gazette.framings.lines import unpack_line
from tidelog.gazette.messages import Frameable

JSON_CONTENT_TYPE: Final = "application/x-ndjson"

# These characters occur only within strings of a JSON text, so they can be replaced in the whole of it.
_ESCAPES_OF_GO: Final = [
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
]


@runtime_checkable
class JSONMarshalerTo(Protocol):
    """A message that writes its own JSON; it must write the newline too."""

    def marshal_json_to(self, writer: Writer) -> None:
        """Write one line."""
        ...


@runtime_checkable
class JSONUnmarshaler(Protocol):
    """A message that decodes its own JSON."""

    def unmarshal_json(self, line: bytes) -> None:
        """Replace the content by that of one line, with its newline; raise if it is invalid."""
        ...


@runtime_checkable
class JSONFrameable(Protocol):
    """A message that converts itself to a value of JSON and back."""

    def to_json(self) -> object:
        """Return the value."""
        ...

    def from_json(self, value: Any) -> None:
        """Replace the content by ``value``, without unknown fields; raise if it is invalid."""
        ...


class JSONFraming(WholeFrames):
    r"""The framing ``application/x-ndjson`` of dictionaries and of the three protocols of this module.

    Args:
        go_escapes: Whether to write ``<``, ``>``, ``&``, U+2028 and U+2029 as Go does, as ``\u003c`` and so on.
        codec: The package that encodes and decodes; msgspec or orjson if one is installed, ``json`` otherwise.
        max_bytes: Limit of a line.
    """

    content_type: Final = JSON_CONTENT_TYPE

    def __init__(
        self, *, go_escapes: bool = False, codec: JSONCodecName | None = None, max_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        self._codec: JSONCodec = json_codec(codec)
        self._go_escapes = go_escapes
        super().__init__(max_bytes=max_bytes)
        # How to handle each type of message; a program has few.
        self._encoders: dict[type, FrameEncoder] = {}
        self._decoders: dict[type, FrameDecoder] = {}

    @property
    def codec_name(self) -> JSONCodecName:
        """The package that encodes and decodes."""
        return self._codec.name

    def encode_frame(self, message: Frameable) -> bytes:
        """Return the line of a message.

        Raises:
            NotFrameableError: The message has a type that the framing cannot encode.
            FramingError: Its content is not a value of JSON, such as NaN.
            FrameTooLargeError: The line exceeds the limit.
        """
        encode = self._encoders.get(type(message)) or self._learn_encoder(type(message))
        try:
            line = encode(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise FramingError(f"{type(message).__name__} has no JSON: {error}") from error
        if len(line) > self._max_bytes:
            raise frame_too_large(len(line), self._max_bytes)
        return line

    def unpack(self, reader: ByteReader) -> bytes:
        """Return the next line; see ``unpack_line``."""
        return unpack_line(reader, self._max_bytes)

    def new_frame_decoder(self) -> FrameDecoder:
        """Return the function that decodes one whole line."""
        return self.decode_frame

    def decode_frame(self, line: bytes, message: Frameable) -> None:
        """Decode one whole line into a message.

        Raises:
            UnexpectedEOFError: The line has no newline.
            MalformedFrameError: The line is not the JSON of such a message.
            NotFrameableError: The message has a type that the framing cannot decode.
        """
        if line[-1:] != b"\n":
            raise UnexpectedEOFError("unexpected EOF")
        decode = self._decoders.get(type(message)) or self._learn_decoder(type(message))
        try:
            decode(line, message)
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            raise MalformedFrameError(f"a line of {len(line)} bytes is invalid: {error}") from error

    def _learn_encoder(self, kind: type) -> FrameEncoder:
        self._encoders[kind] = encoder = self._encoder_of(kind)
        return encoder

    def _encoder_of(self, kind: type) -> FrameEncoder:
        if issubclass(kind, JSONMarshalerTo):
            return lambda message: written_by(message.marshal_json_to)  # type: ignore[attr-defined]  # its class has it
        text_of = self._escaped_text if self._go_escapes else self._codec.encode
        if hasattr(kind, "to_json"):
            return lambda message: text_of(message.to_json()) + b"\n"  # type: ignore[attr-defined]  # its class has it
        if issubclass(kind, dict):
            return lambda message: text_of(message) + b"\n"
        raise _not_frameable(kind)

    def _escaped_text(self, value: object) -> bytes:
        text = self._codec.encode(value)
        for character, escape in _ESCAPES_OF_GO:
            text = text.replace(character, escape)
        return text

    def _learn_decoder(self, kind: type) -> FrameDecoder:
        self._decoders[kind] = decoder = self._decoder_of(kind)
        return decoder

    def _decoder_of(self, kind: type) -> FrameDecoder:
        decode = self._codec.decode
        if issubclass(kind, JSONUnmarshaler):
            return lambda line, message: message.unmarshal_json(line)  # type: ignore[attr-defined]  # its class has it
        if hasattr(kind, "from_json"):
            return lambda line, message: message.from_json(decode(line))  # type: ignore[attr-defined]  # its class has it
        if issubclass(kind, dict):
            return lambda line, message: message.update(object_of(decode(line)))  # type: ignore[attr-defined]  # a dict has it
        raise _not_frameable(kind)


def object_of(value: object) -> dict[str, Any]:
    """Return the value of a line, if it is an object of JSON. Raises ValueError."""
    if type(value) is not dict:
        raise ValueError(f"the line has a {type(value).__name__}, expected an object")
    return value


def _not_frameable(kind: type) -> NotFrameableError:
    hint = "; derive it from JSONMessage" if is_dataclass(kind) else ""
    return NotFrameableError(
        f"{kind.__name__} is not frameable as {JSON_CONTENT_TYPE}: it must be a dict, or have to_json and "
        f"from_json{hint}"
    )
