"""A descriptor that cannot be read is refused before or between frames, as for other commands."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog_cli.commands.journal_frames import frames_of
from tidelog_cli.exit_codes import CommandError, ExitCode


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def empty_pipe() -> Iterator[int]:
    """Yield an end of a pipe with no bytes, that a read does not wait for."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("content_type", ["ndjson", "csv", "fixed", "none"])
@pytest.mark.parametrize(("source", "reason"), [("folder", "Is a directory"), ("empty_pipe", "temporarily")])
def test_an_input_that_cannot_be_read_is_refused(
    request: pytest.FixtureRequest, source: str, reason: str, content_type: str
) -> None:
    descriptor: int = request.getfixturevalue(source)

    async def first_frames() -> list[bytes]:
        return await anext(frames_of(descriptor, content_type))

    with pytest.raises(CommandError, match=f"^cannot read the input: .*{reason}") as caught:
        asyncio.run(first_frames())

    assert caught.value.code is ExitCode.USAGE
