"""Framings are registered by content type, and a framing without a fast path has one made for it.

Method: the registry, and a framing with the three required methods only.
"""

import pytest

from tidelog.gazette import (
    ByteReader,
    CSVFraming,
    FixedFraming,
    Frameable,
    Framing,
    JSONFraming,
    MalformedFrameError,
    UnexpectedEOFError,
    UnknownContentTypeError,
    UnmarshalFunc,
    frame_decoder,
    frame_encoder,
    framing_by_content_type,
    register_framing,
)
from tidelog.gazette.framings import framing as registry
from tidelog.gazette.framings.framing import Writer


class Pairs:
    """A framing of two bytes."""

    content_type = "application/x-pairs"

    def marshal(self, message: Frameable, writer: Writer) -> None:
        assert isinstance(message, bytearray)
        writer.write(message[:1])
        writer.write(message[1:])

    def new_unmarshal_func(self, reader: ByteReader) -> UnmarshalFunc:
        def unmarshal(message: Frameable) -> None:
            assert isinstance(message, bytearray)
            pair = reader.read(2)
            if not pair:
                raise EOFError
            if pair == b"!!":
                raise MalformedFrameError("two exclamation marks")
            message[:] = pair

        return unmarshal


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("application/x-ndjson", JSONFraming),
        ("text/csv", CSVFraming),
        ("test/csv", CSVFraming),
        ("application/x-protobuf-fixed", FixedFraming),
    ],
)
def test_the_framings_of_the_package_are_registered(content_type: str, kind: type) -> None:
    framing = framing_by_content_type(content_type)
    assert isinstance(framing, kind)
    assert isinstance(framing, Framing)
    assert framing.content_type == content_type.replace("test", "text")


@pytest.mark.parametrize("content_type", ["", "application/x-gazette-recoverylog", "text/html"])
def test_an_unknown_content_type_is_an_error_with_the_documented_text(content_type: str) -> None:
    with pytest.raises(UnknownContentTypeError) as caught:
        framing_by_content_type(content_type)
    assert str(caught.value) == f"unrecognized content-type ({content_type})"
    assert caught.value.content_type == content_type


def test_a_later_registration_replaces_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FRAMINGS", dict(registry._FRAMINGS))
    first, second = Pairs(), Pairs()
    register_framing(first)
    register_framing(second)
    assert framing_by_content_type("application/x-pairs") is second


def test_a_framing_without_a_fast_path_encodes_and_decodes_whole_frames() -> None:
    encode, decode = frame_encoder(Pairs()), frame_decoder(Pairs())
    assert encode(bytearray(b"ab")) == b"ab"
    message = bytearray()
    decode(b"cd", message)
    assert message == b"cd"
    for frame, error in ((b"", UnexpectedEOFError), (b"efg", MalformedFrameError), (b"!!", MalformedFrameError)):
        with pytest.raises(error):
            decode(frame, message)
    decode(b"hi", message)
    assert message == b"hi"


def test_a_reader_looks_ahead_and_reads_across_its_buffer() -> None:
    class Chunks:
        chunks: tuple[bytes, ...] = (b"abc", b"de", b"f", b"")

        def read(self, size: int, /) -> bytes:
            first, *rest = self.chunks
            self.chunks = (*rest, b"")
            return first

    reader = ByteReader(Chunks())
    assert reader.peek(2) == b"ab"
    assert reader.buffered == b"abc"
    assert reader.peek(4) == b"abcd"
    assert reader.read(1) == b"a"
    assert reader.read(5) == b"bcdef"
    assert (reader.read(1), reader.peek(1), reader.buffered) == (b"", b"", b"")
    with pytest.raises(ValueError, match="buffer_bytes is 0, expected 1 or more"):
        ByteReader(b"", buffer_bytes=0)
