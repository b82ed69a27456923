"""The tree of commands."""

import typer

from tidelog_server.cli import append, broadcasts, channels, config_commands, doctor, scan, serve, transactions, version
from tidelog_server.cli.bench import commands as bench
from tidelog_server.cli.exit_codes import COMMON_CODES

app = typer.Typer(
    name="tidelog",
    help="Durable channels, one time order, and reads that Spark understands.",
    epilog=COMMON_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
serve.register(app)
channels.register(app)
append.register(app)
scan.register(app)
transactions.register(app)
broadcasts.register(app)
bench.register(app)
doctor.register(app)
config_commands.register(app)
version.register(app)
