"""``tidelog append``: messages from standard input or a file into a vchannel."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import typer

from tidelog import AsyncProducer, AsyncTicket, Message
from tidelog_server.cli.connection import DEFAULT_ENDPOINT, EndpointOption, TimeoutOption, connected, run
from tidelog_server.cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_server.cli.framing import Decoder, Framing, decoder_of
from tidelog_server.cli.input_chunks import read_chunks
from tidelog_server.cli.output import (
    NoProgressOption,
    OutputOption,
    QuietOption,
    Record,
    note,
    print_records,
    show_progress,
)
from tidelog_server.cli.progress import Progress
from tidelog_server.cli.vchannel_names import full_name


@dataclass(slots=True)
class _Appended:
    """What one run of the command appended so far.

    Attributes:
        messages, payload_bytes: What was handed to the producer.
        first, last: Tickets of the outermost messages.
        started_s: Monotonic.
    """

    messages: int = 0
    payload_bytes: int = 0
    first: AsyncTicket | None = None
    last: AsyncTicket | None = None
    started_s: float = field(default_factory=time.monotonic)

    async def record(self, vchannel: str) -> Record:
        """Return what the command prints; everything is acknowledged."""
        seconds = time.monotonic() - self.started_s
        return {
            "vchannel": full_name(vchannel),
            "messages": self.messages,
            "bytes": self.payload_bytes,
            "first_tick": int((await self.first).first_tick) if self.first else None,
            "last_tick": int((await self.last).last_tick) if self.last else None,
            "seconds": round(seconds, 3),
        }


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog=COMMON_CODES)(append)


def append(
    vchannel: Annotated[str, typer.Argument(help="CHANNEL/INDEX, or CHANNEL if it has one.", show_default=False)],
    *,
    input_path: Annotated[str, typer.Option("--input", "-i", help="A file; - for standard input.")] = "-",
    framing: Annotated[Framing, typer.Option(help="How messages lie in the input.")] = Framing.LINES,
    key_delim: Annotated[
        str | None, typer.Option(help="Divides key and payload of a line at its first place.", show_default=False)
    ] = None,
    fencing_token: Annotated[
        int | None,
        typer.Option(min=1, help="Append only while the vchannel has this token.", show_default=False),
    ] = None,
    txn: Annotated[
        bool, typer.Option("--txn", help="Append all of the input or nothing: as one transaction, of any size.")
    ] = False,
    endpoint: EndpointOption = DEFAULT_ENDPOINT,
    timeout: TimeoutOption = None,
    output: OutputOption = None,
    no_progress: NoProgressOption = False,
    quiet: QuietOption = False,
) -> None:
    """Append messages and say where they are once all of them are durable.

    jsonl takes objects with `payload` or `payload_base64`, and optionally `key` or `key_base64`, `type`, `properties`
    and `event_time_ms`; what `tidelog scan -o jsonl` prints can be appended as it is. length takes payloads behind
    4 bytes of length, big-endian. none takes the whole input as one message.
    """
    decoder = decoder_of(framing, key_delim)
    if txn:
        progress = Progress("staging", is_shown=show_progress(no_progress=no_progress, quiet=quiet))
        job = _Job(vchannel, input_path, decoder, fencing_token)
        print_records([run(_append_as_one(job, endpoint, progress), timeout)], output)
        return
    progress = Progress("appending", is_shown=show_progress(no_progress=no_progress, quiet=quiet))
    appended = _Appended()

    async def command() -> Record:
        try:
            async with (
                connected(endpoint) as client,
                client.vchannel(vchannel).producer(fencing_token=fencing_token) as producer,
            ):
                # Refuses a wrong name before anything is read: the input may be a person, or empty.
                await client.latest_mvcc_tick(vchannel)
                with _opened(input_path) as descriptor, progress:
                    await _append_all(producer, descriptor, decoder, appended, progress)
                return await appended.record(vchannel)
        except asyncio.CancelledError:
            note(f"interrupted: {appended.messages} messages were sent, the last ones may be missing", quiet=quiet)
            raise

    print_records([run(command(), timeout)], output)


@dataclass(frozen=True, slots=True)
class _Job:
    """What is to be appended, and where."""

    vchannel: str
    input_path: str
    decoder: Decoder
    fencing_token: int | None


async def _append_as_one(job: _Job, endpoint: str, progress: Progress) -> Record:
    """Append what the input holds in one transaction; interrupted, nothing of it."""
    started_s = time.monotonic()
    messages = payload_bytes = 0
    async with connected(endpoint) as client:
        # Refuses a wrong name before anything is read.
        await client.latest_mvcc_tick(job.vchannel)
        async with client.txn() as txn:
            with _opened(job.input_path) as descriptor, progress:
                async for several in _decoded(descriptor, job.decoder):
                    await txn.append(job.vchannel, several, fencing_token=job.fencing_token)
                    size_bytes = sum(len(message.payload) for message in several)
                    messages += len(several)
                    payload_bytes += size_bytes
                    progress.advance(len(several), size_bytes)
        result = txn.result if messages else None
    return {
        "vchannel": full_name(job.vchannel),
        "messages": messages,
        "bytes": payload_bytes,
        "txn_id": result.txn_id if result else None,
        "first_tick": int(result.first_tick) if result else None,
        "last_tick": int(result.last_tick) if result else None,
        "seconds": round(time.monotonic() - started_s, 3),
    }


async def _append_all(
    producer: AsyncProducer, descriptor: int, decoder: Decoder, appended: _Appended, progress: Progress
) -> None:
    """Send what the input holds, as it comes, and wait until it is durable."""
    async for messages in _decoded(descriptor, decoder):
        if appended.first is None:
            appended.first = appended.last = await producer.send(messages[0])
            await producer.send_many(messages[1:-1])
        else:
            await producer.send_many(messages[:-1])
        if appended.messages or len(messages) > 1:
            appended.last = await producer.send(messages[-1])
        size_bytes = sum(len(message.payload) for message in messages)
        appended.messages += len(messages)
        appended.payload_bytes += size_bytes
        progress.advance(len(messages), size_bytes)
    await producer.flush()


async def _decoded(descriptor: int, decoder: Decoder) -> AsyncIterator[list[Message]]:
    """Yield the messages of the input in lists that are not empty, as soon as they are complete."""
    async for chunk in read_chunks(descriptor):
        if messages := decoder.feed(chunk):
            yield messages
    if messages := decoder.finish():
        yield messages


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """Yield a file descriptor to read from."""
    if path == "-":
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", ExitCode.NOT_FOUND) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
