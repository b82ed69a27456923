"""``tidelog mailbox send``, ``fetch``, ``ack``, ``headers`` and ``peek``: the messages of a mailbox."""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Final

import typer

from tidelog import AsyncClient, AsyncMailbox, MessageState, OutgoingMessage
from tidelog.mailboxes.deliveries import delivery_of_lock
from tidelog_cli.commands.append import InputOption, opened_input
from tidelog_cli.commands.input_chunks import read_chunks
from tidelog_cli.commands.mailboxes.arguments import MailboxArgument, parse_ids, parse_time
from tidelog_cli.commands.mailboxes.records import (
    delivery_record,
    header_record,
    message_decoder,
    peeked_record,
    print_messages,
)
from tidelog_cli.connection import PatientServer, Server
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.files import STANDARD_INPUT, decoded
from tidelog_cli.options.positions import pairs_of, parse_duration
from tidelog_cli.output.framing import Decoder, Framing, json_in
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

_BATCH: Final = 1_000
_BATCH_BYTES: Final = 1 << 20
_STATES: Final = tuple(state.name.lower() for state in MessageState)
LeaseOption = Annotated[
    str | None, typer.Option("--lease", help="Duration of the lease, e.g. 30s. Default: the mailbox's.")
]
DelayOption = Annotated[
    str | None,
    typer.Option("--delay", help="Delay until the message is available, e.g. 10s. Default: the mailbox's."),
]
AfterIdOption = Annotated[str | None, typer.Option("--after-id", help="Id of the last message of the previous page.")]


def send(
    name: MailboxArgument,
    *,
    input_path: InputOption = STANDARD_INPUT,
    body: Annotated[str | None, typer.Option("--body", "-b", help="Send this text as the only message.")] = None,
    framing: Annotated[Framing, typer.Option(help="Framing of messages in the input.")] = Framing.LINES,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable."),
    ] = None,
    delay: DelayOption = None,
    due: Annotated[
        str | None,
        typer.Option(help="Time from which the messages are available, e.g. 2026-01-31T12:00Z."),
    ] = None,
    priority: Annotated[int, typer.Option(min=0, max=255, help="Greater priorities are delivered first.")] = 0,
    group: Annotated[str, typer.Option(help="Group: its messages are delivered one at a time.")] = "",
    dedup_key: Annotated[
        str,
        typer.Option(help="The message is not added if the mailbox remembers this key; for one message."),
    ] = "",
    ttl: Annotated[
        str | None, typer.Option(help="Age at which the messages expire; 0s for never. Default: the mailbox's.")
    ] = None,
    server: PatientServer,
    output: OutputOption = None,
    no_progress: NoProgressOption = False,
    quiet: QuietOption = False,
) -> None:
    """Send messages; once all are durable, print the first and the last id.

    Framings: lines: one message per line. jsonl: one object per line with `body` or `body_base64`, and optionally
    `headers`, `priority`, `group`, `dedup_key`, `delay_ms` and `ttl_ms`; accepts the output of `tidelog mailbox peek
    -o jsonl`. length: each body preceded by its length as a 4-byte big-endian integer. none: the input is one message.
    """
    _check_combination(body, input_path, framing, dedup_key, delay=delay, due=due)
    template = OutgoingMessage(
        b"", pairs_of(header or (), "header", "NAME=VALUE", "name"), None if delay is None else parse_duration(delay),
        None if due is None else parse_time(due), priority, group, dedup_key,
        None if ttl is None else parse_duration(ttl),
    )  # fmt: skip
    job = _Sending(name, message_decoder(framing, lambda content: replace(template, body=content)))
    progress = Progress("sending", is_shown=show_progress(no_progress=no_progress, quiet=quiet))

    async def command() -> Record:
        try:
            async with server.connected() as client:
                mailbox = client.mailbox(name)
                # Detects a wrong name before the input is read, which may be a terminal, or empty.
                await client.mailboxes.describe(name)
                with progress:
                    if body is not None:
                        await job.send(mailbox, [replace(template, body=body.encode())], progress)
                    else:
                        await job.send_input(mailbox, input_path, progress)
                return job.record()
        except asyncio.CancelledError:
            note(f"interrupted: {job.messages} messages were sent, the last may not be", quiet=quiet)
            raise

    print_records([server.run(command())], output)


