"""The pages of the command line, one for each command at the top, from the parser that reads the arguments."""

from collections.abc import Iterator
from typing import Any, Final

import typer

from tidelog_cli.root import app

FOLDER: Final = "docs/reference/commands"
_INDEX: Final = """\
# Commands

`tidelog COMMAND --help` prints what these pages have. On a terminal the output is a table, and JSON lines in a pipe or
a file.

| command | what it does |
|---|---|
{rows}

## Options of all commands

They are before the command: `tidelog --token-file FILE scan orders`.

{options}
"""


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each page, the index first."""
    root: Any = typer.main.get_command(app)
    rows = "\n".join(f"| [`tidelog {name}`]({name}.md) | {_summary(root.commands[name])} |" for name in root.commands)
    yield f"{FOLDER}/index.md", _INDEX.format(rows=rows, options="\n".join(_program(root, "tidelog")))
    for name in root.commands:
        yield f"{FOLDER}/{name}.md", "\n".join(_command(root.commands[name], f"tidelog {name}", "#"))


def _command(command: Any, path: str, marks: str) -> Iterator[str]:
    """Yield the blocks of a command and of all below it."""
    yield f"{marks} {path}\n"
    yield f"{_text(command.help)}\n"
    below = getattr(command, "commands", {})
    if not below:
        yield f"```text\n{_usage(command, path)}\n```\n"
        yield from _program(command, path)
    if command.epilog:
        yield f"{_text(command.epilog)}\n"
    for name, child in below.items():
        if not child.hidden:
            yield from _command(child, f"{path} {name}", "##")


def _program(command: Any, path: str) -> Iterator[str]:
    """Yield the options and arguments of one command."""
    context = typer.Context(command, info_name=path)
    yield f"```{{program}} {path}\n```\n"
    for parameter in command.params:
        if not parameter.hidden:
            yield f"```{{option}} {_spelling(parameter, context)}\n{_description(parameter)}\n```\n"


def _usage(command: Any, path: str) -> str:
    return " ".join((path, *command.collect_usage_pieces(typer.Context(command, info_name=path))))


def _spelling(parameter: Any, context: typer.Context) -> str:
    if parameter.param_type_name == "argument":
        [piece] = parameter.get_usage_pieces(context)
        return str(piece).strip("[]{}.")
    value = "" if parameter.is_flag or parameter.count else f" {parameter.display_type_rich(context)}"
    return ", ".join(f"{name}{value}" for name in (*parameter.opts, *parameter.secondary_opts))


def _description(parameter: Any) -> str:
    default, variable = parameter.default, getattr(parameter, "envvar", None)
    facts = [_text(parameter.help)]
    if parameter.required:
        facts.append("Required.")
    if parameter.multiple:
        facts.append("May be repeated.")
    facts += [f"{word} {bound}." for word, bound in (("At least", parameter.min), ("At most", parameter.max)) if bound]
    if isinstance(default, int | float | str) and not isinstance(default, bool) and default != "":
        facts.append(f"Default: `{getattr(default, 'value', default)}`.")
    if variable:
        names = (variable,) if isinstance(variable, str) else tuple(variable)
        facts.append(f"Environment: {', '.join(f'`{name}`' for name in names)}.")
    return " ".join(filter(None, facts))


def _text(text: str | None) -> str:
    """Return a help text as Markdown: each paragraph in one line, and no character that would be markup."""
    paragraphs = (" ".join(each.replace("\b", "").split()) for each in (text or "").split("\n\n"))
    return "\n\n".join(_escaped(each) for each in paragraphs)


def _escaped(text: str) -> str:
    # Between backticks a text is as it is; elsewhere these characters would begin a link, an element or emphasis.
    parts = text.replace("\\[", "[").split("`")
    table = str.maketrans({each: f"\\{each}" for each in "<>[]*_|{}#$"})
    return "`".join(part if index % 2 else part.translate(table) for index, part in enumerate(parts))


def _summary(command: Any) -> str:
    return _text(command.short_help or command.help).partition("\n")[0]
