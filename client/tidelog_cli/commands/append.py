"""``tidelog append``: append messages from standard input or a file to a vchannel or a channel."""

import asyncio
import os
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, Unpack

import typer

from tidelog import (
    Appendable,
    AppendResult,
    AsyncClient,
    AsyncProducer,
    AsyncTicket,
    InvalidRequestError,
    Message,
    Partitioner,
    TransactionResult,
    VchannelTotal,
)
from tidelog.append.options import AppendConditions
from tidelog.txn.conditions import full_name
from tidelog_cli.commands.input_chunks import read_chunks
from tidelog_cli.connection import PatientServer
from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.files import STANDARD_INPUT, local_input, not_a_file, unreadable
from tidelog_cli.option_groups import OptionGroup, expanded
from tidelog_cli.options.completers import vchannel_names
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


@dataclass(frozen=True, slots=True)
class Form(OptionGroup):
    """What the input is, and what is added to it."""

    framing: Annotated[Framing, typer.Option(help="Framing of messages in the input.")] = Framing.LINES
    key_delim: Annotated[
        str | None,
        typer.Option(
            "--key-delim",
            "--partition-key-delim",
            help="Separator of key and payload in a line, at its first occurrence. A line without it has no key.",
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Property of messages that lack it; repeatable."),
    ] = None

    def decode(self) -> "Decode":
        """Return what yields the messages of an input. Raises CommandError."""
        decoder, headers = decoder_of(self.framing, self.key_delim), _headers(self.header)
        return lambda descriptor: _decoded(descriptor, decoder, headers)


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

    async def records(self, vchannel: str, totals: Mapping[str, VchannelTotal]) -> list[Record]:
        """Return the records to print, one for each vchannel. Every message must be acknowledged."""
        seconds = time.monotonic() - self.started_s
        if totals:
            return [_record(name, total.messages, total, seconds) for name, total in totals.items()]
        return [await self.record(vchannel)]

    async def record(self, vchannel: str) -> Record:
        """Return the record to print of a vchannel. Every message must be acknowledged."""
        seconds = time.monotonic() - self.started_s
        total = None
        if self.first is not None and self.last is not None:
            total = VchannelTotal(self.messages, (await self.first).first_tick, (await self.last).last_tick)
        return _record(full_name(vchannel), self.messages, total, seconds, bytes=self.payload_bytes)


def _record(
    vchannel: str,
    messages: int,
    position: VchannelTotal | AppendResult | TransactionResult | None,
    seconds: float,
    **more: object,
) -> Record:
    ticks = (None, None) if position is None else (int(position.first_tick), int(position.last_tick))
    return {
        "vchannel": vchannel, "messages": messages, **more, "first_tick": ticks[0], "last_tick": ticks[1],
        "seconds": round(seconds, 3),
    }  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog=COMMON_CODES)(expanded(append))


def append(
    vchannel: Annotated[
        str, typer.Argument(help="CHANNEL, or CHANNEL/INDEX for one of its vchannels.", autocompletion=vchannel_names)
    ],
    *,
    input_path: InputOption = STANDARD_INPUT,
    form: Form,
    fencing_token: Annotated[
        int | None, typer.Option(min=1, help="Append only while this is the fencing token of the vchannel.")
    ] = None,
    expect_last_tick: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Append only if the last message ever appended to the vchannel has this tick; 0: if nothing was "
            "appended. Implies --txn.",
        ),
    ] = None,
    partitioner: Annotated[
        Literal["crc32c", "murmur2"],
        typer.Option(help="Choice of the vchannel of a key in a CHANNEL with several; murmur2 is Kafka's."),
    ] = "crc32c",
    txn: Annotated[
        bool, typer.Option("--txn", help="Append the whole input atomically, as one transaction of any size.")
    ] = False,
    server: PatientServer,
    output: OutputOption = None,
    no_progress: NoProgressOption = False,
    quiet: QuietOption = False,
) -> None:
    """Append messages; once all are durable, print their first and last tick on each vchannel.

    In a channel with several vchannels, a message with a key goes to the vchannel of its key; those without one are
    balanced.

    Framings: lines: one message per line. jsonl: one object per line with `payload` or `payload_base64`, and optionally
    `key` or `key_base64`, `type`, `properties` and `event_time_ms`; accepts the output of `tidelog scan -o jsonl`
    unchanged. length: each payload preceded by its length as a 4-byte big-endian integer. none: the whole input is one
    message.
    """
    chosen: Partitioner | None = None if "/" in vchannel or partitioner == "crc32c" else partitioner
    decode, is_shown = form.decode(), show_progress(no_progress=no_progress, quiet=quiet)
    if txn or expect_last_tick is not None:
        progress = Progress("staging", is_shown=is_shown)
        conditions = AppendConditions(
            fencing_token=fencing_token, expected_last_tick=expect_last_tick, partitioner=chosen
        )
        found = server.ask(lambda client: _append_as_one(client, vchannel, input_path, decode, progress, **conditions))
        print_records(found, output)
        return
    progress, appended = Progress("appending", is_shown=is_shown), Appended()

    async def command() -> list[Record]:
        try:
            async with (
                server.connected() as client,
                client.producer(vchannel, fencing_token=fencing_token, partitioner=chosen) as producer,
            ):
                await _check_name(client, vchannel)
                with opened_input(input_path) as descriptor, progress.through(descriptor):
                    async for messages in decode(descriptor):
                        await appended.send(producer, messages, progress)
                    await producer.flush()
                return await appended.records(vchannel, producer.totals)
        except asyncio.CancelledError:
            note(f"interrupted: {appended.messages} messages were sent, the last may not be appended", quiet=quiet)
            raise

    print_records(server.run(command()), output)


