"""``tidelog scan`` and ``tidelog tail``: print messages of channels."""

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated

import typer

from tidelog import AsyncClient, At, Batch, End, Plan, Positions, ScanOptions, Start, StoredMessage, Tick
from tidelog_cli.connection import PatientServer, Server
from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.option_groups import OptionGroup, expanded
from tidelog_cli.options.completers import vchannel_names
from tidelog_cli.options.passed import is_passed
from tidelog_cli.options.positions import POSITION_HELP, moment_ago, parse_position, parse_positions
from tidelog_cli.output.framing import Framing, MessagePrinter
from tidelog_cli.output.message_format import LETTERS
from tidelog_cli.output.messages import format_printer, printer_of
from tidelog_cli.output.progress import Progress
from tidelog_cli.output.records import (
    MessageOutput,
    MessageOutputOption,
    NoProgressOption,
    Output,
    OutputOption,
    QuietOption,
    message_output,
    note,
    show_progress_beside_data,
)

_DEFAULT_LAST = 10
_MIN_SPLIT_MESSAGES = 1_000

NamesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="CHANNEL...",
        help="Channels, vchannels CHANNEL/INDEX, or patterns in quotes, such as 'orders.*', of all channels.",
        autocompletion=vchannel_names,
    ),
]
FramingOption = Annotated[Framing, typer.Option(help="Framing of payloads in the output of -o text.")]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEMPLATE",
        help=rf"Print each message by a template as of kcat, such as '%k %s\n': {LETTERS}; \n, \t, \r, \\ and \xNN.",
    ),
]


@dataclass(frozen=True, slots=True)
class Filters(OptionGroup):
    """Which messages are printed."""

    types: Annotated[
        list[int] | None, typer.Option("--type", min=0, help="Print only messages of this type; repeatable.")
    ] = None
    key: Annotated[str | None, typer.Option(help="Print only messages with this key.")] = None
    key_prefix: Annotated[str | None, typer.Option(help="Print only messages whose key begins with this.")] = None

    def options(self) -> ScanOptions:
        """Return the options of a scan. Raises CommandError."""
        if self.key is not None and self.key_prefix is not None:
            raise CommandError("--key and --key-prefix are both given: use one of them", ExitCode.USAGE)
        return {
            "types": self.types or None,
            "key": None if self.key is None else os.fsencode(self.key),
            "key_prefix": None if self.key_prefix is None else os.fsencode(self.key_prefix),
        }


@dataclass(slots=True)
class Printed:
    """Progress of one run.

    Attributes:
        wanted: Maximum number of messages; None for all.
        progress: Progress line, updated once per batch.
    """

    wanted: int | None
    progress: Progress
    messages: int = 0
    payload_bytes: int = 0
    started_s: float = field(default_factory=time.monotonic)

    @property
    def is_enough(self) -> bool:
        """Whether the maximum number of messages was printed."""
        return self.wanted is not None and self.messages >= self.wanted

    def counted(self, messages: Sequence[StoredMessage]) -> int:
        """Return the number of messages to print, up to the maximum, and count them."""
        count = len(messages) if self.wanted is None else min(len(messages), self.wanted - self.messages)
        if isinstance(messages, Batch) and count == len(messages):
            size_bytes = len(messages.columns.payloads)
        else:
            size_bytes = sum(len(message.payload) for message in islice(messages, count))
        self.messages += count
        self.payload_bytes += size_bytes
        self.progress.advance(count, size_bytes)
        return count

    def summary(self) -> str:
        """Return the printed amounts as text."""
        seconds = time.monotonic() - self.started_s
        return f"{self.messages:,} messages, {self.payload_bytes:,} bytes in {seconds:.2f} s"


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog=COMMON_CODES)(expanded(scan))
    app.command(epilog=COMMON_CODES)(expanded(tail))


def scan(
    call: typer.Context,
    names: NamesArgument,
    *,
    start: Annotated[str | None, typer.Option("--from", help=f"Start: {POSITION_HELP}.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(metavar="VCHANNEL=TICK", help="Resume after this tick; give it once for each vchannel."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help=f"End, exclusive: {POSITION_HELP}.")] = None,
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="Maximum number of messages.")] = None,
    limit: Annotated[str | None, typer.Option("--limit", hidden=True)] = None,
    wanted: Filters,
    framing: FramingOption = Framing.LINES,
    template: FormatOption = None,
    server: PatientServer,
    output: MessageOutputOption = None,
    no_progress: NoProgressOption = False,
    quiet: QuietOption = False,
) -> None:
    """Print the messages of one or more vchannels in tick order, and stop at the current end."""
    if limit is not None:
        raise CommandError(f"unknown option --limit: use -n {limit} or --count {limit}", ExitCode.USAGE)
    if start is not None and after:
        raise CommandError("--from and --after are both given: use one of them", ExitCode.USAGE)
    begin = parse_position(start) if start is not None else parse_positions(after) if after else At.earliest()
    until = parse_position(end) if end is not None else At.watermark()
    filters = wanted.options()

    def messages(client: AsyncClient) -> AsyncGenerator[Sequence[StoredMessage], None]:
        return scanned(client, names, begin, until, filters)

    draws = show_progress_beside_data(no_progress=no_progress, quiet=quiet)
    printed = Printed(count, Progress("scanning", is_shown=draws))
    printer = _printer(call, output, framing, template)
    server.run(print_all(server, messages, printer, printed, quiet=quiet))


