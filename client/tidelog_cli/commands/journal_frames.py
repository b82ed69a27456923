"""Divides a byte stream into the frames of a journal."""

import os
from collections.abc import AsyncIterator, Callable
from typing import Final

from tidelog.gazette import (
    ByteReader,
    FrameFraming,
    FramingError,
    UnknownContentTypeError,
    framing_by_content_type,
)
from tidelog_cli.commands.input_chunks import read_chunks, read_items
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.output.framing import Framing, decoder_of

_SHORT_NAMES: Final = {"ndjson": "application/x-ndjson", "csv": "text/csv", "fixed": "application/x-protobuf-fixed"}
_MAX_FRAMES: Final = 1_000


class _Descriptor:
    """A file descriptor as a source of bytes.

    Why not FileIO: it refuses a folder before the first read, and returns None where ``os.read`` raises.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, size: int, /) -> bytes:
        return os.read(self._descriptor, size)


async def frames_of(descriptor: int, content_type: str) -> AsyncIterator[list[bytes]]:
    """Yield the frames of a file descriptor as they become complete, in non-empty lists.

    Args:
        descriptor: The input.
        content_type: Content type of the frames, or its short name, or ``none`` to take the whole input as one frame.

    Raises:
        CommandError: The content type is unknown, or the input does not consist of such frames.
    """
    if content_type == "none":
        whole = decoder_of(Framing.NONE)
        async for chunk in read_chunks(descriptor):
            whole.feed(chunk)
        yield [message.payload for message in whole.finish()]
        return
    count = 0
    try:
        async for frames in read_items(_next_frames(descriptor, content_type)):
            count += len(frames)
            yield frames
    except FramingError as error:
        raise CommandError(
            f"the input is not a stream of frames of {content_type} after frame {count} ({error}): {count} frames "
            "were sent; correct the input, or choose another --framing",
            ExitCode.USAGE,
        ) from error


def _next_frames(descriptor: int, content_type: str) -> Callable[[], list[bytes]]:
    """Return a function that returns the next frames; none at the end of the input.

    It waits for one frame, and takes with it those that are already in memory.
    """
    try:
        framing = framing_by_content_type(_SHORT_NAMES.get(content_type, content_type))
    except UnknownContentTypeError as error:
        raise CommandError(f"{error}: pass --framing ndjson, csv, fixed or none", ExitCode.USAGE) from error
    if not isinstance(framing, FrameFraming):
        raise CommandError(f"the framing {content_type} cannot divide a stream into frames", ExitCode.USAGE)
    reader = ByteReader(_Descriptor(descriptor))
    failure: FramingError | None = None

    def next_frames() -> list[bytes]:
        nonlocal failure
        if failure is not None:
            raise failure
        frames: list[bytes] = []
        try:
            while not frames or (reader.buffered and len(frames) < _MAX_FRAMES):
                frames.append(framing.unpack(reader))
        except EOFError:
            pass
        except FramingError as error:
            failure = error
        if failure is not None and not frames:
            raise failure
        return frames

    return next_frames
