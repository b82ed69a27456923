"""``tidelog group peek``, ``export`` and ``import``: messages at the positions of a group, and positions in a file."""

import json
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog import AsyncClient, At, Positions, StoredMessage, Tick
from tidelog_cli.commands.scan import FramingOption, Printed, print_all
from tidelog_cli.connection import PatientServer, Server
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.files import STANDARD_INPUT, decoded, local_input, local_path, read_text
from tidelog_cli.options.completers import group_names
from tidelog_cli.output.escapes import say
from tidelog_cli.output.framing import Framing
from tidelog_cli.output.messages import printer_of
from tidelog_cli.output.progress import Progress
from tidelog_cli.output.records import MessageOutputOption, QuietOption, message_output, note

GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="Name of the consumer group.", autocompletion=group_names)
]


def peek(
    group: GroupArgument,
    *,
    most: Annotated[int, typer.Option("--max", "-n", min=1, help="Maximum number of messages of each vchannel.")] = 10,
    framing: FramingOption = Framing.LINES,
    server: PatientServer,
    output: MessageOutputOption = None,
    quiet: QuietOption = False,
) -> None:
    """Print the next messages of a group on each of its vchannels. Its positions do not move."""

    async def messages(client: AsyncClient) -> AsyncGenerator[Sequence[StoredMessage], None]:
        for position in (await client.describe_group(group)).positions.values():
            if position.is_trimmed:
                note(
                    f"{position.vchannel}: messages that the group has not consumed were trimmed: `tidelog group seek "
                    f"{group} --to earliest --vchannel {position.vchannel}` continues after them",
                    quiet=quiet,
                )
            elif position.lag_messages:
                left = most
                async with client.scan(position.vchannel, start=position.next_tick, until=At.watermark()) as scan:
                    async for batch in scan:
                        yield batch[:left]
                        left -= len(batch)
                        if left <= 0:
                            break

    printed = Printed(None, Progress("peeking", is_shown=False))
    printer = printer_of(message_output(output), framing)
    server.run(print_all(server, messages, printer, printed, quiet=quiet))


def export(
    group: GroupArgument,
    *,
    to_file: Annotated[
        Path | None, typer.Option("--to-file", parser=local_path, help="File to write. Default: standard output.")
    ] = None,
    server: Server,
) -> None:
    """Print the positions of a group as JSON, for `group import`: the next tick of each vchannel."""
    described = server.ask(lambda client: client.describe_group(group))
    positions = {name: str(int(position.next_tick)) for name, position in described.positions.items()}
    text = json.dumps({"group": group, "positions": positions}, indent=2)
    if to_file is None:
        say(text)
    else:
        to_file.write_text(f"{text}\n")


def positions_in(path: str) -> Positions:
    """Return the positions in a file that ``export`` has written; ``-`` is standard input.

    Raises:
        CommandError: It cannot be read, or has no positions.
    """
    is_stdin = path == STANDARD_INPUT
    source = "standard input" if is_stdin else path
    text = decoded(sys.stdin.buffer.read(), source) if is_stdin else read_text(Path(path))
    try:
        next_ticks: dict[str, Any] = dict(json.loads(text)["positions"])
        # A position of the client is the last tick that was read. No message has the tick 0.
        found = {name: Tick(max(0, Tick.parse(str(tick)) - 1)) for name, tick in next_ticks.items()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CommandError(
            f"{source} is not the output of `tidelog group export`: expected a JSON object such as "
            '{"positions": {"orders/0": "470112345678901248"}}',
            ExitCode.USAGE,
        ) from error
    if not found:
        raise CommandError(f"{source} has the positions of no vchannel: nothing was changed", ExitCode.USAGE)
    return found


FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", parser=local_input, help="File of `group export`; - for standard input.")
]