Decode = Callable[[int], AsyncIterator[list[Message]]]
"""Yields the messages of an input, given by its descriptor."""


async def _check_name(client: AsyncClient, name: str) -> None:
    """Detect a wrong name before the input is read, which may be a terminal, or empty.

    Raises:
        TidelogError: There is no such vchannel or channel here.
    """
    try:
        await client.latest_mvcc_tick(name)
    except InvalidRequestError as error:
        # It is the name of a channel with several vchannels.
        if "vchannels" not in error.values:
            raise


async def _append_as_one(
    client: AsyncClient,
    vchannel: str,
    input_path: str,
    decode: Decode,
    progress: Progress,
    **conditions: Unpack[AppendConditions],
) -> list[Record]:
    """Append the input in one transaction; an interruption appends none of it."""
    started_s = time.monotonic()
    messages = payload_bytes = 0
    await _check_name(client, vchannel)
    async with client.txn() as txn:
        with opened_input(input_path) as descriptor, progress.through(descriptor):
            async for several in decode(descriptor):
                await txn.append(vchannel, several, **conditions)
                size_bytes = sum(len(message.payload) for message in several)
                messages += len(several)
                payload_bytes += size_bytes
                progress.advance(len(several), size_bytes)
    result = txn.result if messages else None
    seconds = time.monotonic() - started_s
    if result is not None and vchannel not in result.results:
        parts = sorted(result.results.items(), key=lambda item: int(item[0].rpartition("/")[2]))
        return [
            _record(name, part.last_tick - part.first_tick + 1, part, seconds, txn_id=result.txn_id)
            for name, part in parts
        ]
    txn_id = None if result is None else result.txn_id
    return [_record(full_name(vchannel), messages, result, seconds, bytes=payload_bytes, txn_id=txn_id)]


async def _decoded(
    descriptor: int, decoder: Decoder[Message], headers: Mapping[str, str]
) -> AsyncIterator[list[Message]]:
    """Yield the messages of the input as soon as they are complete, in non-empty lists."""
    async for chunk in read_chunks(descriptor):
        if messages := decoder.feed(chunk):
            yield _with_headers(messages, headers)
    if messages := decoder.finish():
        yield _with_headers(messages, headers)


def _with_headers(messages: list[Message], headers: Mapping[str, str]) -> list[Message]:
    """Return messages with further properties; those that they have stay as they are."""
    if not headers:
        return messages
    return [replace(message, properties={**headers, **message.properties}) for message in messages]


def _headers(texts: Sequence[str] | None) -> dict[str, str]:
    """Return the properties that options name. Raises CommandError."""
    headers: dict[str, str] = {}
    for text in texts or ():
        name, is_there, value = text.partition("=")
        if not is_there or not name:
            raise CommandError(f"invalid -H {text!r}: expected NAME=VALUE", ExitCode.USAGE)
        headers[name] = value
    return headers


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
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise not_a_file(Path(path), "folder")
        yield descriptor
    finally:
        os.close(descriptor)
