"""Options that several commands share: a command gets them as one object."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import wraps
from typing import Any, get_type_hints

import typer

from tidelog_cli.exit_codes import COMMON_CODES

Command = Callable[..., None]


class OptionGroup:
    """Base class of dataclasses whose fields are options, annotated as typer wants them."""

    __slots__ = ()


def replaced(command: Command, name: str, options: Iterable[inspect.Parameter], make: Callable[..., object]) -> Command:
    """Return ``command`` with ``options`` instead of its parameter ``name``, which gets what ``make`` makes of them."""
    names = [option.name for option in options]

    @wraps(command)
    def called(**given: Any) -> None:
        command(**{name: make(**{each: given.pop(each) for each in names}), **given})

    signature = inspect.signature(command)
    parameters = list(signature.parameters.values())
    place, kind = list(signature.parameters).index(name), signature.parameters[name].kind
    parameters[place : place + 1] = (option.replace(kind=kind) for option in options)
    # typer reads both the signature and the annotations.
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # functions have it if it is set
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def expanded(command: Command) -> Command:
    """Return ``command`` with the options of a group in place of each parameter that is one."""
    for name, parameter in inspect.signature(command).parameters.items():
        kind = parameter.annotation
        if _is_group(kind):
            hints = get_type_hints(kind, include_extras=True)
            options = [
                inspect.Parameter(each.name, parameter.kind, default=each.default, annotation=hints[each.name])
                for each in fields(kind)
            ]
            command = replaced(command, name, options, kind)
    return command


def _is_group(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, OptionGroup)


def add_group(app: typer.Typer, name: str, text: str, commands: Iterable[Command], **aliases: Command) -> None:
    """Add a group of commands to ``app``, named as their functions, with its help; ``aliases`` are not in the help.

    A name that is a keyword of Python has an underscore at its end, such as ``import_``.
    """
    group = typer.Typer(no_args_is_help=True, help=text)
    for command in commands:
        group.command(command.__name__.rstrip("_"), epilog=COMMON_CODES)(expanded(command))
    for alias, command in aliases.items():
        group.command(alias, epilog=COMMON_CODES, hidden=True)(expanded(command))
    app.add_typer(group, name=name)
