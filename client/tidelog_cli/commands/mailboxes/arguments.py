"""Arguments and options that commands for mailboxes share."""

from datetime import datetime
from typing import Annotated, Final

import typer

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.options.completers import mailbox_names
from tidelog_cli.options.positions import moment_ago, parse_moment, whole_number

DEFAULT_TIMEOUT_S: Final = 30.0

MailboxArgument = Annotated[
    str, typer.Argument(metavar="MAILBOX", help="Name of a mailbox.", autocompletion=mailbox_names)
]


def parse_ids(texts: list[str] | None) -> list[int]:
    """Return ids of messages.

    Raises:
        CommandError: A text is not an id.
    """
    ids = []
    for text in texts or ():
        number = whole_number(text)
        if number is None:
            raise CommandError(f"invalid id '{text[:40]}': expected that of a message, a number", ExitCode.USAGE)
        ids.append(number)
    return ids


def parse_time(text: str) -> datetime:
    """Return a time, or one that is a duration before now if ``text`` begins with ``-``. Raises CommandError."""
    return moment_ago(text[1:]) if text.startswith("-") else parse_moment(text)
