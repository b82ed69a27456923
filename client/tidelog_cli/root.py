"""The tree of commands: those of this package, and those that other packages add (``joined``)."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, cast

import typer
from typer.core import TyperGroup

from tidelog_cli import joined
from tidelog_cli.exit_codes import COMMON_CODES
from tidelog_cli.extras import extra_of
from tidelog_cli.options import target
from tidelog_cli.options.variables import name_variables

_HERE: Final = "tidelog_cli.commands"
# In the order of the help: each command and the module that registers it. None is an entry point of the same name;
# unlisted entry points come last.
_MODULES: Final[Mapping[str, str | None]] = {
    "serve": None,
    "channel": f"{_HERE}.channels",
    "append": f"{_HERE}.append",
    "scan": f"{_HERE}.scan",
    "tail": f"{_HERE}.scan",
    "txn": f"{_HERE}.transactions",
    "broadcast": f"{_HERE}.broadcasts",
    "group": f"{_HERE}.groups",
    "journal": f"{_HERE}.journals",
    "mailbox": f"{_HERE}.mailboxes.management",
    "cluster": f"{_HERE}.cluster",
    "ctx": "tidelog_cli.options.contexts",
    "token": f"{_HERE}.tokens",
    "audit": f"{_HERE}.audit",
    "backup": None,
    "engine": None,
    "pipeline": f"{_HERE}.pipeline",
    "check": f"{_HERE}.check",
    "top": f"{_HERE}.top",
    "bench": None,
    "doctor": None,
    "debug": None,
    "config": None,
    "cheat": f"{_HERE}.cheat",
    "completion": f"{_HERE}.completion",
    "version": f"{_HERE}.version",
}


class Commands(Mapping[str, Any]):
    """The commands by name. Each is imported when it is needed: all of them take half of a second."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded |= _registered_by(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in dict.fromkeys([*_MODULES, *joined.names("tidelog.commands")]) if name in self])

    def __len__(self) -> int:
        return len(list(iter(self)))


def _registered_by(name: str) -> Mapping[str, Any]:
    """Return the commands of the module that registers ``name``.

    Raises:
        KeyError: There is no such command, or its package is not installed.
    """
    part = typer.Typer()
    module = _MODULES.get(name)
    try:
        (import_module(module) if module else joined.load("tidelog.commands", name)).register(part)
    except ModuleNotFoundError as error:
        if module or extra_of(error) is None:
            raise
        raise KeyError(name) from error
    commands = cast("Mapping[str, Any]", typer.main.get_group(part).commands)
    for each, command in commands.items():
        name_variables(command, [each])
    return commands


class _Root(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = Commands()


app = typer.Typer(
    cls=_Root,
    name="tidelog",
    help="Durable channels in one time order, readable from Python and Spark.",
    epilog="`tidelog help NAME` explains a command, or an error by its name. "
    f"Each option has an environment variable: TIDELOG_, the command and the option, such as TIDELOG_SCAN_FROM. "
    f"Values of a repeatable option are separated by spaces. {COMMON_CODES}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(target.credentials)