def _check_combination(
    body: str | None, input_path: str, framing: Framing, dedup_key: str, *, delay: str | None, due: str | None
) -> None:
    """Raise CommandError if options of ``send`` exclude each other."""
    if delay is not None and due is not None:
        raise CommandError("--delay and --due are both given: use one of them", ExitCode.USAGE)
    if body is not None and input_path != STANDARD_INPUT:
        raise CommandError("--body and --input are both given: use one of them", ExitCode.USAGE)
    if dedup_key and body is None and framing is not Framing.NONE:
        raise CommandError(
            "--dedup-key is for one message: use it with --body or --framing none, or give each message its "
            "'dedup_key' with --framing jsonl",
            ExitCode.USAGE,
        )


def fetch(
    name: MailboxArgument,
    *,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=1_000, help="Maximum number of messages.")] = 1,
    lease: LeaseOption = None,
    wait: Annotated[str, typer.Option(help="Time to wait for a first message, at most 60s.")] = "0s",
    confirm: Annotated[bool, typer.Option("--ack", help="Confirm the messages once they are printed.")] = False,
    server: PatientServer,
    output: OutputOption = None,
    quiet: QuietOption = False,
) -> None:
    """Lease messages and print them. Confirm them with `tidelog mailbox ack` and their lock ids, or with --ack.

    -o text prints the bodies alone, a line each.
    """
    leased = None if lease is None else parse_duration(lease)
    waits = parse_duration(wait)

    async def command(client: AsyncClient) -> None:
        mailbox = client.mailbox(name)
        deliveries = await mailbox.fetch(count, lease=leased, wait=waits)
        try:
            print_messages([(delivery_record(each), each.body) for each in deliveries], output)
            sys.stdout.flush()
        except BaseException:
            # The caller has not seen them: without their locks it could not confirm them either.
            await mailbox.reject_many(deliveries, delay=0.0)
            raise
        if confirm:
            await mailbox.ack_many(each for each in deliveries if not each.is_body_missing)
            if missing := [each.lock_id for each in deliveries if each.is_body_missing]:
                note(
                    f"the bodies of {len(missing)} messages are missing, so these are not confirmed; their locks: "
                    f"{' '.join(missing)}",
                    quiet=quiet,
                )
        if not deliveries:
            is_paused = (await mailbox.counts()).is_paused
            note(f"{name} is paused: resume it" if is_paused else "there is no message", quiet=quiet)

    server.ask(command)


def ack(
    name: MailboxArgument,
    lock_ids: Annotated[
        list[str],
        typer.Argument(
            metavar="LOCK_ID...",
            help="Lock ids of deliveries, 40 hexadecimal digits each; - to read them from standard input, one per line "
            "or in the output of `fetch`.",
        ),
    ],
    *,
    reject: Annotated[bool, typer.Option("--reject", help="Return the messages to the mailbox.")] = False,
    delay: Annotated[
        str | None, typer.Option(help="Delay of rejected messages, e.g. 10s. Default: the schedule of the mailbox.")
    ] = None,
    final: Annotated[bool, typer.Option("--final", help="Reject, and make the messages dead.")] = False,
    server: Server,
    quiet: QuietOption = False,
) -> None:
    """Confirm deliveries, which deletes their messages, or reject them. Each is settled independently of the others."""
    if delay is not None and (final or not reject):
        raise CommandError("--delay is for --reject: use both, without --final", ExitCode.USAGE)
    delays = None if delay is None else parse_duration(delay)
    deliveries = [delivery_of_lock(name, lock) for lock in _locks(lock_ids)]

    async def settled(client: AsyncClient) -> None:
        mailbox = client.mailbox(name)
        if reject or final:
            await mailbox.reject_many(deliveries, delay=delays, final=final)
        else:
            await mailbox.ack_many(deliveries)

    server.ask(settled)
    note(f"{'rejected' if reject or final else 'confirmed'} {len(deliveries)}", quiet=quiet)


def headers(
    name: MailboxArgument,
    *,
    after: Annotated[
        str | None,
        typer.Option(help="List messages received after this time, e.g. -24h or 2026-01-31T12:00Z."),
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=1_000, help="Maximum number of messages.")] = 100,
    after_id: AfterIdOption = None,
    server: Server,
    output: OutputOption = None,
) -> None:
    """List messages that could be fetched now, without their bodies and without a lease."""
    since: datetime | None = None if after is None else parse_time(after)
    last_id = _id(after_id)
    found = server.ask(lambda client: client.mailbox(name).headers(since, max_messages=count, after_id=last_id))
    print_records(list(map(header_record, found)), output)


