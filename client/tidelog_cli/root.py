"""The tree of commands: those of this package, and those that other packages add (``joined``)."""

from importlib.metadata import entry_points
from typing import Final

import typer

from tidelog_cli import connection
from tidelog_cli.commands import (
    append,
    audit,
    broadcasts,
    channels,
    check,
    cluster,
    groups,
    journals,
    pipeline,
    scan,
    tokens,
    top,
    transactions,
    version,
)
from tidelog_cli.exit_codes import COMMON_CODES
from tidelog_cli.extras import extra_of

# In the order of the help. A string is the name of an entry point; unlisted entry points come last.
_COMMANDS: Final = (
    "serve", channels, append, scan, transactions, broadcasts, groups, journals, cluster, tokens, audit, "backup",
    pipeline, check, top, "bench", "doctor", "config", version,
)  # fmt: skip

app = typer.Typer(
    name="tidelog",
    help="Durable channels in one time order, readable from Python and Spark.",
    epilog=COMMON_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(connection.credentials)


def _register_all() -> None:
    joined = {}
    for entry in entry_points(group="tidelog.commands"):
        try:
            joined[entry.name] = entry.load()
        except ModuleNotFoundError as error:
            # A client-only installation.
            if extra_of(error) is None:
                raise
    own = [joined.pop(each, None) if isinstance(each, str) else each for each in _COMMANDS]
    for module in filter(None, (*own, *joined.values())):
        module.register(app)


_register_all()
