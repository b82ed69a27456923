"""Lines of JSON are the same with each encoder, and bad lines are consumed. Method: literal lines."""

from io import BytesIO
from typing import Any
from uuid import UUID

import pytest

from tidelog.gazette import (
    ByteReader,
    FrameTooLargeError,
    FramingError,
    JSONFraming,
    JSONMarshalerTo,
    MalformedFrameError,
    NotFrameableError,
    UnexpectedEOFError,
    frame_decoder,
    frame_encoder,
    unpack_line,
)
from tidelog.gazette.framings.framing import Writer
from tidelog.gazette.framings.json_codecs import JSONCodecName, json_codec

CODECS: list[JSONCodecName] = ["json", "msgspec", "orjson"]


@pytest.fixture(params=CODECS)
def framing(request: pytest.FixtureRequest) -> JSONFraming:
    return JSONFraming(codec=request.param)


class Own:
    """A message that converts itself."""

    def __init__(self, value: object = None) -> None:
        self.value = value

    def to_json(self) -> object:
        return [self.value]

    def from_json(self, value: Any) -> None:
        (self.value,) = value


class Hooked:
    """A message that writes and reads its own JSON."""

    line = b'"hooked"\n'

    def marshal_json_to(self, writer: Writer) -> None:
        writer.write(self.line[:3])
        writer.write(self.line[3:])

    def unmarshal_json(self, line: bytes) -> None:
        self.line = line


def test_a_frame_is_compact_json_in_utf8_and_a_newline(framing: JSONFraming) -> None:
    message = {"a": 1, "b": [True, None, "ö<&>\u2028"], "c": {"d": 1.5}}
    line = '{"a":1,"b":[true,null,"ö<&>\u2028"],"c":{"d":1.5}}\n'.encode()
    assert framing.encode_frame(message) == line
    read: dict[str, Any] = {}
    frame_decoder(framing)(line, read)
    assert read == message
    written = BytesIO()
    framing.marshal(message, written)
    assert written.getvalue() == line


@pytest.mark.parametrize("codec", CODECS)
def test_the_escapes_of_go_are_a_switch(codec: JSONCodecName) -> None:
    line = JSONFraming(codec=codec, go_escapes=True).encode_frame({"<a>": "x&y\u2028\u2029"})
    assert line == rb'{"\u003ca\u003e":"x\u0026y\u2028\u2029"}' + b"\n"
    read: dict[str, Any] = {}
    JSONFraming(codec=codec).decode_frame(line, read)
    assert read == {"<a>": "x&y\u2028\u2029"}


def test_lines_are_read_one_by_one_and_invalid_ones_are_consumed(framing: JSONFraming) -> None:
    unmarshal = framing.new_unmarshal_func(ByteReader(b'{"a":1}\n{"a":\n [1]\n {"b": 2} \r\n{"c":'))
    read: dict[str, Any] = {}
    unmarshal(read)
    for text in ("is invalid", "the line has a list, expected an object"):
        with pytest.raises(MalformedFrameError, match=text):
            unmarshal(read)
    unmarshal(read)
    assert read == {"a": 1, "b": 2}
    with pytest.raises(UnexpectedEOFError, match=r"^unexpected EOF$"):
        unmarshal(read)
    with pytest.raises(EOFError):
        unmarshal(read)


@pytest.mark.parametrize("line", [b"\n", b"{}{}\n", b"{} x\n", b"{\n", b"NaN\n", b'{"a":NaN}\n', b'{"a":"\xff"}\n'])
def test_a_line_that_is_not_one_json_object_is_malformed(framing: JSONFraming, line: bytes) -> None:
    with pytest.raises(MalformedFrameError, match=f"a line of {len(line)} bytes is invalid"):
        framing.decode_frame(line, {})


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"x": (1, float("-inf"))}, object(), "\ud800"])
def test_values_without_json_are_refused(framing: JSONFraming, value: object) -> None:
    with pytest.raises(FramingError, match="dict has no JSON"):
        framing.encode_frame({"a": None, "b": value})


def test_a_circle_is_refused_by_the_standard_encoder() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    with pytest.raises(FramingError, match="has no JSON"):
        JSONFraming(codec="json").encode_frame(circle)


def test_a_message_may_convert_itself(framing: JSONFraming) -> None:
    assert framing.encode_frame(Own("x")) == b'["x"]\n'
    read = Own()
    framing.decode_frame(b"[7]\n", read)
    assert read.value == 7
    with pytest.raises(MalformedFrameError):
        framing.decode_frame(b"[7,8]\n", read)


def test_a_message_may_write_and_read_its_own_json(framing: JSONFraming) -> None:
    message = Hooked()
    assert isinstance(message, JSONMarshalerTo)
    assert frame_encoder(framing)(message) == b'"hooked"\n'
    framing.decode_frame(b"anything\n", message)
    assert message.line == b"anything\n"


def test_other_types_are_refused(framing: JSONFraming) -> None:
    with pytest.raises(NotFrameableError, match="UUID is not frameable as application/x-ndjson: it must be a dict"):
        framing.encode_frame(UUID(int=0))
    with pytest.raises(NotFrameableError, match="must be a dict, or have to_json and from_json"):
        framing.decode_frame(b"{}\n", object())


def test_lines_have_a_limit() -> None:
    framing = JSONFraming(max_bytes=10)
    with pytest.raises(FrameTooLargeError, match="the frame has 14 bytes, expected at most 10"):
        framing.encode_frame({"abc": 12345})
    reader = ByteReader(BytesIO(b"x" * 30 + b"\n"), buffer_bytes=4)
    with pytest.raises(FrameTooLargeError, match="expected at most 10"):
        framing.unpack(reader)
    assert reader.read(100) == b"x" * 18 + b"\n"


def test_unpack_line_ends_after_the_newline() -> None:
    reader = ByteReader(BytesIO(b"one\ntwo\nthr"), buffer_bytes=2)
    assert [unpack_line(reader), unpack_line(reader)] == [b"one\n", b"two\n"]
    with pytest.raises(UnexpectedEOFError, match=r"^unexpected EOF$"):
        unpack_line(reader)
    with pytest.raises(EOFError):
        unpack_line(reader)


def test_the_default_is_the_fastest_codec_that_is_installed() -> None:
    assert json_codec().name == "msgspec"
    assert JSONFraming().codec_name == "msgspec"


def test_a_frame_without_its_newline_is_incomplete(framing: JSONFraming) -> None:
    with pytest.raises(UnexpectedEOFError):
        framing.decode_frame(b"{}", {})
