"""``tidelog journal``: list, create, change and remove journals, and append and read their frames."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog import AsyncClient, At, InvalidRequestError, StoredMessage
from tidelog.journals.labels import LabelSelector, LabelSet, LabelTerm
from tidelog.journals.selectors import parse_label_selector
from tidelog.journals.types import (
    ANY_REVISION,
    JournalChange,
    JournalDelete,
    JournalSpec,
    JournalUpsert,
    ListRequest,
)
from tidelog_cli.commands.append import Appended, InputOption, opened_input
from tidelog_cli.commands.scan import Printed, print_all, scanned
from tidelog_cli.connection import PatientServer, Server
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.files import STANDARD_INPUT, local_path, read_text
from tidelog_cli.option_groups import add_group
from tidelog_cli.options.confirmation import YesOption, confirm
from tidelog_cli.options.positions import POSITION_HELP, parse_position
from tidelog_cli.output.framing import Framing, json_in
from tidelog_cli.output.messages import printer_of
from tidelog_cli.output.progress import Progress
from tidelog_cli.output.records import (
    MessageOutput,
    NoProgressOption,
    OutputOption,
    QuietOption,
    Record,
    message_output,
    note,
    print_records,
    show_progress,
)
from tidelog_cli.output.watch import Watch

JournalArgument = Annotated[str, typer.Argument(metavar="JOURNAL", help="Name of a journal.")]
RevisionOption = Annotated[
    int,
    typer.Option(
        "--expected-revision",
        min=ANY_REVISION,
        help="Revision that each journal must have; 0 if it must not exist, -1 for any.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(
        app, "journal", "List, apply and remove journals; append and read their frames.", [ls, apply, append, read, rm]
    )


def ls(
    selector: Annotated[str, typer.Argument(help="Selector of labels, such as 'topic=clicks, !retired'.")] = "",
    *,
    names_only: Annotated[bool, typer.Option("--names", "-n", help="Print only names, one per line.")] = False,
    watch: Watch,
    server: Server,
    output: OutputOption = None,
) -> None:
    """List journals by name.

    A selector is a list of terms separated by commas: k=v, k!=v, k in (a, b), k notin (a, b), k for a label that is
    set, !k for one that is not, k:prefix=v. The label `name` is the journal's name; `prefix` is each path above it,
    such as my/topic/.
    """
    try:
        request = ListRequest(parse_label_selector(selector))
    except InvalidRequestError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error

    def look() -> list[Record]:
        return [_summary(journal) for journal in server.ask(lambda client: client.journals.list(request)).journals]

    watch.show(look, output, names_only=names_only)


def apply(
    names: Annotated[list[str] | None, typer.Argument(metavar="JOURNAL...", help="Names of journals.")] = None,
    *,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="NAME=VALUE", help="A label; repeatable."),
    ] = None,
    specs: Annotated[
        Path | None,
        typer.Option(
            "--specs",
            parser=local_path,
            help="File with one JSON object per line, such as the output of `journal ls -o jsonl`. Its `revision` is "
            "the expected one; with `delete` true the journal is deleted.",
        ),
    ] = None,
    expected_revision: RevisionOption = ANY_REVISION,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Create journals, or replace all of their labels: up to 60, all or none.

    The label content-type names the framing, such as application/x-ndjson, text/csv or application/x-protobuf-fixed.
    """
    if bool(names) == bool(specs):
        raise CommandError("expected names of journals, or --specs FILE, not both", ExitCode.USAGE)
    changes: list[JournalChange]
    if specs is not None:
        changes = _changes_in(specs)
    else:
        given = _labels(labels or ())
        changes = [JournalUpsert(name, given, expected_revision) for name in names or ()]
    journals = server.ask(lambda client: client.journals.apply(changes))
    print_records([_summary(journal) for journal in journals], output)


def append(
    name: JournalArgument,
    *,
    input_path: InputOption = STANDARD_INPUT,
    framing: Annotated[
        str | None,
        typer.Option(
            help="Content type by which the input is divided into frames, or ndjson, csv or fixed; none for one frame. "
            "Default: the journal's."
        ),
    ] = None,
    server: PatientServer,
    output: OutputOption = None,
    no_progress: NoProgressOption = False,
    quiet: QuietOption = False,
) -> None:
    """Append a stream of frames to a journal, byte for byte; once all are durable, print their ticks.

    The frames are not decoded: UUIDs in them are those of the program that encoded them.
    """
    # Imported here because other commands need no framings.
    from tidelog_cli.commands.journal_frames import frames_of

    progress = Progress("appending", is_shown=show_progress(no_progress=no_progress, quiet=quiet))
    appended = Appended()

    async def command() -> Record:
        try:
            async with server.connected() as client:
                journal = await _found(client, name)
                content_type = _content_type(journal, framing)
                async with client.producer(_vchannel(journal)) as producer:
                    with opened_input(input_path) as descriptor, progress.through(descriptor):
                        async for frames in frames_of(descriptor, content_type):
                            await appended.send(producer, frames, progress)
                        await producer.flush()
                return {"journal": name, **await appended.record(_vchannel(journal))}
        except asyncio.CancelledError:
            note(f"interrupted: {appended.messages} frames were sent, the last may not be appended", quiet=quiet)
            raise

    print_records([server.run(command())], output)


