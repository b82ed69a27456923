"""``tidelog cheat``: the commands of a topic, from the page ``cheat.md`` of the documents, which is in this package."""

import re
from importlib import resources
from typing import Annotated, Final

import typer

from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.output.escapes import say

_TOPIC: Final = re.compile(r"^## (\S+)\n\n(.+?)\n\n```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT: Final = re.compile(r"^\$ ", re.MULTILINE)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog=COMMON_CODES)(cheat)


def cheat(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Topic, such as produce. Default: list the topics.")
    ] = None,
) -> None:
    """Print the commands of a topic, to copy; without a topic, list the topics."""
    page = resources.files("tidelog_cli").joinpath("cheat.md").read_text(encoding="utf-8")
    topics = {name: (about, _PROMPT.sub("", commands)) for name, about, commands in _TOPIC.findall(page)}
    if topic is None:
        for name, (about, _) in topics.items():
            say(f"{name:<12}{about}")
    elif topic in topics:
        about, commands = topics[topic]
        say(f"# {about}\n{commands}", end="")
    else:
        raise CommandError(f"there is no topic '{topic}': expected one of {', '.join(topics)}", ExitCode.NOT_FOUND)
