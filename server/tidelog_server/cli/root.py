"""The tree of commands."""

import typer

from tidelog_server.cli import (
    append,
    audit,
    backup,
    broadcasts,
    channels,
    check,
    cluster,
    config_commands,
    connection,
    doctor,
    groups,
    pipeline,
    scan,
    serve,
    tokens,
    top,
    transactions,
    version,
)
from tidelog_server.cli.bench import commands as bench
from tidelog_server.cli.exit_codes import COMMON_CODES

app = typer.Typer(
    name="tidelog",
    help="Durable channels in one time order, readable from Python and Spark.",
    epilog=COMMON_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(connection.credentials)
serve.register(app)
channels.register(app)
append.register(app)
scan.register(app)
transactions.register(app)
broadcasts.register(app)
groups.register(app)
cluster.register(app)
tokens.register(app)
audit.register(app)
backup.register(app)
pipeline.register(app)
app.add_typer(check.app, name="check")
top.register(app)
bench.register(app)
doctor.register(app)
config_commands.register(app)
version.register(app)