def peek(
    name: MailboxArgument,
    *,
    state: Annotated[str | None, typer.Option(help=f"Only messages in this state: {', '.join(_STATES)}.")] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=100, help="Maximum number of messages.")] = 10,
    after_id: AfterIdOption = None,
    message_id: Annotated[str | None, typer.Option("--id", help="Only this message.")] = None,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Print messages in any state, without a lease. -o text prints the bodies alone, a line each."""
    if state is not None and state not in _STATES:
        raise CommandError(f"invalid state '{state}': expected one of {', '.join(_STATES)}", ExitCode.USAGE)
    wanted = None if state is None else MessageState[state.upper()]
    last_id, only_id = _id(after_id), _id(message_id)
    found = server.ask(
        lambda client: client.mailbox(name).peek(wanted, max_messages=count, after_id=last_id, message_id=only_id),
    )
    print_messages([(peeked_record(each), each.body) for each in found], output)


@dataclass(slots=True)
class _Sending:
    """Progress of one ``send``.

    Attributes:
        name: The mailbox.
        decoder: Decoder of the input.
        messages, duplicates, size_bytes: Amounts sent so far.
        first_id, last_id: Ids of the first and the last message.
        started_s: Start of the run, monotonic clock.
    """

    name: str
    decoder: Decoder[OutgoingMessage]
    messages: int = 0
    duplicates: int = 0
    size_bytes: int = 0
    first_id: int | None = None
    last_id: int | None = None
    started_s: float = field(default_factory=time.monotonic)

    async def send_input(self, mailbox: AsyncMailbox, path: str, progress: Progress) -> None:
        """Send the messages of an input as they arrive."""
        with opened_input(path) as descriptor:
            progress.through(descriptor)
            async for chunk in read_chunks(descriptor):
                await self.send(mailbox, self.decoder.feed(chunk), progress)
            await self.send(mailbox, self.decoder.finish(), progress)

    async def send(self, mailbox: AsyncMailbox, messages: Sequence[OutgoingMessage], progress: Progress) -> None:
        """Send messages, in batches that are each added wholly or not at all."""
        for batch in _batches(messages):
            # Bodies without options are the cheapest form.
            plain = [each.body for each in batch if each == OutgoingMessage(each.body)]
            results = await mailbox.send_many(plain if len(plain) == len(batch) else batch)
            self.first_id = self.first_id or results[0].id
            self.last_id = results[-1].id
            self.messages += len(batch)
            self.duplicates += sum(each.duplicate for each in results)
            size_bytes = sum(len(each.body) for each in batch)
            self.size_bytes += size_bytes
            progress.advance(len(batch), size_bytes)

    def record(self) -> Record:
        """Return the record to print."""
        return {
            "mailbox": self.name,
            "messages": self.messages,
            "duplicates": self.duplicates,
            "bytes": self.size_bytes,
            "first_id": None if self.first_id is None else str(self.first_id),
            "last_id": None if self.last_id is None else str(self.last_id),
            "seconds": round(time.monotonic() - self.started_s, 3),
        }


def _batches(messages: Sequence[OutgoingMessage]) -> list[list[OutgoingMessage]]:
    """Return messages in batches of at most _BATCH messages and, unless one is larger, _BATCH_BYTES of bodies."""
    batches: list[list[OutgoingMessage]] = []
    size_bytes = 0
    for message in messages:
        if not batches or len(batches[-1]) == _BATCH or size_bytes + len(message.body) > _BATCH_BYTES:
            batches.append([])
            size_bytes = 0
        batches[-1].append(message)
        size_bytes += len(message.body)
    return batches


def _id(text: str | None) -> int:
    return parse_ids([text])[0] if text is not None else 0


def _locks(texts: Sequence[str]) -> list[bytes]:
    """Return locks; ``-`` stands for those on standard input: lines with lock ids, or with objects of JSON."""
    locks: list[bytes] = []
    for text in texts:
        if text == STANDARD_INPUT:
            lines = enumerate(decoded(sys.stdin.buffer.read(), "the input").split("\n"), 1)
            locks += [_lock_in(line, number) for number, line in lines if line.strip()]
        else:
            locks.append(_lock(text))
    return locks


def _lock_in(line: str, number: int) -> bytes:
    text = line.strip()
    if text.startswith("{"):
        # A text that begins with a brace is an object.
        text = str(json_in(text, number).get("lock_id", ""))
    return _lock(text, f"line {number} of the input has an ")


def _lock(text: str, where: str = "") -> bytes:
    try:
        lock = bytes.fromhex(text)
    except ValueError:
        lock = b""
    if len(lock) != 20:
        raise CommandError(f"{where}invalid lock id '{text[:60]}': expected 40 hexadecimal digits", ExitCode.USAGE)
    return lock


COMMANDS: Final = (send, fetch, ack, headers, peek)
"""Commands of the group ``tidelog mailbox``."""
