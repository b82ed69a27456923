"""The environment variable of each option: ``TIDELOG_``, the command and the option, as in ``TIDELOG_SCAN_FROM``.

Options that several commands share may name one for all, such as ``TIDELOG_OUTPUT``. An empty variable is not set.
"""

from collections.abc import Iterator, Sequence
from typing import Any

PREFIX = "TIDELOG"


def name_variables(command: Any, path: Sequence[str]) -> None:
    """Give each option of a command that names no variable its own, and likewise for the commands below.

    Args:
        command: The command, as Typer has made it.
        path: Its name, after those of the groups that it belongs to; empty for the program.
    """
    for option in options_of(command):
        if option.envvar is None:
            option.envvar = "_".join([PREFIX, *path, _long_name(option)]).replace("-", "_").upper()
    below = getattr(command, "commands", None)
    # The commands of the program are imported, and get their variables, when they are needed.
    if isinstance(below, dict):
        for name, each in below.items():
            name_variables(each, [*path, name])


def options_of(command: Any) -> Iterator[Any]:
    """Yield the options of a command, but for those that print something and end, such as ``--help``."""
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.expose_value and not parameter.is_eager:
            yield parameter


def _long_name(option: Any) -> str:
    return str(max(option.opts, key=len)).lstrip("-")