def tail(
    call: typer.Context,
    names: NamesArgument,
    *,
    last: Annotated[
        int | None, typer.Option("-n", "--last", min=0, help=f"Number of last messages. Default: {_DEFAULT_LAST}.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Print messages of this last period, e.g. 1h30m.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep running and print new messages until Ctrl-C.")
    ] = False,
    wanted: Filters,
    framing: FramingOption = Framing.LINES,
    template: FormatOption = None,
    server: PatientServer,
    output: OutputOption = None,
    quiet: QuietOption = False,
) -> None:
    """Print the last messages; with -f, also print new ones as they are appended."""
    if last is not None and since is not None:
        raise CommandError("--last and --since are both given: use one of them", ExitCode.USAGE)
    begin = moment_ago(since) if since is not None else None
    filters = wanted.options()

    def messages(client: AsyncClient) -> AsyncGenerator[Sequence[StoredMessage], None]:
        if begin is not None:
            return scanned(client, names, begin, At.follow() if follow else At.watermark(), filters)
        return _last_then_follow(client, names, _DEFAULT_LAST if last is None else last, filters, follow=follow)

    printed = Printed(None, Progress("tailing", is_shown=False))
    printer = _printer(call, output, framing, template)
    server.run(print_all(server, messages, printer, printed, quiet=quiet))


def _printer(
    call: typer.Context, output: MessageOutput | Output | None, framing: Framing, template: str | None
) -> MessagePrinter:
    if template is None:
        return printer_of(message_output(output), framing)
    if is_passed(call, "output"):
        raise CommandError("--format and --output are both given: use one of them", ExitCode.USAGE)
    return format_printer(template)


async def print_all(
    server: Server,
    source: Callable[[AsyncClient], AsyncGenerator[Sequence[StoredMessage], None]],
    printer: MessagePrinter,
    printed: Printed,
    *,
    quiet: bool,
) -> None:
    """Print the messages of ``source``, up to ``printed.wanted``; if interrupted, print a summary on stderr."""
    try:
        async with server.connected() as client, aclosing(source(client)) as batches:
            with printed.progress:
                async for messages in batches:
                    printer.print(messages, printed.counted(messages))
                    if printed.is_enough:
                        break
    except asyncio.CancelledError:
        printer.finish()
        note(f"interrupted: {printed.summary()}", quiet=quiet)
        raise
    printer.finish()


async def scanned(
    client: AsyncClient, names: list[str], start: Start | Positions, until: End, filters: ScanOptions
) -> AsyncGenerator[Sequence[StoredMessage], None]:
    """Yield the messages of channels or vchannels, in batches."""
    # A scan retries while the server is away. This call fails early if no server is there at all.
    await client.wal_name()
    async with client.scan(names, start=start, until=until, **filters) as scan:
        async for batch in scan:
            yield batch


async def _last_then_follow(
    client: AsyncClient, names: list[str], last: int, filters: ScanOptions, *, follow: bool
) -> AsyncGenerator[Sequence[StoredMessage], None]:
    """Yield the ``last`` messages over all vchannels; with ``follow``, then everything appended after them."""
    vchannels = await client.vchannels_of(names)
    plan = await client.plan_scan(vchannels, max_messages_per_split=max(_MIN_SPLIT_MESSAGES, last))
    if messages := await _last_messages(client, vchannels, plan, last, filters):
        yield messages
    if follow:
        # Vchannels that were added since have no position, and begin at their first message.
        start = dict.fromkeys(vchannels, Tick(plan.end_tick - 1))
        async with client.scan(names, start=start, until=At.follow(), **filters) as scan:
            async for batch in scan:
                yield batch


async def _last_messages(
    client: AsyncClient, vchannels: list[str], plan: Plan, last: int, filters: ScanOptions
) -> list[StoredMessage]:
    """Return the last messages before the plan's end, reading only as many splits as needed."""
    begins = sorted({split.begin_tick for split in plan.splits}, reverse=True)
    wanted = 1
    while last and begins:
        begin = begins[min(wanted, len(begins)) - 1]
        found: deque[StoredMessage] = deque(maxlen=last)
        async with client.scan(vchannels, start=begin, until=plan.end_tick, **filters) as scan:
            async for batch in scan:
                found.extend(batch[-last:])
        if len(found) == last or wanted >= len(begins):
            return list(found)
        # Split sizes are estimates, and a type or key may be rare: read four times as many splits.
        wanted *= 4
    return []
