"""``tidelog append``: append messages from standard input or a file to a vchannel."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from tidelog import Appendable, AsyncClient, AsyncProducer, AsyncTicket, Message
from tidelog_cli.commands.input_chunks import read_chunks
from tidelog_cli.commands.vchannel_names import full_name
from tidelog_cli.connection import PatientServer, connected
from tidelog_cli.exit_codes import COMMON_CODES, ExitCode
from tidelog_cli.files import STANDARD_INPUT, local_input, unreadable
from tidelog_cli.option_groups import expanded
from tidelog_cli.output.framing import Decoder, Framing, decoder_of
from tidelog_cli.output.progress import Progress
from tidelog_cli.output.records import (
    NoProgressOption,
    OutputOption,
    QuietOption,
    Record,
    note,
    print_records,
    show_progress,
)

InputOption = Annotated[
    str, typer.Option("--input", "-i", parser=local_input, help="Input file; - for standard input.")
]


@dataclass(slots=True)
class Appended:
    """Progress of one run of a command that appends.

    Attributes:
        messages, payload_bytes: Amounts sent to the producer so far.
        first, last: Tickets of the first and last message.
        started_s: Start of the run, monotonic clock.
    """

    messages: int = 0
    payload_bytes: int = 0
    first: AsyncTicket | None = None
    last: AsyncTicket | None = None
    started_s: float = field(default_factory=time.monotonic)

    async def send(self, producer: AsyncProducer, messages: Sequence[Appendable], progress: Progress) -> None:
        """Send messages, at least one, and count them. They are durable once the producer is flushed."""
        if self.first is None:
            self.first = self.last = await producer.send(messages[0])
            await producer.send_many(messages[1:-1])
        else:
            await producer.send_many(messages[:-1])
        if self.messages or len(messages) > 1:
            self.last = await producer.send(messages[-1])
        size_bytes = sum(len(each.payload if isinstance(each, Message) else each) for each in messages)
        self.messages += len(messages)
        self.payload_bytes += size_bytes
        progress.advance(len(messages), size_bytes)

    async def record(self, vchannel: str) -> Record:
        """Return the record to print. Every message must be acknowledged."""
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
    app.command(epilog=COMMON_CODES)(expanded(append))


def append(
    vchannel: Annotated[
        str, typer.Argument(help="CHANNEL/INDEX, or CHANNEL if it has one vchannel.", show_default=False)
    ],
    *,
    input_path: InputOption = STANDARD_INPUT,
    framing: Annotated[Framing, typer.Option(help="Framing of messages in the input.")] = Framing.LINES,
    key_delim: Annotated[
        str | None,
        typer.Option(
            help="Separator of key and payload in a line, at its first occurrence. A line without it has no key.",
            show_default=False,
        ),
    ] = None,
    fencing_token: Annotated[
        int | None,
        typer.Option(min=1, help="Append only while this is the fencing token of the vchannel.", show_default=False),
    ] = None,
    txn: Annotated[
        bool, typer.Option("--txn", help="Append the whole input atomically, as one transaction of any size.")
    ] = False,
    server: PatientServer,
    output: OutputOption = None,
    no_progress: NoProgressOption = False,
    quiet: QuietOption = False,
) -> None:
    """Append messages; once all are durable, print their first and last tick.

    Framings: lines: one message per line. jsonl: one object per line with `payload` or `payload_base64`, and optionally
    `key` or `key_base64`, `type`, `properties` and `event_time_ms`; accepts the output of `tidelog scan -o jsonl`
    unchanged. length: each payload preceded by its length as a 4-byte big-endian integer. none: the whole input is one
    message.
    """
    decoder = decoder_of(framing, key_delim)
    if txn:
        progress = Progress("staging", is_shown=show_progress(no_progress=no_progress, quiet=quiet))
        job = _Job(vchannel, input_path, decoder, fencing_token)
        print_records([server.ask(lambda client: _append_as_one(job, client, progress))], output)
        return
    progress = Progress("appending", is_shown=show_progress(no_progress=no_progress, quiet=quiet))
    appended = Appended()

    async def command() -> Record:
        try:
            async with (
                connected(server.endpoint) as client,
                client.vchannel(vchannel).producer(fencing_token=fencing_token) as producer,
            ):
                # Detects a wrong name before the input is read, which may be a terminal, or empty.
                await client.latest_mvcc_tick(vchannel)
                with opened_input(input_path) as descriptor, progress:
                    await _append_all(producer, descriptor, decoder, appended, progress)
                return await appended.record(vchannel)
        except asyncio.CancelledError:
            note(f"interrupted: {appended.messages} messages were sent, the last may not be appended", quiet=quiet)
            raise

    print_records([server.run(command())], output)


@dataclass(frozen=True, slots=True)
class _Job:
    """Arguments of one append."""

    vchannel: str
    input_path: str
    decoder: Decoder
    fencing_token: int | None


async def _append_as_one(job: _Job, client: AsyncClient, progress: Progress) -> Record:
    """Append the input in one transaction; an interruption appends none of it."""
    started_s = time.monotonic()
    messages = payload_bytes = 0
    # Detects a wrong name before the input is read.
    await client.latest_mvcc_tick(job.vchannel)
    async with client.txn() as txn:
        with opened_input(job.input_path) as descriptor, progress:
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
    producer: AsyncProducer, descriptor: int, decoder: Decoder, appended: Appended, progress: Progress
) -> None:
    """Send the input as it arrives, and wait until all of it is durable."""
    async for messages in _decoded(descriptor, decoder):
        await appended.send(producer, messages, progress)
    await producer.flush()


async def _decoded(descriptor: int, decoder: Decoder) -> AsyncIterator[list[Message]]:
    """Yield the messages of the input as soon as they are complete, in non-empty lists."""
    async for chunk in read_chunks(descriptor):
        if messages := decoder.feed(chunk):
            yield messages
    if messages := decoder.finish():
        yield messages


@contextmanager
def opened_input(path: str) -> Iterator[int]:
    """Yield a file descriptor of the input; ``-`` is standard input."""
    if path == STANDARD_INPUT:
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise unreadable(Path(path), error, ExitCode.NOT_FOUND) from error
    except OSError as error:
        raise unreadable(Path(path), error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
