"""Fixed frames are those of Gazette, and a reader recovers after bytes that are no frame. Method: literal bytes."""

from io import BytesIO

import pytest
from google.protobuf.wrappers_pb2 import BytesValue

from tidelog.gazette import (
    FIXED_FRAME_HEADER_LENGTH,
    FIXED_FRAME_WORD,
    ByteReader,
    DesyncDetectedError,
    FixedFraming,
    FrameTooLargeError,
    MalformedFrameError,
    NotFrameableError,
    UnexpectedEOFError,
    encode_fixed_proto_frame,
    frame_decoder,
    frame_encoder,
    unpack_fixed_frame,
)

HELLO = b"\x66\x33\x93\x36\x07\x00\x00\x00\x0a\x05hello"


class OneByteSource:
    """A source that returns one byte a read, as a slow connection does."""

    def __init__(self, data: bytes) -> None:
        self._file = BytesIO(data)

    def read(self, size: int, /) -> bytes:
        return self._file.read(min(size, 1))


def test_a_frame_is_a_word_a_length_and_the_message() -> None:
    assert FIXED_FRAME_WORD == bytes([0x66, 0x33, 0x93, 0x36])
    assert FIXED_FRAME_HEADER_LENGTH == 8
    buffer = bytearray(b"before")
    assert encode_fixed_proto_frame(BytesValue(value=b"hello"), buffer) == HELLO
    assert buffer == b"before" + HELLO
    written = BytesIO()
    FixedFraming().marshal(BytesValue(value=b"hello"), written)
    frame = encode_fixed_proto_frame(BytesValue(value=b"hello"))
    assert written.getvalue() == HELLO == frame
    # A journal accepts nothing but bytes.
    assert type(frame) is bytes


@pytest.mark.parametrize("source", [BytesIO, OneByteSource])
def test_frames_are_read_one_by_one_until_the_end(source: type) -> None:
    reader = ByteReader(source(HELLO + HELLO + b"\n"))
    unmarshal = FixedFraming().new_unmarshal_func(reader)
    for _ in range(2):
        message = BytesValue()
        unmarshal(message)
        assert message.value == b"hello"
    for _ in range(2):
        with pytest.raises(EOFError):
            unmarshal(BytesValue())
    assert reader.read(10) == b"\n"


def test_a_partial_header_and_a_partial_payload_are_unexpected_ends() -> None:
    with pytest.raises(UnexpectedEOFError, match=r"^Peek\(FixedFrameHeaderLength\): unexpected EOF$"):
        unpack_fixed_frame(ByteReader(HELLO[:7]))
    with pytest.raises(UnexpectedEOFError, match=r"^reading frame \(size 15\): unexpected EOF$"):
        unpack_fixed_frame(ByteReader(HELLO[:-1]))
    assert not issubclass(UnexpectedEOFError, EOFError)


def test_bytes_between_frames_are_reported_and_the_next_frame_is_read() -> None:
    reader = ByteReader(HELLO + b"\x00\x66garbage\x66\x33" + HELLO)
    assert unpack_fixed_frame(reader) == HELLO
    with pytest.raises(DesyncDetectedError, match=r"^detected de-synchronization$") as caught:
        unpack_fixed_frame(reader)
    assert caught.value.content == b"\x00\x66garbage\x66\x33"
    assert unpack_fixed_frame(reader) == HELLO


def test_only_buffered_bytes_are_scanned_and_three_are_kept() -> None:
    reader = ByteReader(BytesIO(b"0123456789" + HELLO), buffer_bytes=12)
    skipped = []
    for _ in range(2):
        with pytest.raises(DesyncDetectedError) as caught:
            unpack_fixed_frame(reader)
        skipped.append(caught.value.content)
    assert skipped == [b"012345678", b"9"]
    assert unpack_fixed_frame(reader) == HELLO


def test_a_declared_length_over_the_limit_is_an_error_of_its_own() -> None:
    corrupt = FIXED_FRAME_WORD + (0xFFFF_FFFF).to_bytes(4, "little")
    reader = ByteReader(corrupt + b"rest of it" + HELLO)
    with pytest.raises(FrameTooLargeError, match="the frame has 4294967303 bytes, expected at most 67108872") as caught:
        unpack_fixed_frame(reader)
    assert caught.value.size_bytes == 4_294_967_303
    with pytest.raises(DesyncDetectedError) as skipped:
        unpack_fixed_frame(reader)
    assert skipped.value.content == b"rest of it"
    assert unpack_fixed_frame(reader) == HELLO
    with pytest.raises(FrameTooLargeError, match="expected at most 14"):
        FixedFraming(max_bytes=6).encode_frame(BytesValue(value=b"hello"))


def test_a_whole_frame_is_decoded_without_a_reader() -> None:
    framing = FixedFraming()
    message = BytesValue()
    frame_decoder(framing)(HELLO, message)
    assert message.value == b"hello"
    assert frame_encoder(framing)(message) == HELLO
    assert framing.unpack(ByteReader(HELLO + b"x")) == HELLO


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b"", DesyncDetectedError),
        (b"x" + HELLO, DesyncDetectedError),
        (HELLO[:-1], UnexpectedEOFError),
        (HELLO + b"x", MalformedFrameError),
        (FIXED_FRAME_WORD + b"\x01\0\0\0\x0a", MalformedFrameError),
    ],
)
def test_bytes_that_are_not_one_frame_are_refused(frame: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        frame_decoder(FixedFraming())(frame, BytesValue())


def test_a_message_without_the_methods_of_protobuf_is_refused() -> None:
    with pytest.raises(NotFrameableError, match="dict is not ProtoFrameable"):
        FixedFraming().encode_frame({})
    with pytest.raises(NotFrameableError, match="SerializeToString and ParseFromString"):
        frame_decoder(FixedFraming())(HELLO, object())
