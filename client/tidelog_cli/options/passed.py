"""Options that count only if they are passed: the resolver of addresses reads their variables itself."""

from typing import Any

import typer


def is_passed(call: typer.Context, name: str) -> bool:
    """Return whether a parameter was passed, not set by a variable or a default."""
    source = call.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def only_passed(call: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """Return the value of an option if it was passed, else an empty text; for the callback of an option.

    Raises:
        BadParameter: The value is empty, as that of a variable of a shell that is not set.
    """
    name: Any = parameter.name
    if not is_passed(call, name):
        return ""
    if not value:
        raise typer.BadParameter("it is empty")
    return value