def read(
    name: JournalArgument,
    *,
    raw: Annotated[bool, typer.Option("--raw", help="Print the bytes of the frames, and nothing else.")] = False,
    start: Annotated[str | None, typer.Option("--from", help=f"Start: {POSITION_HELP}.")] = None,
    end: Annotated[str | None, typer.Option("--to", help=f"End, exclusive: {POSITION_HELP}.")] = None,
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="Maximum number of frames.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep running and print new frames until Ctrl-C.")
    ] = False,
    server: PatientServer,
    output: OutputOption = None,
    quiet: QuietOption = False,
) -> None:
    """Print the frames of a journal, uncommitted ones and duplicates included, and stop at the current end.

    With --raw, the output can be appended to another journal with the same framing, and is there byte for byte.
    """
    if raw and output is not None:
        raise CommandError("--raw and --output are both given: use one of them", ExitCode.USAGE)
    if follow and end is not None:
        raise CommandError("--follow and --to are both given: use one of them", ExitCode.USAGE)
    begin = parse_position(start) if start is not None else At.earliest()
    until = At.follow() if follow else parse_position(end) if end is not None else At.watermark()

    async def frames(client: AsyncClient) -> AsyncGenerator[Sequence[StoredMessage], None]:
        journal = await _found(client, name)
        async for messages in scanned(client, [_vchannel(journal)], begin, until, {}):
            yield messages

    printer = printer_of(MessageOutput.TEXT if raw else message_output(output), Framing.NONE)
    server.run(print_all(server, frames, printer, Printed(count, Progress("reading", is_shown=False)), quiet=quiet))


def rm(
    names: Annotated[list[str], typer.Argument(metavar="JOURNAL...", help="Names of journals.")],
    *,
    yes: YesOption = False,
    ignore_missing: Annotated[bool, typer.Option("--ignore-missing", help="Skip unknown names.")] = False,
    server: Server,
    quiet: QuietOption = False,
) -> None:
    """Remove journals with all their frames: up to 60, all or none."""
    found = {
        journal.name: journal for journal in server.ask(lambda client: client.journals.list(_by_name(names))).journals
    }
    missing = [name for name in names if name not in found]
    if missing and not ignore_missing:
        raise CommandError(_missing(missing), ExitCode.NOT_FOUND)
    if found:
        confirm(f"Remove {', '.join(found)} with all frames?", refusal="nothing was removed", yes=yes)
        # With the revisions that were shown: a journal that was created again meanwhile is another one.
        changes = [JournalDelete(journal.name, journal.revision) for journal in found.values()]
        server.ask(lambda client: client.journals.apply(changes))
    note(f"removed {', '.join(found) or 'nothing'}", quiet=quiet)


def _content_type(journal: JournalSpec, framing: str | None) -> str:
    """Return the content type of the input. Raises CommandError if nothing names it."""
    content_type = framing or journal.content_type
    if not content_type:
        raise CommandError(
            f"journal '{journal.name}' has no label content-type: pass --framing, or set the label with "
            f"`tidelog journal apply {journal.name} --label content-type=TYPE`",
            ExitCode.USAGE,
        )
    return content_type


async def _found(client: AsyncClient, name: str) -> JournalSpec:
    """Return a journal. Raises CommandError if it does not exist."""
    listed = (await client.journals.list(_by_name([name]))).journals
    if not listed:
        raise CommandError(_missing([name]), ExitCode.NOT_FOUND)
    return listed[0]


def _by_name(names: Iterable[str]) -> ListRequest:
    return ListRequest(LabelSelector(tuple(LabelTerm("name", name) for name in names)))


def _missing(names: Sequence[str]) -> str:
    verb = "does" if len(names) == 1 else "do"
    return f"{', '.join(names)} {verb} not exist, or you may not see it: `tidelog journal ls` lists the journals"


def _labels(texts: Iterable[str]) -> LabelSet:
    """Return the labels in texts such as ``topic=clicks``. Raises CommandError."""
    pairs = set()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandError(f"'{text}' is not a label: expected NAME=VALUE", ExitCode.USAGE)
        pairs.add((name, value))
    return LabelSet(tuple(sorted(pairs)))


def _changes_in(path: Path) -> list[JournalChange]:
    """Return the changes in a file of JSON lines. Raises CommandError."""
    changes = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                changes.append(_change_of(json_in(line, number, str(path))))
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                raise CommandError(
                    f"line {number} of {path} is not a specification ({error!r}): expected an object with `name`, and "
                    "optionally `labels` as a list of NAME=VALUE, `revision` and `delete`",
                    ExitCode.USAGE,
                ) from error
    return changes


def _change_of(fields: Any) -> JournalChange:
    if not isinstance(fields, dict):
        raise TypeError("not an object")
    revision = int(fields.get("revision", ANY_REVISION))
    if fields.get("delete") is True:
        return JournalDelete(str(fields["name"]), revision)
    return JournalUpsert(str(fields["name"]), _labels(map(str, fields.get("labels", ()))), revision)


def _summary(journal: JournalSpec) -> Record:
    return {
        "name": journal.name,
        "labels": [f"{name}={value}" for name, value in journal.labels.labels],
        "revision": journal.revision,
        "channel": journal.channel,
    }


def _vchannel(journal: JournalSpec) -> str:
    return f"{journal.channel}/0"
